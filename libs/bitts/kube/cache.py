"""The local copy of a resource: what the watch has said, and on top what we wrote ourselves.

A controller that decides on a view older than its own last write does the work twice. So
the result of each own write is laid over the copy until the watch has caught up with it:

* an overlay ends when the watch shows the same object at the same or a newer version, or
  says (by a bookmark, a list) that it has passed that version;
* an own deletion hides the object until the watch confirms it, or shows a new object under
  the name (told apart by uid);
* a write whose version the watch has already passed is no news and changes nothing.

Versions of one resource are compared as decimals, as Kubernetes documents them; should a
server use anything else, only equality counts and overlays last until the next list.

Subscribers are called at once, in order, for every change of the view; the echo of an own
write that was already shown is not a change.
"""

import asyncio
import dataclasses
from collections.abc import Callable, Iterable, KeysView
from typing import Generic, TypeVar

from bitts.core import logs
from bitts.kube import objects
from bitts.kube.watching import Change

T = TypeVar("T", bound=objects.Object)
Callback = Callable[[T | None, T | None], None]

_log = logs.get("kube.cache")


@dataclasses.dataclass(frozen=True, slots=True)
class _Own(Generic[T]):
    """An own write the watch has not confirmed; ``object`` is ``None`` for a deletion."""

    object: T | None
    uid: str
    version: str
    mark: int


@dataclasses.dataclass(frozen=True, slots=True)
class _Subscriber(Generic[T]):
    changed: Callback[T]
    wrote: Callback[T]


class Cache(Generic[T]):
    """Objects of one kind by key (``namespace/name``, or name), with indexes."""

    def __init__(self) -> None:
        self.synced = asyncio.Event()
        self._server: dict[str, T] = {}
        self._own: dict[str, _Own[T]] = {}
        self._view: dict[str, T] = {}
        self._indexes: dict[str, _Index[T]] = {}
        self._subscribers: list[_Subscriber[T]] = []
        self._position = ""
        self._marks = 0

    def get(self, key: str) -> T | None:
        """The object as last known, own writes included."""
        return self._view.get(key)

    def items(self) -> list[T]:
        """All objects."""
        return list(self._view.values())

    def keys(self) -> KeysView[str]:
        """All keys."""
        return self._view.keys()

    def __len__(self) -> int:
        return len(self._view)

    def __contains__(self, key: object) -> bool:
        return key in self._view

    @property
    def unconfirmed(self) -> int:
        """How many own writes the watch has yet to show."""
        return len(self._own)

    def add_index(self, name: str, values: Callable[[T], Iterable[str]]) -> None:
        """Keep a lookup by the values that a function finds in an object."""
        index = self._indexes[name] = _Index(values)
        for key, one in self._view.items():
            index.move(key, None, one)

    def by_index(self, name: str, value: str) -> list[T]:
        """The objects in which an index found this value. KeyError for an unknown index."""
        return [self._view[key] for key in self._indexes[name].keys_of(value)]

    def subscribe(
        self, changed: Callback[T], *, own_writes: Callback[T] | None = None
    ) -> Callable[[], None]:
        """Call ``changed(old, new)`` at each change; returns what ends it.

        ``None`` stands for absent; an object replaced by another of its name is a deletion
        and an addition. Changes that we wrote ourselves go to ``own_writes`` if given, so
        that they need not reset a backoff. A change by others that hides below an own
        write is reported as ``changed(view, view)``. What is in the cache already is not
        reported.
        """
        wrote = changed if own_writes is None else own_writes
        subscriber: _Subscriber[T] = _Subscriber(changed, wrote)
        self._subscribers.append(subscriber)
        return lambda: self._subscribers.remove(subscriber)

    def overlay(self, written: T) -> None:
        """Show the result of an own create, patch or replace."""
        known = self._own.get(written.key)
        version = written.metadata.resource_version
        if at_least(self._position, version):
            return
        if known is not None and _is_overtaken(written, known):
            return
        base = self._server.get(written.key)
        if base is not None and base.uid == written.uid and _same_version(base, written):
            return
        self._own[written.key] = _Own(written, written.uid, version, self._marks)
        self._show(written.key, written, own=True)

    def overlay_deleted(self, seen: T) -> None:
        """Hide an object whose deletion we asked for and which waits for no finalizer."""
        base = self._view.get(seen.key)
        if base is None or base.uid != seen.uid:
            return
        self._own[seen.key] = _Own(None, seen.uid, base.metadata.resource_version, self._marks)
        self._show(seen.key, None, own=True)

    def apply(self, change: Change, seen: T) -> None:
        """Take in an event of the watch."""
        key, version = seen.key, seen.metadata.resource_version
        new = None if change is Change.DELETED else seen
        if not at_least(self._position, version):
            self._position = version
        if new is None:
            self._server.pop(key, None)
        else:
            self._server[key] = new
        own = self._own.get(key)
        if own is None:
            self._show(key, new)
        elif _confirms(own, new, seen):
            del self._own[key]
            self._show(key, new)
        elif own.object is not None:
            self._notify(own.object, own.object, own=False)

    def advance(self, version: str) -> None:
        """The watch has passed this version (a bookmark)."""
        if not at_least(self._position, version):
            self._position = version
        for key, own in list(self._own.items()):
            if own.object is not None and at_least(version, own.version):
                del self._own[key]
                self._show(key, self._server.get(key))

    def mark(self) -> int:
        """To be taken before a list is asked for, and given to ``replace`` with its result."""
        self._marks += 1
        return self._marks

    def replace(self, listed: Iterable[T], version: str, mark: int) -> None:
        """Take in a whole list: what is not in it is gone."""
        self._server = {one.key: one for one in listed}
        self._position = version
        self._own = {key: own for key, own in self._own.items() if self._outlives(own, key, mark)}
        view = dict(self._server)
        for key, own in self._own.items():
            if own.object is None:
                view.pop(key, None)
            else:
                view[key] = own.object
        for key in [key for key in self._view if key not in view]:
            self._show(key, None)
        for key, new in view.items():
            self._show(key, new)
        for own in self._own.values():
            if own.object is not None:
                self._notify(own.object, own.object, own=False)
        self.synced.set()

    def _outlives(self, own: _Own[T], key: str, mark: int) -> bool:
        if own.mark < mark:
            return False  # written before the list was asked for: the list knows
        if own.object is None:
            listed = self._server.get(key)
            return listed is not None and listed.uid == own.uid
        return not at_least(self._position, own.version)

    def _show(self, key: str, new: T | None, *, own: bool = False) -> None:
        """Change the view, the indexes with it, and tell subscribers if it is a change."""
        old = self._view.get(key)
        if new is None:
            self._view.pop(key, None)
        else:
            self._view[key] = new
        for index in self._indexes.values():
            index.move(key, old, new)
        if old is None or new is None:
            if old is not new:
                self._notify(old, new, own=own)
        elif old.uid != new.uid:
            self._notify(old, None, own=own)
            self._notify(None, new, own=own)
        elif not _same_version(old, new):
            self._notify(old, new, own=own)

    def _notify(self, old: T | None, new: T | None, *, own: bool) -> None:
        for subscriber in list(self._subscribers):
            try:
                (subscriber.wrote if own else subscriber.changed)(old, new)
            except Exception:  # noqa: BLE001 - one subscriber's fault must not stop the watch
                _log.exception("Subscriber of a cache failed")


