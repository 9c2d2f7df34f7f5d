import dataclasses
from typing import Any

import pytest
from bitts.core.plans import Done, Failed, RetryLater, WaitFor
from bitts.kube import errors, objects
from bitts.rpc.codes import Code, RpcError, UnreadableError
from bitts.volumes.secrets import SecretRef
from csi_provisioner import decide, model, names, settle
from csi_provisioner.model import Conclude, Created, Verdict
from support import claims
from support.claims import CREATED, DRIVER, GIB, POLICY

DRAFT = claims.draft()
REF = DRAFT.claim
SEEN = claims.seen()
GONE = claims.seen(claim=None)
CREATE = model.CreateVolume(DRAFT, "why")
SAVE = model.SaveVolume(DRAFT, CREATED, "why")
READ = model.ReadVolume(DRAFT, CREATED, "why")
BROKEN = errors.ServerError("broken", status=500)
MISSING = errors.NotFound("not found", status=404)


def done(action: Any, value: object = None, seen: model.ClaimSeen = SEEN) -> decide.ClaimPlan:
    return settle.settle_claim(POLICY, seen, Done(action, value))


def failed(
    action: Any,
    error: Exception,
    seen: model.ClaimSeen = SEEN,
    policy: model.Policy = POLICY,
) -> decide.ClaimPlan:
    return settle.settle_claim(policy, seen, Failed(action, error))


def kinds(steps: decide.ClaimPlan) -> list[str]:
    return [type(step).__name__ for step in steps]


def verdict(steps: decide.ClaimPlan) -> Verdict:
    assert isinstance(steps[0], Conclude)
    return steps[0].verdict


@pytest.mark.parametrize(
    "action", [model.NoteIntent(DRAFT, "why"), Conclude(REF, Verdict.FINAL, "why")]
)
def test_steps_without_consequence_let_the_plan_go_on(action: model.ClaimAction) -> None:
    assert done(action) == []


def test_a_good_answer_is_saved() -> None:
    [step] = done(CREATE, CREATED)
    assert step == model.SaveVolume(DRAFT, CREATED, "the driver made volume vol-1")


def test_a_driver_may_leave_the_capacity_out() -> None:
    assert kinds(done(CREATE, Created("vol-1"))) == ["SaveVolume"]


def test_a_larger_volume_is_welcome() -> None:
    assert kinds(done(CREATE, Created("vol-1", 2 * GIB))) == ["SaveVolume"]


@pytest.mark.parametrize(
    ("answer", "field"), [(None, "no volume:"), (Created(""), "no volume.volume_id:")]
)
def test_an_answer_without_volume_leaves_the_work_open(answer: Created | None, field: str) -> None:
    report, retry = done(CREATE, answer)
    assert isinstance(report, Conclude)
    assert (report.verdict, report.draft) == (Verdict.BACKGROUND, DRAFT)
    assert field in report.reason
    assert isinstance(retry, RetryLater)


@pytest.mark.parametrize("size", [GIB - 1, -1])
def test_a_volume_that_is_too_small_is_discarded(size: int) -> None:
    [step] = done(CREATE, Created("vol-1", size))
    text = f"created volume capacity {size} less than requested capacity {GIB}"
    assert step == model.DiscardVolume(DRAFT, "vol-1", text)
    report, retry = done(step)
    assert report == Conclude(REF, Verdict.FINAL, text, DRAFT)
    assert retry == RetryLater(text)


def test_a_volume_that_cannot_be_discarded_is_not_lost_sight_of() -> None:
    discard = model.DiscardVolume(DRAFT, "vol-1", "too small")
    report, retry = failed(discard, RpcError(Code.INTERNAL, "no"), GONE)
    assert isinstance(report, Conclude)
    assert report.verdict is Verdict.BACKGROUND
    assert "volume vol-1 is left" in report.reason
    assert isinstance(retry, RetryLater)


