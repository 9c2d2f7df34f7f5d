"""The volume controller: binds claims to volumes, asks for provisioning, releases volumes.

Order of writes as in kube-controller-manager, so that a watcher sees the same intermediate
states: the volume first (claimRef, then phase), then the claim (volumeName, then status). A
claim whose class waits for the first consumer is left to the scheduler until a node is chosen.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from devcluster import admission, metadata
from devcluster import api as apis
from devcluster.loops import actions, facts, keyed, matching, names, views
from devcluster.loops.actions import Action, Emit, Patch
from devcluster.loops.facts import Obj


@dataclass(frozen=True, slots=True)
class ClaimSeen:
    """A claim with all that decides its fate."""

    claim: Obj
    named: Obj | None  # the volume in spec.volumeName
    candidates: Sequence[Obj]  # volumes reserved for it, and free ones of its class
    storage_class: Obj | None
    default_class: str  # its name, empty if there is none
    now: str
    waiting: Sequence[str] = ()  # names of pods that use it and have no node yet


@dataclass(frozen=True, slots=True)
class VolumeSeen:
    """A volume and the claim that its claimRef names (whatever that claim's UID)."""

    volume: Obj
    claim: Obj | None
    now: str


def decide_claim(seen: ClaimSeen) -> list[Action]:
    """What to write for a claim."""
    if facts.annotation(seen.claim, names.BIND_COMPLETED) is not None:
        return _bound_claim(seen)
    if seen.claim["spec"].get("volumeName"):
        return _claim_with_name(seen)
    if _lacks_class(seen.claim) and seen.default_class:
        body: Obj = {"spec": {"storageClassName": seen.default_class}}
        return [Patch(names.CLAIMS, facts.key(seen.claim), body)]
    return _unbound_claim(seen)


def _bound_claim(seen: ClaimSeen) -> list[Action]:
    claim, volume = seen.claim, seen.named
    if not claim["spec"].get("volumeName"):
        return _lost(claim, "ClaimLost", "Bound claim has lost reference to PersistentVolume.")
    if volume is None:
        return _lost(claim, "ClaimLost", "Bound claim has lost its PersistentVolume.")
    ref = volume["spec"].get("claimRef")
    if ref and ref.get("uid") != facts.uid(claim):
        text = "Two claims are bound to the same volume, this one is bound incorrectly"
        return _lost(claim, "ClaimMisbound", text)
    return bind(claim, volume, seen.now)


def _lost(claim: Obj, reason: str, message: str) -> list[Action]:
    if facts.phase(claim) == "Lost":
        return []
    body: Obj = {"status": {"phase": "Lost", "accessModes": None, "capacity": None}}
    return [
        Patch(names.CLAIMS, facts.key(claim), body, "status"),
        Emit(claim, reason, message, "Warning"),
    ]


def _claim_with_name(seen: ClaimSeen) -> list[Action]:
    """A user chose the volume, or an earlier pass was cut off between its writes."""
    claim, volume = seen.claim, seen.named
    if volume is None:
        return []
    if matching.is_reserved_for(volume, claim):
        return bind(claim, volume, seen.now)
    if volume["spec"].get("claimRef"):
        text = f'volume "{claim["spec"]["volumeName"]}" already bound to a different claim.'
        return [Emit(claim, "FailedBinding", text, "Warning")]
    if problem := matching.mismatch(claim, volume):
        text = f'Cannot bind to requested volume "{volume["metadata"]["name"]}": {problem}'
        return [Emit(claim, "VolumeMismatch", text, "Warning")]
    return bind(claim, volume, seen.now)


def _unbound_claim(seen: ClaimSeen) -> list[Action]:
    claim = seen.claim
    delayed = (seen.storage_class or {}).get("volumeBindingMode") == "WaitForFirstConsumer"
    candidates = [
        volume
        for volume in seen.candidates
        if not delayed or matching.is_reserved_for(volume, claim)
    ]
    if volume := matching.best(claim, candidates):
        return bind(claim, volume, seen.now)
    if delayed and facts.annotation(claim, names.SELECTED_NODE) is None:
        return [_wait_for_pod(seen)]
    if not facts.class_name(claim):
        text = "no persistent volumes available for this claim and no storage class is set"
        return [Emit(claim, "FailedBinding", text)]
    return _ask_for_provisioning(seen)


def _wait_for_pod(seen: ClaimSeen) -> Emit:
    if seen.waiting:
        text = f"waiting for pod {','.join(sorted(seen.waiting))} to be scheduled"
        return Emit(seen.claim, "WaitForPodScheduled", text)
    text = "waiting for first consumer to be created before binding"
    return Emit(seen.claim, "WaitForFirstConsumer", text)


def _ask_for_provisioning(seen: ClaimSeen) -> list[Action]:
    claim, storage_class = seen.claim, seen.storage_class
    if storage_class is None:
        text = f'storageclass.storage.k8s.io "{facts.class_name(claim)}" not found'
        return [Emit(claim, "ProvisioningFailed", text, "Warning")]
    provisioner = storage_class["provisioner"]
    if provisioner == names.NO_PROVISIONER:
        text = "no volume of this class is free, and the class cannot provision one"
        return [Emit(claim, "ProvisioningFailed", text, "Warning")]
    if facts.annotation(claim, names.PROVISIONER) == provisioner:
        return []
    marks = {names.PROVISIONER_BETA: provisioner, names.PROVISIONER: provisioner}
    text = (
        f"Waiting for a volume to be created by the external provisioner '{provisioner}'. "
        "Check that it is running and registered."
    )
    return [
        Patch(names.CLAIMS, facts.key(claim), {"metadata": {"annotations": marks}}),
        Emit(claim, "ExternalProvisioning", text),
    ]


def bind(claim: Obj, volume: Obj, now: str) -> list[Action]:
    """Whatever is still missing of the bond, the volume's part first."""
    return [
        *_bind_volume(claim, volume),
        *_set_phase(volume, "Bound", now),
        *_bind_claim(claim, volume),
        *_claim_status(claim, volume),
    ]


def _bind_volume(claim: Obj, volume: Obj) -> list[Action]:
    ref = volume["spec"].get("claimRef") or {}
    if ref.get("uid") == facts.uid(claim):
        return []
    body: Obj = {"spec": {"claimRef": claim_ref(claim)}}
    if not matching.is_reserved_for(volume, claim):
        body["metadata"] = {"annotations": {names.BOUND_BY_CONTROLLER: "yes"}}
    return [Patch(names.VOLUMES, facts.key(volume), body)]


def claim_ref(claim: Obj) -> Obj:
    """The reference by which a volume names its claim."""
    meta = claim["metadata"]
    return {
        "kind": "PersistentVolumeClaim",
        "apiVersion": "v1",
        "namespace": meta["namespace"],
        "name": meta["name"],
        "uid": meta["uid"],
        "resourceVersion": meta["resourceVersion"],
    }


def _bind_claim(claim: Obj, volume: Obj) -> list[Action]:
    body: Obj = {}
    marks: dict[str, str] = {}
    if claim["spec"].get("volumeName") != volume["metadata"]["name"]:
        body["spec"] = {"volumeName": volume["metadata"]["name"]}
        marks[names.BOUND_BY_CONTROLLER] = "yes"
    if facts.annotation(claim, names.BIND_COMPLETED) is None:
        marks[names.BIND_COMPLETED] = "yes"
    if not marks:
        return []
    return [Patch(names.CLAIMS, facts.key(claim), {**body, "metadata": {"annotations": marks}})]


def _claim_status(claim: Obj, volume: Obj) -> list[Action]:
    status = claim.get("status") or {}
    wanted: Obj = {"phase": "Bound", "accessModes": volume["spec"]["accessModes"]}
    if facts.phase(claim) != "Bound" or "capacity" not in status:
        wanted["capacity"] = volume["spec"]["capacity"]  # later growth is the resizer's to report
    if attributes_class := volume["spec"].get("volumeAttributesClassName"):
        wanted.setdefault("currentVolumeAttributesClassName", attributes_class)
    if all(status.get(name) == value for name, value in wanted.items()):
        return []
    return [Patch(names.CLAIMS, facts.key(claim), {"status": wanted}, "status")]


def _set_phase(volume: Obj, phase: str, now: str, message: str | None = None) -> list[Action]:
    if facts.phase(volume) == phase:
        return []
    status = {"phase": phase, "message": message, "lastPhaseTransitionTime": now}
    return [Patch(names.VOLUMES, facts.key(volume), {"status": status}, "status")]


def decide_volume(seen: VolumeSeen) -> list[Action]:
    """What to write for a volume; an incomplete bond is the claim's pass to finish."""
    volume = seen.volume
    ref = volume["spec"].get("claimRef") or {}
    if not ref.get("uid"):
        return _set_phase(volume, "Available", seen.now)
    claim = seen.claim
    if claim is None or facts.uid(claim) != ref["uid"]:
        return _release(volume, seen.now)
    bound_to = claim["spec"].get("volumeName")
    if not bound_to:
        return []
    if bound_to == volume["metadata"]["name"]:
        return _set_phase(volume, "Bound", seen.now)
    dynamic = facts.annotation(volume, names.PROVISIONED_BY) is not None
    if dynamic and volume["spec"].get("persistentVolumeReclaimPolicy") == "Delete":
        return _release(volume, seen.now)
    return _unbind(volume, seen.now)


def _release(volume: Obj, now: str) -> list[Action]:
    """Its claim is gone: Retain leaves it at that, Delete is the external provisioner's."""
    if facts.phase(volume) in {"Released", "Failed"}:
        return []
    deletes = volume["spec"].get("persistentVolumeReclaimPolicy") == "Delete"
    external = "csi" in volume["spec"] or facts.annotation(volume, names.PROVISIONED_BY)
    if external or not deletes:
        return _set_phase(volume, "Released", now)
    name = volume["metadata"]["name"]
    text = f'no plugin can delete volume "{name}": it is no CSI volume and was not provisioned'
    return [
        *_set_phase(volume, "Failed", now, text),
        Emit(volume, "VolumeFailedDelete", text, "Warning"),
    ]


def _unbind(volume: Obj, now: str) -> list[Action]:
    """Its claim went elsewhere: undo our own reservation, keep a user's."""
    body: Obj = {"spec": {"claimRef": {"uid": None, "resourceVersion": None}}}
    if facts.annotation(volume, names.BOUND_BY_CONTROLLER) is not None:
        marks = {names.BOUND_BY_CONTROLLER: None}
        body = {"spec": {"claimRef": None}, "metadata": {"annotations": marks}}
    return [
        Patch(names.VOLUMES, facts.key(volume), body),
        *_set_phase(volume, "Available", now),
    ]


def _lacks_class(claim: Obj) -> bool:
    declared = facts.annotation(claim, names.CLASS_BETA) is not None
    return not declared and claim["spec"].get("storageClassName") is None


class Binder:
    """Feeds claims (``ns/name``) and volumes (``name``) through one queue."""

    def __init__(self, api: apis.Api, seen: views.Views) -> None:
        self._views = seen
        self.loop = keyed.KeyedLoop("binder", self._sync)
        self._performer = actions.Performer(api, "persistentvolume-controller", self.loop.decided)
        seen.claims.listen(self._claim_changed)
        seen.volumes.listen(self._volume_changed)
        seen.classes.listen(self._class_changed)
        for obj in [*seen.claims.all(), *seen.volumes.all()]:
            self.loop.add(facts.key(obj))

    def _claim_changed(self, old: Obj | None, new: Obj | None) -> None:
        if new:
            self.loop.add(facts.key(new))
            return
        if old:
            for volume in self._views.volumes.keys("claim", facts.key(old)):
                self.loop.add(volume)

    def _volume_changed(self, old: Obj | None, new: Obj | None) -> None:
        volume = new or old or {}
        if new:
            self.loop.add(facts.key(new))
        if claim := facts.claim_ref_key(volume):
            self.loop.add(claim)
        elif new and facts.phase(new) == "Available":
            self._wake_pending(facts.class_name(new))
        for key in self._views.claims.keys("volume", volume["metadata"]["name"]):
            self.loop.add(key)

    def _class_changed(self, _old: Obj | None, new: Obj | None) -> None:
        if new:
            self._wake_pending(new["metadata"]["name"])
            self._wake_pending("")

    def _wake_pending(self, class_name: str) -> None:
        for key in self._views.claims.keys("pending_class", class_name):
            self.loop.add(key)

    def _sync(self, key: str) -> float | None:
        if "/" in key:
            return self._sync_claim(key)
        if (volume := self._views.volumes.get(key)) is None:
            return None
        claim = self._views.claims.get(facts.claim_ref_key(volume) or "")
        now = metadata.now()
        return self._performer.perform(decide_volume(VolumeSeen(volume, claim, now)))

    def _sync_claim(self, key: str) -> float | None:
        if (claim := self._views.claims.get(key)) is None:
            return None
        return self._performer.perform(decide_claim(self._observe(claim)))

    def _observe(self, claim: Obj) -> ClaimSeen:
        key, class_name = facts.key(claim), facts.class_name(claim)
        volumes, classes = self._views.volumes, self._views.classes
        return ClaimSeen(
            claim=claim,
            named=volumes.get(claim["spec"].get("volumeName") or ""),
            candidates=[*volumes.by("claim", key), *volumes.by("free_class", class_name)],
            storage_class=classes.get(class_name),
            default_class=admission.default_class(classes.all()),
            now=metadata.now(),
            waiting=self._waiting(key),
        )

    def _waiting(self, claim: str) -> list[str]:
        pods = self._views.pods.by("claim", claim)
        return [pod["metadata"]["name"] for pod in pods if not facts.node_name(pod)]
