"""What should happen now to a claim or a PersistentVolume, from what is seen alone.

Claims, in this order: finish what the driver may have begun, whatever became of the claim;
leave alone what is not ours or not yet ready; ask for the volume. One rule stands above all: a
volume that may exist is never lost sight of.
"""

from collections.abc import Sequence

from bitts.core.plans import RetryLater, WaitFor
from bitts.kube.objects import PersistentVolume, PersistentVolumeClaim, StorageClass
from bitts.volumes import secrets

from csi_provisioner import drafts, model, names, topology
from csi_provisioner.model import ClaimSeen, Draft, Policy, Verdict, VolumeSeen

ClaimPlan = Sequence[model.ClaimAction | RetryLater | WaitFor]
VolumePlan = Sequence[model.VolumeAction | RetryLater | WaitFor]
Step = model.ClaimAction | model.VolumeAction | RetryLater | WaitFor

SLOW_RETRY = 300.0
"""Seconds between attempts that cannot succeed until someone changes something (upstream's)."""


def decide_claim(policy: Policy, seen: ClaimSeen) -> ClaimPlan:
    """Plan for one claim."""
    if seen.past.draft is not None:
        return _resume(seen, seen.past.draft)
    claim, storage_class = seen.claim, seen.storage_class
    if claim is None or claim.spec.volume_name:
        return []
    if not is_for(policy.driver_name, claim):
        return [WaitFor(f"annotation {names.STORAGE_PROVISIONER} does not name this driver")]
    if storage_class is None:
        return _without_class(claim)
    if wait := _not_yet(policy, claim, storage_class):
        return [wait]
    if seen.volume is not None:
        return _name_taken(claim, seen.volume)
    if claim.spec.data_source is not None or claim.spec.data_source_ref is not None:
        return _with_source(claim)
    hold = seen.past.held_until - seen.now
    if hold > 0 and seen.past.held_for == _request_of(policy, claim, storage_class):
        return [WaitFor("the same request was infeasible", hold)]
    return _provision(policy, seen, claim, storage_class)


def is_for(driver_name: str, claim: PersistentVolumeClaim) -> bool:
    """Whether the cluster asks this driver's provisioner for the claim's volume."""
    annotations = claim.metadata.annotations
    wanted = annotations.get(names.STORAGE_PROVISIONER)
    if wanted is None:
        wanted = annotations.get(names.BETA_STORAGE_PROVISIONER)
    return wanted == driver_name


def held_for(class_uid: str, attributes_class: str) -> str:
    """What an infeasible request depended on and can still change."""
    return f"{class_uid}/{attributes_class}"


def _request_of(policy: Policy, claim: PersistentVolumeClaim, storage_class: StorageClass) -> str:
    return held_for(storage_class.uid, drafts.attributes_class_name(policy, claim))


def _resume(seen: ClaimSeen, draft: Draft) -> ClaimPlan:
    volume, created = seen.volume, seen.past.created
    if volume is not None and _claim_uid(volume) == draft.claim.uid:
        text = f"PersistentVolume {volume.name} is there"
        return [model.Conclude(draft.claim, Verdict.FOUND, text, draft)]
    if created is not None:
        return [model.SaveVolume(draft, created, "the volume exists, its object does not yet")]
    why = "the driver may still be working on the volume"
    if seen.claim is None:
        why += ", and the claim is gone: finish it so that it can be deleted"
    return [model.NoteIntent(draft, why), model.CreateVolume(draft, why)]


def _without_class(claim: PersistentVolumeClaim) -> ClaimPlan:
    name = claim.storage_class_name
    if not name:
        text = "the claim names no StorageClass: set spec.storageClassName in a new claim"
        return [_unreached(claim, text), WaitFor(text, SLOW_RETRY)]
    why = f"the cache knows no StorageClass {name}"
    return [model.ConfirmClass(drafts.reference(claim), name, why)]


