"""From caches and memory to what the decisions see; nothing here awaits.

Keys are ``namespace/name`` of a claim and the name of a PersistentVolume. A claim that was
deleted while the driver may be working for it goes on under ``namespace/name@uid``, so that a
new claim of the same name is another object.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

from bitts.kube.cache import Cache
from bitts.kube.objects import (
    CSINode,
    Node,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
)
from bitts.volumes import naming

from csi_provisioner import drafts, topology
from csi_provisioner.memory import Memory, VolumeMemory
from csi_provisioner.model import ClaimSeen, Past, Policy, VolumeSeen
from csi_provisioner.topology import Nodes, Term

BY_CLASS = "class"
BY_VOLUME = "volume"


@dataclass(frozen=True, slots=True)
class Caches:
    """The local copies. Those that nothing needs for this driver are None."""

    claims: Cache[PersistentVolumeClaim]
    volumes: Cache[PersistentVolume]
    classes: Cache[StorageClass]
    attachments: Cache[VolumeAttachment] | None = None
    csi_nodes: Cache[CSINode] | None = None
    nodes: Cache[Node] | None = None


class Places:
    """The nodes as one driver sees them, made anew only when something that counts changed."""

    def __init__(self, driver_name: str, caches: Caches) -> None:
        self._driver_name = driver_name
        self._csi_nodes = caches.csi_nodes
        self._nodes = caches.nodes
        self._current: Nodes | None = None
        self._listeners: list[Callable[[], None]] = []
        if self._csi_nodes is not None and self._nodes is not None:
            self._csi_nodes.subscribe(self._csi_node_changed)
            self._nodes.subscribe(self._node_changed)

    def current(self) -> Nodes:
        """What is known now."""
        if self._current is None:
            self._current = self._build()
        return self._current

    def segments(self) -> tuple[Term, ...]:
        """The places whose capacity counts: one per set of labels of nodes with the driver.

        A node that registered the driver without keys stands for the place without limits.
        """
        if self._csi_nodes is None or self._nodes is None:
            return ()
        found: dict[Term, None] = {}
        for csi_node in self._csi_nodes.items():
            keys, node = self._keys(csi_node), self._nodes.get(csi_node.name)
            if keys is not None and node is not None and set(keys) <= node.metadata.labels.keys():
                found[topology.term_of(node.metadata.labels, keys)] = None
        return tuple(found)

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call ``listener`` when keys or labels have changed anywhere."""
        self._listeners.append(listener)

    def _build(self) -> Nodes:
        if self._csi_nodes is None or self._nodes is None:
            return Nodes()
        registered = {one.name: self._keys(one) or () for one in self._csi_nodes.items()}
        labels = {one.name: one.metadata.labels for one in self._nodes.items()}
        return Nodes(registered, labels)

    def _keys(self, node: CSINode) -> tuple[str, ...] | None:
        """The topology keys of the driver on a node, None if it is not registered there."""
        driver = node.driver(self._driver_name)
        return None if driver is None else driver.topology_keys or ()

    def _csi_node_changed(self, old: CSINode | None, new: CSINode | None) -> None:
        if old is None or new is None or self._keys(old) != self._keys(new):
            self._changed()

    def _node_changed(self, old: Node | None, new: Node | None) -> None:
        if old is None or new is None or old.metadata.labels != new.metadata.labels:
            self._changed()

    def _changed(self) -> None:
        self._current = None
        for listener in self._listeners:
            listener()


class ClaimObserver:
    """``observe`` of the claims' loop. ``requeue`` takes keys that turn out to need a look."""

    def __init__(
        self,
        policy: Policy,
        caches: Caches,
        memory: Memory,
        places: Places,
        requeue: Callable[[str], None],
    ) -> None:
        self._policy = policy
        self._caches = caches
        self._memory = memory
        self._places = places
        self._requeue = requeue

    def __call__(self, key: str) -> ClaimSeen | None:
        """What there is to know of a claim; None if there is nothing to look at."""
        name, _, uid = key.partition("@")
        if uid:
            return self._orphan(uid)
        claim = self._caches.claims.get(name)
        for other in self._memory.left_behind(name, claim.uid if claim else ""):
            self._requeue(f"{name}@{other}")
        if claim is None:
            return None
        past = self._memory.past(claim.uid)
        return self._seen(claim, past, claim.uid, claim.storage_class_name)

    def _orphan(self, uid: str) -> ClaimSeen | None:
        past = self._memory.past(uid)
        if past.draft is None:
            return None
        return self._seen(None, past, uid, past.draft.class_name)

    def _seen(
        self, claim: PersistentVolumeClaim | None, past: Past, uid: str, class_name: str
    ) -> ClaimSeen:
        return ClaimSeen(
            claim=claim,
            storage_class=self._caches.classes.get(class_name),
            volume=self._volume(past, uid),
            past=past,
            nodes=self._places.current(),
            now=time.monotonic(),
        )

    def _volume(self, past: Past, uid: str) -> PersistentVolume | None:
        if past.draft is not None:
            return self._caches.volumes.get(past.draft.volume_name)
        try:
            return self._caches.volumes.get(drafts.volume_name(self._policy, uid))
        except naming.NamingError:
            return None  # deciding says so


class VolumeObserver:
    """``observe`` of the PersistentVolumes' loop."""

    def __init__(self, caches: Caches, memory: VolumeMemory) -> None:
        self._caches = caches
        self._memory = memory

    def __call__(self, key: str) -> VolumeSeen | None:
        """What there is to know of a PersistentVolume; None if it is gone."""
        volume = self._caches.volumes.get(key)
        if volume is None:
            return None
        attachments = self._caches.attachments
        attached = [] if attachments is None else attachments.by_index(BY_VOLUME, key)
        return VolumeSeen(
            volume=volume,
            storage_class=self._caches.classes.get(volume.storage_class_name),
            attached_to=tuple(sorted(one.spec.node_name for one in attached)),
            erased=self._memory.is_erased(volume.uid),
            told=self._memory.told(volume.uid),
            now=time.monotonic(),
        )


def attached_volume(attachment: VolumeAttachment) -> list[str]:
    """Index: the PersistentVolume that an attachment is of."""
    name = attachment.spec.source.persistent_volume_name
    return [name] if name else []
