"""Deletion that spreads: owners to their dependents, namespaces to their content.

Every object of every resource is known here by UID (custom resources from the moment their
definition is served), so neither an owner's end nor a namespace's needs a scan. Rules of the
upstream collector: an object goes when none of its owners is left; ``foregroundDeletion`` keeps
an owner until its blocking dependents are gone; ``orphan`` cuts the ties instead.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from devcluster import api as apis
from devcluster import resources
from devcluster.loops import actions, facts, keyed, names
from devcluster.loops.actions import Action, Again, Delete, Patch
from devcluster.loops.facts import Obj

NAMESPACE_BATCH = 200  # deletions in one pass, so that requests get their turn in between


@dataclass(frozen=True, slots=True)
class Entry:
    """An object and the resource it belongs to."""

    kind: names.Kind
    obj: Obj


def decide(entry: Entry, owners: Mapping[str, Entry], dependents: Sequence[Entry]) -> list[Action]:
    """What to do about an object, given its owners that exist (by UID) and its dependents."""
    obj, held_by = entry.obj, facts.finalizers(entry.obj)
    if facts.is_deleting(obj):
        if names.ORPHAN in held_by:
            cut = [_without_owner(one, facts.uid(obj)) for one in dependents]
            return [*cut, _without_finalizer(entry, names.ORPHAN)]
        if names.FOREGROUND in held_by:
            return _foreground(entry, dependents)
        return []
    refs = obj["metadata"].get("ownerReferences") or []
    solid = [ref for ref in refs if _keeps(owners.get(ref["uid"]), obj, ref)]
    if not refs or len(solid) == len(refs):
        return []
    if solid:
        return [Patch(entry.kind, facts.key(obj), {"metadata": {"ownerReferences": solid}})]
    return [Delete(entry.kind, facts.key(obj), facts.uid(obj))]


def _keeps(owner: Entry | None, obj: Obj, ref: Obj) -> bool:
    """An owner in another namespace is none; one in foreground deletion lets go."""
    if owner is None:
        return False
    theirs = owner.obj["metadata"].get("namespace")
    if theirs is not None and theirs != obj["metadata"].get("namespace"):
        return False
    leaving = facts.is_deleting(owner.obj) and names.FOREGROUND in facts.finalizers(owner.obj)
    return not (leaving and ref.get("blockOwnerDeletion"))


def _foreground(entry: Entry, dependents: Sequence[Entry]) -> list[Action]:
    uid = facts.uid(entry.obj)
    blocking = [one for one in dependents if _blocks(one.obj, uid)]
    if not blocking:
        return [_without_finalizer(entry, names.FOREGROUND)]
    return [
        Delete(one.kind, facts.key(one.obj), facts.uid(one.obj))
        for one in blocking
        if not facts.is_deleting(one.obj) and len(one.obj["metadata"]["ownerReferences"]) == 1
    ]


def _blocks(dependent: Obj, uid: str) -> bool:
    refs = dependent["metadata"].get("ownerReferences") or ()
    return any(ref["uid"] == uid and ref.get("blockOwnerDeletion") for ref in refs)


def _without_owner(entry: Entry, uid: str) -> Patch:
    refs = entry.obj["metadata"].get("ownerReferences") or ()
    rest = [ref for ref in refs if ref["uid"] != uid]
    body: Obj = {"metadata": {"ownerReferences": rest or None}}
    return Patch(entry.kind, facts.key(entry.obj), body)


def _without_finalizer(entry: Entry, finalizer: str) -> Patch:
    rest = [name for name in facts.finalizers(entry.obj) if name != finalizer]
    body: Obj = {"metadata": {"finalizers": rest or None}}
    return Patch(entry.kind, facts.key(entry.obj), body)


def decide_namespace(namespace: Obj, content: Iterable[Entry]) -> list[Action]:
    """Empty a namespace that is to go; an empty one is let go."""
    if not facts.is_deleting(namespace):
        return []
    left = list(content)
    if not left:
        body: Obj = {"spec": {"finalizers": None}}
        return [Patch(names.NAMESPACES, facts.key(namespace), body, "finalize")]
    doomed = [entry for entry in left if not facts.is_deleting(entry.obj)]
    plan: list[Action] = [
        Delete(entry.kind, facts.key(entry.obj), facts.uid(entry.obj))
        for entry in doomed[:NAMESPACE_BATCH]
    ]
    return [*plan, Again(0.0)] if len(doomed) > NAMESPACE_BATCH else plan


class Garbage:
    """Feeds UIDs, and ``/name`` for namespaces that are to go, through one queue."""

    def __init__(self, api: apis.Api) -> None:
        self._api = api
        self.loop = keyed.KeyedLoop("garbage", self._sync)
        self._performer = actions.Performer(api, "generic-garbage-collector", self.loop.decided)
        self._entries: dict[str, Entry] = {}
        self._dependents: dict[str, dict[str, None]] = {}  # owner UID → dependents' UIDs
        self._content: dict[str, dict[str, None]] = {}  # namespace → UIDs
        self._followed: set[str] = set()
        self._follow_all()

    def _follow_all(self) -> None:
        """Follow every resource that is served now and was not before."""
        for resource in list(self._api.registry):
            if resource.storage not in self._followed and not resource.view_of:
                self._followed.add(resource.storage)
                self._follow(resource)

    def _follow(self, resource: resources.Resource) -> None:
        kind = names.Kind(resource.plural, resource.group)
        self._api.subscribe(resource, self._listener(kind))
        for obj in self._api.list(resource):
            self._note(kind, obj)

    def _listener(self, kind: names.Kind) -> Callable[[str, Obj | None, Obj], None]:
        def listener(event: str, _old: Obj | None, new: Obj) -> None:
            if event == "DELETED":
                self._forget(new)
            else:
                self._note(kind, new)
            if kind.plural == "customresourcedefinitions":
                self._follow_all()

        return listener

    def _note(self, kind: names.Kind, obj: Obj) -> None:
        uid, meta = facts.uid(obj), obj["metadata"]
        before = self._entries.get(uid)
        self._entries[uid] = Entry(kind, obj)
        refs = _owner_uids(obj)
        if before is None or _owner_uids(before.obj) != refs:
            if before:
                self._untie(before.obj)
            for owner in refs:
                self._dependents.setdefault(owner, {})[uid] = None
            if namespace := meta.get("namespace"):
                self._content.setdefault(namespace, {})[uid] = None
        if refs or facts.is_deleting(obj):
            self.loop.add(uid)
        if kind == names.NAMESPACES and facts.is_deleting(obj):
            self.loop.add(f"/{meta['name']}")

    def _forget(self, obj: Obj) -> None:
        uid, namespace = facts.uid(obj), obj["metadata"].get("namespace", "")
        self._entries.pop(uid, None)
        self._untie(obj)
        for dependent in self._dependents.get(uid, ()):
            self.loop.add(dependent)
        for owner in _owner_uids(obj):
            self.loop.add(owner)  # it may wait for this dependent
        content = self._content.get(namespace, {})
        content.pop(uid, None)
        if namespace and not content:
            self._content.pop(namespace, None)
            self.loop.add(f"/{namespace}")

    def _untie(self, obj: Obj) -> None:
        for owner in _owner_uids(obj):
            tied = self._dependents.get(owner, {})
            tied.pop(facts.uid(obj), None)
            if not tied:
                self._dependents.pop(owner, None)

    def _sync(self, key: str) -> float | None:
        if key.startswith("/"):
            namespace = self._api.get(self._api.resource(*names.NAMESPACES), key[1:])
            content = (self._entries[uid] for uid in self._content.get(key[1:], ()))
            plan = decide_namespace(namespace, content) if namespace else []
            return self._performer.perform(plan)
        entry = self._entries.get(key)
        if entry is None:
            return None
        refs = _owner_uids(entry.obj)
        owners = {uid: self._entries[uid] for uid in refs if uid in self._entries}
        dependents = [self._entries[uid] for uid in self._dependents.get(key, ())]
        return self._performer.perform(decide(entry, owners, dependents))


def _owner_uids(obj: Obj) -> list[str]:
    return [ref["uid"] for ref in obj["metadata"].get("ownerReferences") or ()]