def _not_yet(
    policy: Policy, claim: PersistentVolumeClaim, storage_class: StorageClass
) -> WaitFor | None:
    if storage_class.provisioner != policy.driver_name:
        return WaitFor(
            f"StorageClass {storage_class.name} names provisioner {storage_class.provisioner}"
        )
    is_late = storage_class.volume_binding_mode == "WaitForFirstConsumer"
    if is_late and not claim.metadata.annotations.get(names.SELECTED_NODE):
        return WaitFor("no node is selected yet: a pod has to use the claim first")
    return None


def _name_taken(claim: PersistentVolumeClaim, volume: PersistentVolume) -> ClaimPlan:
    owner = volume.spec.claim_ref
    is_same = owner is not None and owner.key == claim.key and owner.uid in ("", claim.uid)
    if is_same:
        return [WaitFor(f"PersistentVolume {volume.name} is there and waits to be bound")]
    text = (
        f"PersistentVolume {volume.name} is there, but not for this claim: delete it, or give"
        " volumes other names by --volume-name-prefix and --volume-name-uuid-length"
    )
    return [_unreached(claim, text), RetryLater(text)]


def _with_source(claim: PersistentVolumeClaim) -> ClaimPlan:
    # The server mirrors the two fields; only dataSourceRef can name another namespace.
    source = claim.spec.data_source_ref or claim.spec.data_source
    assert source is not None
    text = (
        f"spec.dataSource {source.kind} {source.name!r}: this version of {names.PROGRAM} does not"
        " provision from data sources yet; nothing was created"
    )
    return [_unreached(claim, text), WaitFor(text, SLOW_RETRY)]


def _provision(
    policy: Policy, seen: ClaimSeen, claim: PersistentVolumeClaim, storage_class: StorageClass
) -> ClaimPlan:
    try:
        draft = drafts.draft(policy, claim, storage_class, seen.nodes)
    except topology.NodeVanishedError as error:
        return _unplaceable(claim, f"error generating accessibility requirements: {error}")
    except drafts.RefusedError as error:
        verdict = Verdict.FINAL if error.is_final else Verdict.UNREACHED
        text, ref = str(error), drafts.reference(claim)
        concluded = model.Conclude(ref, verdict, text, awaits_nodes=error.awaits_nodes)
        return [concluded, RetryLater(text)]
    plan: list[model.ClaimAction] = []
    if seen.past.finished:
        plan.append(model.ConfirmClaim(draft.claim, "it was provisioned before and looks unbound"))
    if draft.attributes_class:
        why = f"the claim names VolumeAttributesClass {draft.attributes_class}"
        return [*plan, model.ReadAttributesClass(draft, why)]
    return [*plan, *ask(draft)]


def ask(draft: Draft) -> list[model.ClaimAction]:
    """The two steps that begin a volume: first the note, so that no crash can leak it."""
    why = f"the claim is unbound and its class is {draft.class_name}"
    return [model.NoteIntent(draft, why), model.CreateVolume(draft, why)]


def _unplaceable(claim: PersistentVolumeClaim, text: str) -> ClaimPlan:
    ref = drafts.reference(claim)
    node = claim.metadata.annotations.get(names.SELECTED_NODE)
    if not node:
        return [model.Conclude(ref, Verdict.FINAL, text), RetryLater(text)]
    return [model.UnselectNode(ref, node, text, f"node {node} cannot be used")]


def _unreached(claim: PersistentVolumeClaim, text: str) -> model.Conclude:
    return model.Conclude(drafts.reference(claim), Verdict.UNREACHED, text)


def _claim_uid(volume: PersistentVolume) -> str:
    return volume.spec.claim_ref.uid if volume.spec.claim_ref else ""


