"""What the outcome of an action means for its claim or PersistentVolume.

The question behind every failed call is whether the driver may still be at work. Only a code
that surely ends the work lets go of the draft; everything else keeps it, and the same request
is repeated until there is a sure answer, even if the claim is deleted meanwhile.
"""

import dataclasses
from typing import assert_never, cast

from bitts.core.plans import Done, Failed, RetryLater, WaitFor
from bitts.csi.failures import Finality, finality, is_infeasible
from bitts.kube.errors import AlreadyExists, ApiError, BadRequest, Forbidden, Invalid, NotFound
from bitts.kube.objects import PersistentVolume, PersistentVolumeClaim, VolumeAttributesClass
from bitts.rpc.codes import Code, RpcError
from bitts.volumes.secrets import Use

from csi_provisioner import decide, model, names
from csi_provisioner.model import ClaimSeen, Created, Draft, Policy, Verdict, VolumeSeen

ClaimOutcome = Done[model.ClaimAction] | Failed[model.ClaimAction]
VolumeOutcome = Done[model.VolumeAction] | Failed[model.VolumeAction]


def settle_claim(policy: Policy, seen: ClaimSeen, outcome: ClaimOutcome) -> decide.ClaimPlan:
    """What follows from one action on a claim; empty: go on with the plan."""
    if isinstance(outcome, Done):
        return _succeeded(policy, seen, outcome.action, outcome.value)
    return _failed(policy, seen, outcome.action, outcome.error)


def _succeeded(
    policy: Policy, seen: ClaimSeen, action: model.ClaimAction, value: object
) -> decide.ClaimPlan:
    match action:
        case model.ConfirmClaim():
            return _confirmed(seen, cast("PersistentVolumeClaim", value))
        case model.ConfirmClass(_, name):
            return [RetryLater(f"StorageClass {name} is there, the cache lags behind")]
        case model.ReadAttributesClass(draft):
            return _with_attributes(policy, draft, cast("VolumeAttributesClass", value))
        case model.CreateVolume(draft):
            return _answered(seen, draft, cast("Created | None", value))
        case model.DiscardVolume(draft, _, failure):
            return _give_up(seen, draft, Verdict.FINAL, failure)
        case model.SaveVolume(draft, created):
            return [_saved(draft, created)]
        case model.ReadVolume(draft, created):
            return _compared(seen, draft, created, cast("PersistentVolume", value))
        case model.UnselectNode(claim, node, failure):
            done = model.Conclude(claim, Verdict.RESCHEDULED, failure)
            return [done, WaitFor(f"the scheduler selects another node than {node}")]
        case model.NoteIntent() | model.Conclude():
            return []
        case _:
            assert_never(action)


def _failed(
    policy: Policy, seen: ClaimSeen, action: model.ClaimAction, error: Exception
) -> decide.ClaimPlan:
    match action:
        case model.ConfirmClaim() if isinstance(error, NotFound):
            return [WaitFor("the claim is gone, the cached one was an old view")]
        case model.ConfirmClass(claim, name) if isinstance(error, NotFound):
            return _without_class(claim, name)
        case model.ReadAttributesClass(draft):
            text = f"error getting VolumeAttributesClass {draft.attributes_class}: {error}"
            return _give_up(seen, draft, Verdict.UNREACHED, text)
        case model.CreateVolume(draft):
            return _not_created(policy, seen, draft, error)
        case model.DiscardVolume(draft, volume_id, failure):
            text = f"{failure}; deleting it failed too, volume {volume_id} is left: {error}"
            return _give_up(seen, draft, Verdict.BACKGROUND, text)
        case model.SaveVolume(draft, created) if isinstance(error, AlreadyExists):
            why = "a PersistentVolume of this name exists: whose is it?"
            return [model.ReadVolume(draft, created, why)]
        case model.SaveVolume(draft, created):
            return _not_saved(seen, draft, created, error)
        case model.UnselectNode(claim, node, failure):
            text = f"{failure}; taking node {node} off the claim failed: {error}"
            return [model.Conclude(claim, Verdict.FINAL, text), RetryLater(text)]
        case _:
            return [RetryLater(str(error))]


def _confirmed(seen: ClaimSeen, live: PersistentVolumeClaim) -> decide.ClaimPlan:
    if seen.claim is None or live.uid != seen.claim.uid:
        return [WaitFor("another claim has the name now, the cached one was an old view")]
    if live.spec.volume_name:
        return [WaitFor(f"the claim is bound to {live.spec.volume_name}, the cache lags behind")]
    return []


def _without_class(claim: model.ClaimRef, name: str) -> decide.ClaimPlan:
    text = (
        f'storageClass "{name}" not found: create it, or correct spec.storageClassName'
        " in a new claim"
    )
    return [model.Conclude(claim, Verdict.UNREACHED, text), WaitFor(text, decide.SLOW_RETRY)]


def _with_attributes(
    policy: Policy, draft: Draft, found: VolumeAttributesClass
) -> decide.ClaimPlan:
    if found.driver_name != policy.driver_name:
        text = (
            f"VolumeAttributesClass {found.name} is for driver {found.driver_name}, not for"
            f" {policy.driver_name}: name another one in spec.volumeAttributesClassName"
        )
        return [model.Conclude(draft.claim, Verdict.FINAL, text), RetryLater(text)]
    return decide.ask(dataclasses.replace(draft, mutable_parameters=found.parameters))


