"""Which change in a cache makes which object worth a look.

A change that no decision can depend on wakes nobody: status updates, events of other drivers'
claims, the echo of our own writes. So a failing claim is not tried at once again because
someone touched its labels, and a burst costs one look per claim.
"""

from bitts.core.workqueue import WorkQueue
from bitts.kube.objects import (
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
)

from csi_provisioner import decide
from csi_provisioner.memory import Memory, VolumeMemory
from csi_provisioner.model import Policy, VolumeSeen
from csi_provisioner.observe import BY_CLASS, BY_VOLUME, Caches, Places, attached_volume


class Wakes:
    """Puts keys into the two queues as caches change."""

    def __init__(
        self,
        *,
        policy: Policy,
        caches: Caches,
        places: Places,
        claims: WorkQueue,
        volumes: WorkQueue,
        memory: Memory,
        volume_memory: VolumeMemory,
    ) -> None:
        self._policy = policy
        self._caches = caches
        self._claims = claims
        self._volumes = volumes
        self._memory = memory
        self._volume_memory = volume_memory
        caches.claims.add_index(BY_CLASS, self._classes_of)
        caches.claims.subscribe(self._claim_changed, own_writes=lambda old, new: None)
        caches.volumes.subscribe(self._volume_changed, own_writes=self._volume_written)
        caches.classes.subscribe(self._class_changed)
        if caches.attachments is not None:
            caches.attachments.add_index(BY_VOLUME, attached_volume)
            caches.attachments.subscribe(self._attachment_changed)
        places.on_change(self._places_changed)

    def _is_pending(self, claim: PersistentVolumeClaim) -> bool:
        return not claim.spec.volume_name and decide.is_for(self._policy.driver_name, claim)

    def _classes_of(self, claim: PersistentVolumeClaim) -> list[str]:
        return [claim.storage_class_name] if self._is_pending(claim) else []

    def _claim_changed(
        self, old: PersistentVolumeClaim | None, new: PersistentVolumeClaim | None
    ) -> None:
        if new is None:
            if old is not None and (not old.spec.volume_name or self._has_draft(old.uid)):
                self._claims.add(old.key)
        elif self._is_pending(new) and (old is None or _asks_differently(old, new)):
            self._claims.add(new.key)

    def _volume_changed(self, old: PersistentVolume | None, new: PersistentVolume | None) -> None:
        if new is None:
            self._volume_written(old, new)
        elif self._needs_a_look(new):
            self._volumes.add(new.name)
        if old is None or new is None:
            self._wake_claim_of(new or old)

    def _volume_written(self, old: PersistentVolume | None, new: PersistentVolume | None) -> None:
        if new is None and old is not None:
            self._volume_memory.forget(old.uid)

    def _needs_a_look(self, volume: PersistentVolume) -> bool:
        # Deciding is cheaper than a turn in the queue, and most changes ask for nothing.
        return bool(decide.decide_volume(self._policy, VolumeSeen(volume)))

    def _wake_claim_of(self, volume: PersistentVolume | None) -> None:
        """A volume's coming may end a draft, its going may free a name."""
        owner = volume.spec.claim_ref if volume is not None else None
        if owner is None:
            return
        claim = self._caches.claims.get(owner.key)
        if (claim is not None and self._is_pending(claim)) or self._has_draft(owner.uid):
            self._claims.add(owner.key)

    def _has_draft(self, uid: str) -> bool:
        return self._memory.past(uid).draft is not None

    def _class_changed(self, old: StorageClass | None, new: StorageClass | None) -> None:
        if new is not None:
            for claim in self._caches.claims.by_index(BY_CLASS, new.name):
                self._claims.add(claim.key)

    def _attachment_changed(
        self, old: VolumeAttachment | None, new: VolumeAttachment | None
    ) -> None:
        if new is None and old is not None:
            for name in attached_volume(old):
                self._volumes.add(name)

    def _places_changed(self) -> None:
        for key in self._memory.take_awaiting_nodes():
            self._claims.add(key)


def _asks_differently(old: PersistentVolumeClaim, new: PersistentVolumeClaim) -> bool:
    return old.spec != new.spec or old.metadata.annotations != new.metadata.annotations