def decide_volume(policy: Policy, seen: VolumeSeen) -> VolumePlan:
    """Plan for one PersistentVolume: keep its finalizer right, delete what was released."""
    volume = seen.volume
    if not owns(policy.driver_name, volume):
        return []
    if seen.erased:
        return _finish_deletion(volume)
    if upkeep := _finalizer_upkeep(volume):
        return [upkeep]
    if not _is_to_be_deleted(volume):
        return []
    try:
        erase = _erase(policy, seen)
    except drafts.RefusedError as error:
        return [model.Report(str(error), is_failure=True), RetryLater(str(error))]
    if seen.attached_to:
        return _wait_for_detach(seen)
    return [erase, *_finish_deletion(volume)]


def owns(driver_name: str, volume: PersistentVolume) -> bool:
    """Whether this driver's provisioner looks after the PersistentVolume, static ones too."""
    provisioned_by = volume.metadata.annotations.get(names.PROVISIONED_BY)
    if provisioned_by is not None:
        return provisioned_by == driver_name
    return volume.spec.csi is not None and volume.spec.csi.driver == driver_name


def _finalizer_upkeep(volume: PersistentVolume) -> model.VolumeAction | None:
    policy = volume.spec.persistent_volume_reclaim_policy
    has_finalizer = names.FINALIZER in volume.metadata.finalizers
    is_bound = volume.status.phase == "Bound"
    if policy == "Delete" and is_bound and not volume.deleting and not has_finalizer:
        return model.AddFinalizer("the reclaim policy is Delete: the volume must go first")
    if policy in ("Retain", "Recycle") and has_finalizer:
        return model.RemoveFinalizer(f"the reclaim policy is {policy}: the volume stays")
    return None


def _is_to_be_deleted(volume: PersistentVolume) -> bool:
    if volume.status.phase != "Released":
        return False
    if volume.spec.persistent_volume_reclaim_policy != "Delete":
        return False
    return not volume.deleting or names.FINALIZER in volume.metadata.finalizers


def _erase(policy: Policy, seen: VolumeSeen) -> model.EraseVolume:
    csi = seen.volume.spec.csi
    if csi is None:
        raise drafts.RefusedError("invalid CSI PV: it has no spec.csi to take the volume from")
    drafts.check_driver(policy)
    secret = _deletion_secret(seen)
    return model.EraseVolume(csi.volume_handle, secret, "the PersistentVolume is released")


def _deletion_secret(seen: VolumeSeen) -> secrets.SecretRef | None:
    volume, storage_class = seen.volume, seen.storage_class
    name = volume.metadata.annotations.get(names.DELETION_SECRET_NAME)
    namespace = volume.metadata.annotations.get(names.DELETION_SECRET_NAMESPACE)
    if name is not None and namespace is not None:
        return secrets.SecretRef(namespace, name) if name and namespace else None
    claim = volume.spec.claim_ref
    if storage_class is None or claim is None:
        return None
    owner = secrets.Owner(volume.name, claim.namespace, claim.name)
    try:
        return secrets.reference(secrets.Use.PROVISION, storage_class.parameters, owner)
    except secrets.SecretReferenceError as error:
        raise drafts.RefusedError(f"StorageClass {storage_class.name}: {error}") from None


def _wait_for_detach(seen: VolumeSeen) -> VolumePlan:
    text = (
        f"persistentvolume {seen.volume.name} is still attached to node {seen.attached_to[0]},"
        " waiting for detach"
    )
    told = [] if seen.told == text else [model.Report(text, is_failure=False)]
    return [*told, WaitFor(text)]


def _finish_deletion(volume: PersistentVolume) -> list[model.VolumeAction]:
    """After the backing volume is gone: the object first, so that the finalizer holds till then."""
    steps: list[model.VolumeAction] = []
    if not volume.deleting:
        steps.append(model.DeleteObject("its backing volume is deleted"))
    if names.FINALIZER in volume.metadata.finalizers:
        steps.append(model.RemoveFinalizer("its backing volume is deleted"))
    return [*steps, model.CountDeleted("nothing is left of it")]