class _Index(Generic[T]):
    def __init__(self, values: Callable[[T], Iterable[str]]) -> None:
        self._values = values
        # Keys are kept in a dict: a set that remembers the order.
        self._keys: dict[str, dict[str, None]] = {}

    def keys_of(self, value: str) -> Iterable[str]:
        return self._keys.get(value, ())

    def move(self, key: str, old: T | None, new: T | None) -> None:
        before = set(self._values(old)) if old is not None else set()
        after = set(self._values(new)) if new is not None else set()
        for value in before - after:
            keys = self._keys[value]
            del keys[key]
            if not keys:
                del self._keys[value]
        for value in after - before:
            self._keys.setdefault(value, {})[key] = None


def at_least(version: str, other: str) -> bool:
    """Whether a resourceVersion is surely the same as another one or newer."""
    if version.isdecimal() and other.isdecimal():
        return int(version) >= int(other)
    return version == other


def _same_version(one: objects.Object, other: objects.Object) -> bool:
    return one.metadata.resource_version == other.metadata.resource_version


def _is_overtaken(written: objects.Object, own: _Own[T]) -> bool:
    """Whether answers crossed: this one is of an older write, or of before our deletion."""
    if at_least(own.version, written.metadata.resource_version):
        return True
    return own.object is None and own.uid == written.uid


def _confirms(own: _Own[T], new: T | None, seen: T) -> bool:
    """Whether an event shows that the watch has reached an own write."""
    version = seen.metadata.resource_version
    decimals = version.isdecimal() and own.version.isdecimal()
    newer = at_least(version, own.version)
    if own.object is not None:
        return newer or (not decimals and new is None and seen.uid == own.uid)
    # A tombstone ends with its deletion, or with the next object of the name (not a former one).
    if new is None:
        return seen.uid == own.uid
    return seen.uid != own.uid and (newer or not decimals)