OPEN = [Code.CANCELLED, Code.DEADLINE_EXCEEDED, Code.UNAVAILABLE, Code.ABORTED]


@pytest.mark.parametrize("code", Code, ids=lambda code: code.name)
def test_every_code_has_its_class(code: Code) -> None:
    steps = failed(CREATE, RpcError(code, "text"))
    if code in OPEN:
        assert verdict(steps) is Verdict.BACKGROUND
    elif code is Code.INVALID_ARGUMENT:
        assert verdict(steps) is Verdict.INFEASIBLE
    else:
        assert verdict(steps) is Verdict.FINAL
    expected = ["Conclude", "WaitFor" if code is Code.INVALID_ARGUMENT else "RetryLater"]
    assert kinds(steps) == expected


def test_the_event_carries_the_driver_s_own_words() -> None:
    report, _ = failed(CREATE, RpcError(Code.RESOURCE_EXHAUSTED, "full"))
    assert report.reason == "rpc error: code = ResourceExhausted desc = full"


def test_an_infeasible_request_is_held_for_a_while() -> None:
    report, wait = failed(CREATE, RpcError(Code.INVALID_ARGUMENT, "bad size"))
    text = (
        "Volume provisioning failed with infeasible error. Retries will be delayed."
        " rpc error: code = InvalidArgument desc = bad size"
    )
    assert report == Conclude(REF, Verdict.INFEASIBLE, text, DRAFT, held_for="class-uid/")
    assert wait == WaitFor(text, decide.SLOW_RETRY)


@pytest.mark.parametrize("code", Code, ids=lambda code: code.name)
def test_for_a_deleted_claim_only_a_sure_answer_ends_the_work(code: Code) -> None:
    steps = failed(CREATE, RpcError(code), GONE)
    assert kinds(steps) == (["Conclude", "RetryLater"] if code in OPEN else ["Conclude"])


def test_an_error_that_is_no_status_leaves_the_work_open() -> None:
    assert verdict(failed(CREATE, OSError("broken pipe"))) is Verdict.BACKGROUND


@pytest.mark.parametrize("code", [Code.INTERNAL, Code.RESOURCE_EXHAUSTED, Code.INVALID_ARGUMENT])
def test_an_answer_that_cannot_be_read_leaves_the_work_open(code: Code) -> None:
    """Whatever stands for it here, the driver did not say so: its volume may be there."""
    draft = claims.draft(selected_node="n1")
    steps = failed(model.CreateVolume(draft, "why"), UnreadableError(code), on_node("n1"), PLACED)
    assert verdict(steps) is Verdict.BACKGROUND
    assert isinstance(steps[-1], RetryLater)


def test_a_secret_that_cannot_be_read_never_reached_the_driver() -> None:
    draft = claims.draft(secrets={"PROVISION": SecretRef("ns", "s")})
    report, _ = failed(model.CreateVolume(draft, "why"), MISSING)
    assert isinstance(report, Conclude)
    assert report.verdict is Verdict.UNREACHED
    assert report.reason.startswith("error getting secret s in namespace ns: ")


PLACED = dataclasses.replace(POLICY, topology=True)
ON_NODE = claims.draft(selected_node="n1")
FULL = RpcError(Code.RESOURCE_EXHAUSTED, "full")


def on_node(node: str) -> model.ClaimSeen:
    annotations = {names.STORAGE_PROVISIONER: DRIVER, names.SELECTED_NODE: node}
    return claims.seen(claim=claims.claim(annotations=annotations))


def test_a_full_node_is_given_up() -> None:
    [step] = failed(model.CreateVolume(ON_NODE, "why"), FULL, on_node("n1"), PLACED)
    assert step == model.UnselectNode(REF, "n1", str(FULL), "no room reachable from n1")
    report, wait = done(step, seen=on_node("n1"))
    assert report == Conclude(REF, Verdict.RESCHEDULED, str(FULL))
    assert isinstance(wait, WaitFor)