def _not_created(
    policy: Policy, seen: ClaimSeen, draft: Draft, error: Exception
) -> decide.ClaimPlan:
    if isinstance(error, ApiError):
        secret = draft.secrets[Use.PROVISION.name]
        text = f"error getting secret {secret.name} in namespace {secret.namespace}: {error}"
        return _give_up(seen, draft, Verdict.UNREACHED, text)
    text = str(error)
    if not isinstance(error, RpcError) or finality(error) is Finality.IN_BACKGROUND:
        return _give_up(seen, draft, Verdict.BACKGROUND, text)
    if is_infeasible(error.code):
        text = f"Volume provisioning failed with infeasible error. Retries will be delayed. {error}"
        return _give_up(seen, draft, Verdict.INFEASIBLE, text)
    if error.code is Code.RESOURCE_EXHAUSTED and _is_placed(policy, seen, draft):
        node = draft.selected_node
        return [model.UnselectNode(draft.claim, node, text, f"no room reachable from {node}")]
    return _give_up(seen, draft, Verdict.FINAL, text)


def _is_placed(policy: Policy, seen: ClaimSeen, draft: Draft) -> bool:
    """Whether the failed node is still the scheduler's choice, so that it may choose again."""
    if not policy.topology or not draft.selected_node or seen.claim is None:
        return False
    return seen.claim.metadata.annotations.get(names.SELECTED_NODE) == draft.selected_node


def _answered(seen: ClaimSeen, draft: Draft, created: Created | None) -> decide.ClaimPlan:
    if created is None or not created.volume_id:
        field = "volume" if created is None else "volume.volume_id"
        text = f"CSI driver's CreateVolumeResponse has no {field}: the driver has to set it"
        return _give_up(seen, draft, Verdict.BACKGROUND, text)
    if created.capacity_bytes != 0 and created.capacity_bytes < draft.required_bytes:
        text = (
            f"created volume capacity {created.capacity_bytes} less than requested capacity"
            f" {draft.required_bytes}"
        )
        return [model.DiscardVolume(draft, created.volume_id, text)]
    return [model.SaveVolume(draft, created, f"the driver made volume {created.volume_id}")]


def _saved(draft: Draft, created: Created) -> model.Conclude:
    text = f"Successfully provisioned volume {draft.volume_name}"
    return model.Conclude(draft.claim, Verdict.SUCCEEDED, text, draft, created)


def _not_saved(
    seen: ClaimSeen, draft: Draft, created: Created, error: Exception
) -> decide.ClaimPlan:
    """Try again for ever, but for an object that can never be, for a claim that is no more."""
    what = f"volume {created.volume_id} was created, but saving PersistentVolume"
    what = f"{what} {draft.volume_name} failed"
    if seen.claim is None and isinstance(error, BadRequest | Invalid):
        text = f"{what}, and its claim is gone: {error}"
        return [model.DiscardVolume(draft, created.volume_id, text)]
    text = f"{what}, it will be tried again: {error}"
    return _give_up(seen, draft, Verdict.BACKGROUND, text)


def _compared(
    seen: ClaimSeen, draft: Draft, created: Created, volume: PersistentVolume
) -> decide.ClaimPlan:
    """The name is taken: by our own write whose answer was lost, or by something else."""
    owner = volume.spec.claim_ref
    if owner is None or owner.uid != draft.claim.uid:
        whose = f"claim {owner.key}" if owner else "no claim"
        text = (
            f"PersistentVolume {volume.name} exists and belongs to {whose}: give volumes other"
            " names by --volume-name-prefix and --volume-name-uuid-length"
        )
        return _give_up(seen, draft, Verdict.FINAL, text)
    if _is_condemned(volume, created):
        text = f"the claim's life is over, PersistentVolume {volume.name} is being deleted"
        return [model.DiscardVolume(draft, created.volume_id, text)]
    return [_saved(draft, created)]


def _is_condemned(volume: PersistentVolume, created: Created) -> bool:
    """Whether the claim has come and gone, so that what was just created is surplus."""
    spec = volume.spec
    if volume.status.phase != "Released" or spec.persistent_volume_reclaim_policy != "Delete":
        return False
    return volume.deleting or spec.csi is None or spec.csi.volume_handle != created.volume_id


def _give_up(seen: ClaimSeen, draft: Draft, verdict: Verdict, text: str) -> decide.ClaimPlan:
    """End the attempt. For a deleted claim only a sure answer ends the work."""
    is_over = verdict in (Verdict.FINAL, Verdict.INFEASIBLE)
    if verdict is Verdict.INFEASIBLE:
        held_for = decide.held_for(draft.class_uid, draft.attributes_class)
        concluded = model.Conclude(draft.claim, verdict, text, draft, held_for=held_for)
    else:
        concluded = model.Conclude(draft.claim, verdict, text, draft)
    if is_over and seen.claim is None:
        return [concluded]
    if verdict is Verdict.INFEASIBLE:
        return [concluded, WaitFor(text, decide.SLOW_RETRY)]
    return [concluded, RetryLater(text)]


def settle_volume(seen: VolumeSeen, outcome: VolumeOutcome) -> decide.VolumePlan:
    """What follows from one action on a PersistentVolume; empty: go on with the plan."""
    if isinstance(outcome, Done):
        return []
    action, error = outcome.action, outcome.error
    if isinstance(action, model.EraseVolume):
        text = str(error)
        if isinstance(error, ApiError) and action.secret is not None:
            where = f"{action.secret.name} in namespace {action.secret.namespace}"
            text = f"error getting secret {where}: {error}"
        return [model.Report(text, is_failure=True), RetryLater(text)]
    if isinstance(error, NotFound):
        is_gone = isinstance(action, model.DeleteObject)
        return [model.CountDeleted("someone else deleted it")] if is_gone else []
    if isinstance(error, Forbidden):
        text = f"{error}; the service account needs patch and delete on persistentvolumes"
        return [model.Report(text, is_failure=True), RetryLater(text)]
    return [RetryLater(str(error))]
