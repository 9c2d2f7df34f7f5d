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
    """Many may be in, or one alone; who wants to be alone lets nobody new in."""

    def __init__(self) -> None:
        self._changed = asyncio.Condition()
        self._inside = 0
        self._alone = False
        self._wanting = 0

    @contextlib.asynccontextmanager
    async def shared(self) -> AsyncIterator[None]:
        """Be inside together with others."""
        async with self._changed:
            await self._changed.wait_for(lambda: not self._alone and not self._wanting)
            self._inside += 1
        try:
            yield
        finally:
            await asyncio.shield(self._leave())

    @contextlib.asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        """Be inside with nobody else."""
        async with self._changed:
            self._wanting += 1
            try:
                await self._changed.wait_for(lambda: not self._alone and not self._inside)
                self._alone = True
            finally:
                self._wanting -= 1
                self._changed.notify_all()
        try:
            yield
        finally:
            await asyncio.shield(self._open())

    async def _leave(self) -> None:
        async with self._changed:
            self._inside -= 1
            self._changed.notify_all()

    async def _open(self) -> None:
        async with self._changed:
            self._alone = False
            self._changed.notify_all()