@pytest.mark.parametrize(
    ("policy", "draft", "seen"),
    [
        (POLICY, ON_NODE, on_node("n1")),
        (PLACED, DRAFT, on_node("n1")),
        (PLACED, ON_NODE, GONE),
        (PLACED, ON_NODE, on_node("n2")),
        (PLACED, ON_NODE, SEEN),
    ],
    ids=["no topology", "no node", "claim deleted", "newer choice", "already unselected"],
)
def test_otherwise_a_full_backend_is_a_final_error(
    policy: model.Policy, draft: model.Draft, seen: model.ClaimSeen
) -> None:
    assert verdict(failed(model.CreateVolume(draft, "why"), FULL, seen, policy)) is Verdict.FINAL


def test_a_node_that_cannot_be_unselected_is_retried() -> None:
    report, retry = failed(model.UnselectNode(REF, "n1", "full", "why"), BROKEN)
    assert isinstance(report, Conclude)
    assert report.verdict is Verdict.FINAL
    assert "full; taking node n1 off the claim failed" in report.reason
    assert isinstance(retry, RetryLater)


def test_a_saved_volume_is_a_success() -> None:
    text = f"Successfully provisioned volume {claims.VOLUME_NAME}"
    assert done(SAVE) == [Conclude(REF, Verdict.SUCCEEDED, text, DRAFT, CREATED)]


@pytest.mark.parametrize("seen", [SEEN, GONE], ids=["claim there", "claim deleted"])
def test_a_save_is_tried_for_ever(seen: model.ClaimSeen) -> None:
    report, retry = failed(SAVE, BROKEN, seen)
    assert isinstance(report, Conclude)
    assert report.verdict is Verdict.BACKGROUND
    assert "volume vol-1 was created, but saving" in report.reason
    assert isinstance(retry, RetryLater)


def test_a_taken_name_is_looked_at() -> None:
    [step] = failed(SAVE, errors.AlreadyExists("taken", status=409))
    assert isinstance(step, model.ReadVolume)
    assert (step.draft, step.created) == (DRAFT, CREATED)


OTHER = objects.CSIPersistentVolumeSource(driver=DRIVER, volume_handle="vol-0")


@pytest.mark.parametrize(
    ("volume", "expected"),
    [
        (claims.volume(phase="Pending"), Verdict.SUCCEEDED),
        (claims.volume(), Verdict.SUCCEEDED),
        (claims.volume(deleting=True), Verdict.SUCCEEDED),
        (claims.volume(csi=OTHER), Verdict.SUCCEEDED),
        (claims.volume(phase="Released"), Verdict.SUCCEEDED),
        (
            claims.volume(
                phase="Released", deleting=True, persistent_volume_reclaim_policy="Retain"
            ),
            Verdict.SUCCEEDED,
        ),
        (claims.volume(phase="Released", deleting=True), "DiscardVolume"),
        (claims.volume(phase="Released", csi=OTHER), "DiscardVolume"),
        (claims.volume(phase="Released", csi=None), "DiscardVolume"),
        (claims.volume(uid="someone-else"), Verdict.FINAL),
        (claims.volume(claimed=False), Verdict.FINAL),
    ],
    ids=[
        "our lost write",
        "bound already",
        "bound and deleting",
        "bound to another handle",
        "released, same volume",
        "retained",
        "being deleted",
        "released, surplus volume",
        "released, no source",
        "another claim's",
        "nobody's",
    ],
)
def test_whose_name_it_is_decides(
    volume: objects.PersistentVolume, expected: Verdict | str
) -> None:
    steps = done(READ, volume)
    if isinstance(expected, str):
        assert kinds(steps) == [expected]
    else:
        assert verdict(steps) is expected


def test_an_object_that_vanished_meanwhile_is_saved_again() -> None:
    assert kinds(failed(READ, MISSING)) == ["RetryLater"]


