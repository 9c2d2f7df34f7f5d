import dataclasses
from typing import Any

import pytest
from bitts.core.plans import RetryLater, WaitFor
from bitts.kube import objects
from csi_provisioner import decide, model, names, topology
from csi_provisioner.model import ClaimSeen, Past, Verdict
from support import claims
from support.claims import CREATED, DRIVER, NOW, POLICY

REF = claims.draft().claim
SNAPSHOT = objects.TypedReference(kind="VolumeSnapshot", name="snap")
LATE = claims.storage_class(volume_binding_mode="WaitForFirstConsumer")


def plan(**fields: Any) -> decide.ClaimPlan:
    return decide.decide_claim(POLICY, claims.seen(**fields))


def kinds(steps: decide.ClaimPlan) -> list[str]:
    return [type(step).__name__ for step in steps]


def test_a_ready_claim_is_noted_then_asked_for() -> None:
    why = "the claim is unbound and its class is fast"
    draft = claims.draft()
    assert plan() == [model.NoteIntent(draft, why), model.CreateVolume(draft, why)]


@pytest.mark.parametrize(
    "fields",
    [{"claim": None}, {"claim": claims.claim(volume_name="pv")}],
    ids=["deleted", "bound"],
)
def test_nothing_is_left_to_do(fields: dict[str, Any]) -> None:
    assert plan(**fields) == []


@pytest.mark.parametrize(
    ("annotations", "is_ours"),
    [
        ({names.STORAGE_PROVISIONER: DRIVER}, True),
        ({names.BETA_STORAGE_PROVISIONER: DRIVER}, True),
        ({names.STORAGE_PROVISIONER: "other", names.BETA_STORAGE_PROVISIONER: DRIVER}, False),
        ({names.STORAGE_PROVISIONER: ""}, False),
        ({}, False),
    ],
)
def test_the_cluster_says_whose_claim_it_is(annotations: dict[str, str], is_ours: bool) -> None:
    steps = kinds(plan(claim=claims.claim(annotations=annotations)))
    assert steps == (["NoteIntent", "CreateVolume"] if is_ours else ["WaitFor"])


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"storage_class": claims.storage_class(provisioner="other")}, "names provisioner other"),
        ({"storage_class": LATE}, "no node is selected yet"),
        ({"volume": claims.volume(phase="Available")}, "waits to be bound"),
        ({"volume": claims.volume(uid="")}, "waits to be bound"),
    ],
    ids=["other provisioner", "no consumer", "saved", "pre-bound by an admin"],
)
def test_what_has_to_happen_first_is_said(fields: dict[str, Any], text: str) -> None:
    [step] = plan(**fields)
    assert isinstance(step, WaitFor)
    assert text in step.reason
    assert step.delay is None


def test_with_a_selected_node_the_wait_is_over() -> None:
    annotations = {names.STORAGE_PROVISIONER: DRIVER, names.SELECTED_NODE: "n1"}
    steps = plan(storage_class=LATE, claim=claims.claim(annotations=annotations))
    assert kinds(steps) == ["NoteIntent", "CreateVolume"]


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        (
            {"storage_class": None, "claim": claims.claim(storage_class_name="")},
            "names no StorageClass",
        ),
        ({"claim": claims.claim(data_source=SNAPSHOT)}, "spec.dataSource VolumeSnapshot 'snap'"),
        ({"claim": claims.claim(data_source_ref=SNAPSHOT)}, "nothing was created"),
    ],
    ids=["no class", "data source", "data source reference"],
)
def test_what_only_people_can_change_is_reported_and_tried_slowly(
    fields: dict[str, Any], text: str
) -> None:
    report, wait = plan(**fields)
    assert isinstance(report, model.Conclude)
    assert (report.claim, report.verdict) == (REF, Verdict.UNREACHED)
    assert text in report.reason
    assert wait == WaitFor(report.reason, decide.SLOW_RETRY)


def test_a_class_that_the_cache_lacks_is_asked_for_before_anybody_is_told() -> None:
    [step] = plan(storage_class=None)
    assert step == model.ConfirmClass(REF, "fast", "the cache knows no StorageClass fast")


@pytest.mark.parametrize(
    "volume",
    [claims.volume(uid="someone-else"), claims.volume(claimed=False)],
    ids=["another claim's", "nobody's"],
)
def test_a_taken_name_is_never_shared(volume: objects.PersistentVolume) -> None:
    report, retry = plan(volume=volume)
    assert isinstance(report, model.Conclude)
    assert report.verdict is Verdict.UNREACHED
    assert "not for this claim" in report.reason
    assert isinstance(retry, RetryLater)


