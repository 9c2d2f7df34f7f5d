"""Who waits for whom: one attachment at a time, and GC alone in its network.

containerd attaches ``lo`` and ``eth0`` of one container at once, so the unit is container and
interface, not the container. Every request passes here, and nearly always nobody waits.
"""

import contextlib
import threading
from collections.abc import Callable, Hashable, Iterator

PATIENCE = 60.0
"""Seconds that somebody waits for others: longer than their callers wait for an answer."""


class StillBusyError(Exception):
    """Others have not come to an end in time."""


class KeyedLocks:
    """A lock for each key in use; what nobody holds or waits for takes no memory."""

    def __init__(self, patience: float = PATIENCE) -> None:
        self._patience = patience
        self._mutex = threading.Lock()
        self._locks: dict[Hashable, tuple[threading.Lock, list[None]]] = {}

    @property
    def is_idle(self) -> bool:
        """Whether nobody holds or waits for anything."""
        return not self._locks

    def is_held(self, key: Hashable) -> bool:
        """Say whether somebody holds or waits for the lock of a key."""
        return key in self._locks

    def held(self, key: Hashable) -> "Held":
        """Hold the lock of a key. Entering it raises StillBusyError."""
        return Held(self, key)

    def take(self, key: Hashable) -> None:
        """Take the lock of a key. Raises StillBusyError."""
        with self._mutex:
            found = self._locks.get(key)
            if found is None:
                found = self._locks[key] = (threading.Lock(), [])
            lock, users = found
            users.append(None)
        if not lock.acquire(timeout=self._patience):
            self._leave(key)
            raise StillBusyError(f"held for more than {self._patience:g} seconds by another")

    def give_back(self, key: Hashable) -> None:
        """Give back the lock of a key."""
        self._locks[key][0].release()
        self._leave(key)

    def _leave(self, key: Hashable) -> None:
        with self._mutex:
            _, users = self._locks[key]
            users.pop()
            if not users:
                del self._locks[key]


class Held:
    """A lock of a key, for a with statement (a class, as every request passes here)."""

    __slots__ = ("_key", "_locks")

    def __init__(self, locks: KeyedLocks, key: Hashable) -> None:
        self._locks = locks
        self._key = key

    def __enter__(self) -> None:
        """Take it."""
        self._locks.take(self._key)

    def __exit__(self, *_: object) -> None:
        """Give it back."""
        self._locks.give_back(self._key)


class Gate:
    """Many may be in, or one alone; who wants to be alone lets nobody new in."""

    def __init__(self, patience: float = PATIENCE) -> None:
        self._patience = patience
        self._changed = threading.Condition()
        self._inside = 0
        self._is_alone = False
        self._wanting = 0

    @property
    def is_wanted(self) -> bool:
        """Whether somebody waits to be alone."""
        return bool(self._wanting)

    def shared(self) -> "Shared":
        """Be inside together with others. Entering it raises StillBusyError."""
        return Shared(self)

    def come_in(self) -> None:
        """Come in together with others. Raises StillBusyError."""
        with self._changed:
            if self._is_alone or self._wanting:
                self._wait_until(lambda: not (self._is_alone or self._wanting))
            self._inside += 1

    def go_out(self) -> None:
        """Leave."""
        with self._changed:
            self._inside -= 1
            if self._wanting and not self._inside:
                self._changed.notify_all()

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Be inside with nobody else. Raises StillBusyError."""
        with self._changed:
            self._wanting += 1
            try:
                self._wait_until(lambda: not (self._is_alone or self._inside))
                self._is_alone = True
            finally:
                self._wanting -= 1
                self._changed.notify_all()
        try:
            yield
        finally:
            with self._changed:
                self._is_alone = False
                self._changed.notify_all()

    def _wait_until(self, is_so: Callable[[], bool]) -> None:
        if not self._changed.wait_for(is_so, self._patience):
            raise StillBusyError(f"others were inside for more than {self._patience:g} seconds")


class Shared:
    """A stay behind a gate together with others, for a with statement."""

    __slots__ = ("_gate",)

    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    def __enter__(self) -> None:
        """Come in."""
        self._gate.come_in()

    def __exit__(self, *_: object) -> None:
        """Leave."""
        self._gate.go_out()