def test_a_confirmed_claim_goes_on() -> None:
    confirm = model.ConfirmClaim(REF, "why")
    assert done(confirm, claims.claim()) == []


@pytest.mark.parametrize(
    ("value", "seen"),
    [
        (claims.claim(uid="another"), SEEN),
        (claims.claim(volume_name="pv"), SEEN),
        (claims.claim(), GONE),
    ],
    ids=["another claim", "bound", "deleted"],
)
def test_an_old_view_of_a_claim_stops_the_plan(
    value: objects.PersistentVolumeClaim, seen: model.ClaimSeen
) -> None:
    assert kinds(done(model.ConfirmClaim(REF, "why"), value, seen)) == ["WaitFor"]


@pytest.mark.parametrize(("error", "kind"), [(MISSING, "WaitFor"), (BROKEN, "RetryLater")])
def test_a_claim_that_cannot_be_confirmed(error: Exception, kind: str) -> None:
    assert kinds(failed(model.ConfirmClaim(REF, "why"), error)) == [kind]


SILVER = claims.draft(attributes_class="silver")


def test_an_attributes_class_hands_over_its_parameters() -> None:
    found = objects.VolumeAttributesClass(driver_name=DRIVER, parameters={"iops": "9"})
    note, create = done(model.ReadAttributesClass(SILVER, "why"), found)
    assert isinstance(note, model.NoteIntent)
    assert isinstance(create, model.CreateVolume)
    assert create.draft == dataclasses.replace(SILVER, mutable_parameters={"iops": "9"})


def test_an_attributes_class_of_another_driver_is_refused() -> None:
    found = objects.VolumeAttributesClass(driver_name="other")
    report, retry = done(model.ReadAttributesClass(SILVER, "why"), found)
    assert isinstance(report, Conclude)
    assert report.verdict is Verdict.FINAL
    assert "is for driver other" in report.reason
    assert isinstance(retry, RetryLater)


def test_an_attributes_class_that_cannot_be_read_is_named() -> None:
    report, _ = failed(model.ReadAttributesClass(SILVER, "why"), MISSING)
    assert isinstance(report, Conclude)
    assert report.verdict is Verdict.UNREACHED
    assert report.reason.startswith("error getting VolumeAttributesClass silver: ")


def test_without_a_note_the_driver_is_not_asked() -> None:
    assert kinds(failed(model.NoteIntent(DRAFT, "why"), BROKEN)) == ["RetryLater"]


def test_a_class_that_is_there_only_has_to_reach_the_cache() -> None:
    action = model.ConfirmClass(REF, "fast", "why")
    assert kinds(done(action, claims.storage_class())) == ["RetryLater"]
    assert kinds(failed(action, BROKEN)) == ["RetryLater"]


def test_a_class_that_is_not_there_is_reported_and_waited_for() -> None:
    report, wait = failed(model.ConfirmClass(REF, "fast", "why"), MISSING)
    assert isinstance(report, Conclude)
    assert (report.claim, report.verdict) == (REF, Verdict.UNREACHED)
    assert report.reason.startswith('storageClass "fast" not found: create it')
    assert wait == WaitFor(report.reason, decide.SLOW_RETRY)


@pytest.mark.parametrize("kind", [errors.Invalid, errors.BadRequest])
def test_a_volume_that_can_never_be_stored_is_discarded_with_its_claim(
    kind: type[errors.ApiError],
) -> None:
    refused = kind("spec.nodeAffinity: no", status=422)
    assert verdict(failed(SAVE, refused)) is Verdict.BACKGROUND, "somebody may still mend it"
    [step] = failed(SAVE, refused, GONE)
    assert isinstance(step, model.DiscardVolume)
    assert step.volume_id == "vol-1"
    assert "its claim is gone: spec.nodeAffinity: no" in step.reason
    assert kinds(failed(SAVE, BROKEN, GONE)) == ["Conclude", "RetryLater"]
