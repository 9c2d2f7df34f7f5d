"""Indexed views of the store, so that no loop ever scans all objects for one event.

A view is fed inside each commit, hence never behind the store: what a loop reads at the start
of its synchronous pass stays true until its own first write, and patches need no guard.
"""

from collections.abc import Callable, Iterable

from devcluster import api as apis
from devcluster.loops import facts, names
from devcluster.loops.facts import Obj

Indexer = Callable[[Obj], Iterable[str]]
Listener = Callable[[Obj | None, Obj | None], None]


class View:
    """All objects of one resource by key and by the given indexes."""

    def __init__(self, api: apis.Api, kind: names.Kind, **indexers: Indexer) -> None:
        self._objects: dict[str, Obj] = {}
        self._indexers = indexers
        self._index: dict[str, dict[str, dict[str, None]]] = {name: {} for name in indexers}
        self._listeners: list[Listener] = []
        resource = api.resource(kind.plural, kind.group)
        api.subscribe(resource, self._committed)
        for obj in api.list(resource):
            self._store(None, obj)

    def get(self, key: str) -> Obj | None:
        """The object of that key, or None."""
        return self._objects.get(key)

    def all(self) -> list[Obj]:
        """Every object, in order of creation."""
        return list(self._objects.values())

    def keys(self, index: str, value: str) -> list[str]:
        """Keys of the objects filed under a value of an index."""
        return list(self._index[index].get(value, ()))

    def by(self, index: str, value: str) -> list[Obj]:
        """The objects filed under a value of an index."""
        return [self._objects[key] for key in self._index[index].get(value, ())]

    def count(self, index: str, value: str) -> int:
        """How many objects are filed under a value of an index."""
        return len(self._index[index].get(value, ()))

    def listen(self, listener: Listener) -> None:
        """Have (old, new) told inside each commit; the listener may only enqueue."""
        self._listeners.append(listener)

    def _committed(self, event: str, old: Obj | None, new: Obj) -> None:
        current = None if event == "DELETED" else new
        previous = self._objects.get(facts.key(new))
        self._store(previous, current)
        for listener in self._listeners:
            listener(previous or old, current)

    def _store(self, old: Obj | None, new: Obj | None) -> None:
        for name, indexer in self._indexers.items():
            before = set(indexer(old)) if old else set()
            after = set(indexer(new)) if new else set()
            if old and before - after:
                self._unfile(name, facts.key(old), before - after)
            for value in after - before:
                self._index[name].setdefault(value, {})[facts.key(new or {})] = None
        if new:
            self._objects[facts.key(new)] = new
        elif old:
            self._objects.pop(facts.key(old), None)

    def _unfile(self, name: str, key: str, values: set[str]) -> None:
        index = self._index[name]
        for value in values:
            filed = index.get(value, {})
            filed.pop(key, None)
            if not filed:
                index.pop(value, None)


class Views:
    """The views that several loops share."""

    def __init__(self, api: apis.Api) -> None:
        self.claims = View(
            api,
            names.CLAIMS,
            pending_class=_pending_class,
            volume=lambda o: _field(o, "volumeName"),
        )
        self.volumes = View(api, names.VOLUMES, claim=_reserved_for, free_class=_free_class)
        self.pods = View(api, names.PODS, claim=facts.claim_keys, node=_node, state=_state)
        self.nodes = View(api, names.NODES)
        self.classes = View(api, names.CLASSES)
        self.csi_drivers = View(api, names.CSI_DRIVERS)
        self.csi_nodes = View(api, names.CSI_NODES)
        self.capacities = View(
            api, names.CAPACITIES, storage_class=lambda o: [o.get("storageClassName", "")]
        )
        self.attachments = View(
            api,
            names.ATTACHMENTS,
            node=lambda o: _field(o, "nodeName"),
            volume=lambda o: [o["spec"]["source"].get("persistentVolumeName", "")],
        )


def _field(obj: Obj, name: str) -> list[str]:
    value = obj["spec"].get(name)
    return [value] if value else []


def _pending_class(claim: Obj) -> list[str]:
    done = facts.annotation(claim, names.BIND_COMPLETED) is not None
    return [] if done else [facts.class_name(claim)]


def _reserved_for(volume: Obj) -> list[str]:
    claim = facts.claim_ref_key(volume)
    return [claim] if claim else []


def _free_class(volume: Obj) -> list[str]:
    return [] if volume["spec"].get("claimRef") else [facts.class_name(volume)]


def _node(pod: Obj) -> list[str]:
    """Terminated pods hold nothing on their node."""
    return [] if facts.is_terminated(pod) else _field(pod, "nodeName")


def _state(pod: Obj) -> list[str]:
    unscheduled = not facts.node_name(pod) and not facts.is_deleting(pod)
    return ["unscheduled"] if unscheduled and not facts.is_terminated(pod) else []
