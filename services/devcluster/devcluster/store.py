"""Objects in memory, ordered by one revision counter, with a bounded history to watch.

Watchers own no buffer: each holds a position in the shared history of a collection. One that
falls behind what the history keeps is told 410, so a slow reader costs no memory.
"""

import asyncio
import bisect
import collections.abc
import time
from dataclasses import dataclass
from typing import Protocol

import msgspec

from devcluster.resources import Object

HISTORY_LENGTH = 10_000
"""Changes kept per collection at least, unless they are huge; at most twice as many."""
HISTORY_BYTES = 64 * 1024 * 1024
"""Encoded size of a collection's history at most."""

Key = tuple[str, str]
"""Namespace (empty for cluster-scoped objects) and name."""

encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder().decode


class Stored:
    """An object as value and as bytes, at one revision. Never mutated."""

    __slots__ = ("data", "manager", "revision", "value")

    def __init__(self, value: Object, revision: int, manager: str = "") -> None:
        self.value = value
        self.data = encode(value)
        self.revision = revision
        self.manager = manager


@dataclass(frozen=True, slots=True)
class Change:
    """One committed change; ``new`` is the last state when ``type`` is DELETED."""

    type: str
    old: Stored | None
    new: Stored


Subscriber = collections.abc.Callable[[str, Object | None, Object], None]


class Log(Protocol):
    """Where changes are made durable; see ``sqlite``."""

    def append(self, collection: str, key: Key, change: Change) -> None:
        """Queue a change; it becomes durable, and only then visible to watchers."""

    async def settled(self, revision: int) -> None:
        """Return once everything up to a revision is durable."""


class Collection:
    """All objects of one resource and their recent changes."""

    def __init__(self, name: str, floor: int) -> None:
        self.name = name
        self.objects: dict[Key, Stored] = {}
        self.subscribers: list[Subscriber] = []
        self.waiting: set[asyncio.Event] = set()
        self.is_closed = False
        """Whether the resource is served no more."""
        self.floor = floor
        """Changes up to this revision are no longer known."""
        self._changes: list[Change] = []
        self._size = 0

    def record(self, change: Change) -> None:
        """Append to the history and forget what exceeds its bound."""
        self._changes.append(change)
        self._size += len(change.new.data)
        if len(self._changes) > 2 * HISTORY_LENGTH or self._size > HISTORY_BYTES:
            self._forget(len(self._changes) // 2)

    def expire(self) -> None:
        """Forget the whole history, as etcd does after a compaction."""
        self._forget(len(self._changes))
        self.wake()

    def _forget(self, count: int) -> None:
        if count:
            self.floor = self._changes[count - 1].new.revision
            self._size -= sum(len(change.new.data) for change in self._changes[:count])
            del self._changes[:count]

    def after(self, revision: int, until: int) -> list[Change]:
        """Return changes with revision < r <= until, oldest first."""
        if not self._changes or self._changes[-1].new.revision <= revision:
            return []
        start = bisect.bisect_right(self._changes, revision, key=_revision)
        if self._changes[-1].new.revision <= until:
            return self._changes[start:]
        return self._changes[start : bisect.bisect_right(self._changes, until, key=_revision)]

    def wake(self) -> None:
        """Tell every watcher that there is something to look at."""
        for event in self.waiting:
            event.set()

    def at(self, revision: int) -> dict[Key, Stored]:
        """Return the objects as they were at a revision not below the floor."""
        objects = dict(self.objects)
        for change in reversed(self.after(revision, 1 << 63)):
            metadata = change.new.value["metadata"]
            key = (metadata.get("namespace", ""), metadata["name"])
            if change.old is None:
                objects.pop(key, None)
            else:
                objects[key] = change.old
        return objects


def _revision(change: Change) -> int:
    return change.new.revision


class Store:
    """Every collection, and the one counter that orders their changes."""

    def __init__(self) -> None:
        # A restarted server must not reuse revisions: a client resuming with an old one
        # has to be told 410, not to wait for a number from the past.
        self.revision = time.time_ns() // 1_000_000
        self.start = self.revision
        """History begins here: what was before cannot be watched."""
        self.durable: int | None = None
        """Last revision safe on disk; None when nothing is kept on disk."""
        self.log: Log | None = None
        self._collections: dict[str, Collection] = {}
        self._dropped: set[str] = set()

    @property
    def visible(self) -> int:
        """Return the last revision that may be shown to clients."""
        return self.revision if self.durable is None else self.durable

    async def settled(self, revision: int) -> None:
        """Return once what is known at a revision may be shown to clients."""
        if self.log is not None and self.visible < revision:
            await self.log.settled(revision)

    def collection(self, name: str) -> Collection:
        """Return a collection, created empty on first use."""
        found = self._collections.get(name)
        if found is None:
            floor = self.revision if name in self._dropped else self.start
            found = self._collections[name] = Collection(name, floor)
        return found

    def collections(self) -> list[Collection]:
        """Return every collection in use."""
        return list(self._collections.values())

    def drop(self, name: str) -> None:
        """Forget a collection whose resource is served no more; its watches end."""
        self._dropped.add(name)
        gone = self._collections.pop(name, None)
        if gone is not None:
            gone.is_closed = True
            gone.wake()

    def put(self, collection: Collection, key: Key, value: Object, manager: str = "") -> Stored:
        """Store a value under the next revision. The value must not be touched afterwards."""
        self.revision += 1
        value["metadata"]["resourceVersion"] = str(self.revision)
        old = collection.objects.get(key)
        new = Stored(value, self.revision, old.manager if old else manager)
        collection.objects[key] = new
        self._commit(collection, key, Change("MODIFIED" if old else "ADDED", old, new))
        return new

    def remove(self, collection: Collection, key: Key, value: Object) -> Stored:
        """Delete an object; ``value`` is its last state, stamped with the next revision."""
        self.revision += 1
        value["metadata"]["resourceVersion"] = str(self.revision)
        new = Stored(value, self.revision)
        old = collection.objects.pop(key)
        self._commit(collection, key, Change("DELETED", old, new))
        return new

    def _commit(self, collection: Collection, key: Key, change: Change) -> None:
        collection.record(change)
        if self.log is None:
            collection.wake()
        else:
            self.log.append(collection.name, key, change)
        old = change.old.value if change.old else None
        for subscriber in collection.subscribers:
            subscriber(change.type, old, change.new.value)
