"""Who waits for whom: one attachment at a time, and GC alone in its network.

containerd attaches ``lo`` and ``eth0`` of one container at once, so the unit is container and
interface, not the container.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Hashable


class KeyedLocks:
    """A lock for each key in use; what nobody holds or waits for takes no memory."""

    def __init__(self) -> None:
        self._locks: dict[Hashable, tuple[asyncio.Lock, list[None]]] = {}

    @property
    def is_idle(self) -> bool:
        """Whether nobody holds or waits for anything."""
        return not self._locks

    def is_held(self, key: Hashable) -> bool:
        """Say whether somebody holds or waits for the lock of a key."""
        return key in self._locks

    @contextlib.asynccontextmanager
    async def held(self, key: Hashable) -> AsyncIterator[None]:
        """Hold the lock of a key; the caller bounds the waiting."""
        lock, users = self._locks.setdefault(key, (asyncio.Lock(), []))
        users.append(None)
        try:
            async with lock:
                yield
        finally:
            users.pop()
            if not users:
                del self._locks[key]


class Gate:
    """Many may be in, or one alone; who wants to be alone lets nobody new in.

    Plain counters and futures: every ADD passes here, and nearly always nobody is waiting.
    """

    def __init__(self) -> None:
        self._inside = 0
        self._is_alone = False
        self._wanting = 0
        self._waiting: list[asyncio.Future[None]] = []

    @contextlib.asynccontextmanager
    async def shared(self) -> AsyncIterator[None]:
        """Be inside together with others."""
        while self._is_alone or self._wanting:
            await self._change()
        self._inside += 1
        try:
            yield
        finally:
            self._inside -= 1
            self._announce()

    @contextlib.asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        """Be inside with nobody else."""
        self._wanting += 1
        try:
            while self._is_alone or self._inside:
                await self._change()
            self._is_alone = True
        finally:
            self._wanting -= 1
            self._announce()
        try:
            yield
        finally:
            self._is_alone = False
            self._announce()

    async def _change(self) -> None:
        future = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        try:
            await future
        except asyncio.CancelledError:
            self._announce()  # it may have been our being here that others wait for
            raise

    def _announce(self) -> None:
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)