@pytest.mark.parametrize(
    ("past", "held"),
    [
        (Past(held_until=NOW + 60, held_for="class-uid/"), True),
        (Past(held_until=NOW, held_for="class-uid/"), False),
        (Past(held_until=NOW + 60, held_for="older-class/"), False),
        (Past(held_until=NOW + 60, held_for="class-uid/silver"), False),
    ],
    ids=["held", "over", "class made anew", "other attributes class"],
)
def test_an_infeasible_request_is_held_until_it_changes(past: Past, held: bool) -> None:
    steps = plan(past=past)
    assert (steps == [WaitFor("the same request was infeasible", 60.0)]) is held


def test_a_refused_claim_is_reported_and_retried() -> None:
    steps = plan(claim=claims.claim(access_modes=("Sometimes",)))
    assert kinds(steps) == ["Conclude", "RetryLater"]
    assert isinstance(steps[0], model.Conclude)
    assert steps[0].verdict is Verdict.FINAL


def test_a_refusal_that_leaves_the_past_open_says_so() -> None:
    parameters = {"csi.storage.k8s.io/secret-name": "x"}
    report, _ = plan(storage_class=claims.storage_class(parameters=parameters))
    assert isinstance(report, model.Conclude)
    assert report.verdict is Verdict.UNREACHED


def test_a_claim_that_was_finished_before_is_confirmed_first() -> None:
    steps = plan(past=Past(finished=True))
    assert kinds(steps) == ["ConfirmClaim", "NoteIntent", "CreateVolume"]


def test_an_attributes_class_is_read_before_anything_is_noted() -> None:
    claim = claims.claim(volume_attributes_class_name="silver")
    assert kinds(plan(claim=claim)) == ["ReadAttributesClass"]
    steps = plan(claim=claim, past=Past(finished=True))
    assert kinds(steps) == ["ConfirmClaim", "ReadAttributesClass"]


def test_a_claim_without_reachable_nodes_is_woken_by_one() -> None:
    policy = dataclasses.replace(POLICY, topology=True)
    report, retry = decide.decide_claim(policy, claims.seen())
    assert isinstance(report, model.Conclude)
    assert report.awaits_nodes
    assert isinstance(retry, RetryLater)


def placed(annotations: dict[str, str]) -> ClaimSeen:
    given = {names.STORAGE_PROVISIONER: DRIVER} | annotations
    return claims.seen(claim=claims.claim(annotations=given), nodes=topology.Nodes())


def test_a_vanished_node_is_unselected() -> None:
    policy = dataclasses.replace(POLICY, topology=True)
    [step] = decide.decide_claim(policy, placed({names.SELECTED_NODE: "gone"}))
    assert isinstance(step, model.UnselectNode)
    assert (step.claim, step.node) == (REF, "gone")
    assert "error generating accessibility requirements" in step.failure


def test_the_alpha_annotation_is_left_alone() -> None:
    policy = dataclasses.replace(POLICY, topology=True)
    steps = decide.decide_claim(policy, placed({names.ALPHA_SELECTED_NODE: "gone"}))
    assert kinds(steps) == ["Conclude", "RetryLater"]


DRAFT = claims.draft(required_bytes=5)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"claim": None, "storage_class": None},
        {"claim": claims.claim(volume_name="another")},
        {"claim": claims.claim(annotations={})},
        {"storage_class": claims.storage_class(provisioner="other")},
        {"volume": claims.volume(uid="someone-else")},
        {"volume": claims.volume(claimed=False)},
    ],
    ids=["waiting", "deleted", "bound elsewhere", "unowned", "other class", "taken", "unclaimed"],
)
def test_what_may_be_in_progress_is_repeated_word_for_word(fields: dict[str, Any]) -> None:
    note, create = plan(past=Past(draft=DRAFT), **fields)
    assert isinstance(note, model.NoteIntent)
    assert isinstance(create, model.CreateVolume)
    assert note.draft == create.draft == DRAFT
    assert ("claim is gone" in create.reason) is (fields.get("claim", "") is None)


def test_a_created_volume_is_saved_whatever_became_of_the_claim() -> None:
    [step] = plan(claim=None, past=Past(draft=DRAFT, created=CREATED))
    assert isinstance(step, model.SaveVolume)
    assert (step.draft, step.created) == (DRAFT, CREATED)


def test_a_volume_that_another_process_saved_ends_the_work() -> None:
    [step] = plan(past=Past(draft=DRAFT, created=CREATED), volume=claims.volume())
    assert step == model.Conclude(
        REF, Verdict.FOUND, f"PersistentVolume {claims.VOLUME_NAME} is there", DRAFT
    )
