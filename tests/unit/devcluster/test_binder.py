"""The volume controller's decisions, as tables."""

from typing import Any

import pytest
from devcluster.loops import binder, names
from devcluster.loops.actions import Action, Emit, Patch
from support import manifests
from support.manifests import DRIVER, NOW, claim, claim_ref, storage_class, volume

Obj = dict[str, Any]
COMPLETED = {names.BIND_COMPLETED: "yes"}
CLAIM, VOLUME = names.CLAIMS, names.VOLUMES


def decide(it: Obj, **more: Any) -> list[Action]:
    seen: Obj = {"named": None, "candidates": (), "storage_class": storage_class()}
    seen |= {"default_class": "", "now": NOW}
    return binder.decide_claim(binder.ClaimSeen(it, **(seen | more)))


def release(it: Obj, claimed_by: Obj | None) -> list[Action]:
    return binder.decide_volume(binder.VolumeSeen(it, claimed_by, NOW))


def phase(name: str, value: str, message: str | None = None) -> Patch:
    status = {"phase": value, "message": message, "lastPhaseTransitionTime": NOW}
    return Patch(VOLUME, name, {"status": status}, "status")


def late(**more: Any) -> Obj:
    return storage_class(volumeBindingMode="WaitForFirstConsumer", **more)


BOUND_STATUS = Patch(
    CLAIM,
    "ns/c",
    {
        "status": {
            "phase": "Bound",
            "accessModes": ["ReadWriteOnce"],
            "capacity": {"storage": "1Gi"},
        }
    },
    "status",
)


def test_a_static_volume_is_reserved_first_and_the_claim_follows() -> None:
    assert decide(claim(), candidates=[volume()]) == [
        Patch(
            VOLUME,
            "v",
            {
                "spec": {"claimRef": claim_ref(claim())},
                "metadata": {"annotations": {names.BOUND_BY_CONTROLLER: "yes"}},
            },
        ),
        phase("v", "Bound"),
        Patch(
            CLAIM,
            "ns/c",
            {
                "spec": {"volumeName": "v"},
                "metadata": {
                    "annotations": {names.BOUND_BY_CONTROLLER: "yes", names.BIND_COMPLETED: "yes"}
                },
            },
        ),
        BOUND_STATUS,
    ]


def test_a_provisioned_volume_gets_no_second_claim_reference() -> None:
    made = volume(phase="Pending", claimRef=claim_ref(claim()))
    first, *_ = decide(claim(), candidates=[made])
    assert first == phase("v", "Bound")


def test_a_users_reservation_only_lacks_the_uid() -> None:
    reserved = volume(claimRef={"namespace": "ns", "name": "c"})
    plan = decide(claim(), candidates=[reserved], storage_class=late())
    assert plan[0] == Patch(VOLUME, "v", {"spec": {"claimRef": claim_ref(claim())}})


def test_the_attributes_class_is_reported_with_the_bond() -> None:
    asks = claim(volumeAttributesClassName="gold")
    made = volume(volumeAttributesClassName="gold", claimRef=claim_ref(asks))
    *_, status = decide(asks, candidates=[made])
    assert isinstance(status, Patch)
    assert status.body["status"]["currentVolumeAttributesClassName"] == "gold"


def test_a_complete_bond_needs_nothing() -> None:
    status = {"phase": "Bound", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}}
    bound = claim(volumeName="v", annotations=COMPLETED, status=status)
    grown = volume(phase="Bound", size="2Gi", claimRef=claim_ref(bound))
    assert decide(bound, named=grown) == []


def test_a_bond_that_was_cut_off_is_completed() -> None:
    half = claim(volumeName="v", annotations=COMPLETED)
    made = volume(phase="Bound", claimRef=claim_ref(half))
    assert decide(half, named=made) == [BOUND_STATUS]


@pytest.mark.parametrize(
    "bad",
    [
        pytest.param({"size": "512Mi"}, id="too small"),
        pytest.param({"storageClassName": "slow"}, id="other class"),
        pytest.param({"volumeMode": "Block"}, id="other mode"),
        pytest.param({"accessModes": ["ReadOnlyMany"]}, id="access mode missing"),
        pytest.param({"deletionTimestamp": NOW}, id="being deleted"),
        pytest.param({"phase": "Released"}, id="not available"),
        pytest.param({"claimRef": {"namespace": "ns", "name": "other"}}, id="reserved for another"),
        pytest.param({"volumeAttributesClassName": "gold"}, id="other attributes class"),
    ],
)
def test_an_unsuitable_volume_is_passed_over(bad: Obj) -> None:
    asked, _ = decide(claim(), candidates=[volume(**bad)])
    assert isinstance(asked, Patch)
    assert asked.kind == CLAIM


def test_the_smallest_suitable_volume_wins_and_selectors_count() -> None:
    wants = claim(selector={"matchLabels": {"tier": "a"}})
    offered = [
        volume("small", size="1Gi"),
        volume("big", size="9Gi", labels={"tier": "a"}),
        volume("fit", size="2Gi", labels={"tier": "a"}),
    ]
    first, *_ = decide(wants, candidates=offered)
    assert isinstance(first, Patch)
    assert first.key == "fit"


def test_provisioning_is_asked_for_under_both_names_and_once() -> None:
    marks = {names.PROVISIONER_BETA: DRIVER, names.PROVISIONER: DRIVER}
    asked, event = decide(claim())
    assert asked == Patch(CLAIM, "ns/c", {"metadata": {"annotations": marks}})
    assert isinstance(event, Emit)
    assert event.reason == "ExternalProvisioning"
    assert decide(claim(annotations={names.PROVISIONER: DRIVER})) == []


def test_late_binding_waits_for_the_scheduler_even_if_a_volume_is_free() -> None:
    (event,) = decide(claim(), storage_class=late(), candidates=[volume()])
    assert isinstance(event, Emit)
    assert event.reason == "WaitForFirstConsumer"


def test_late_binding_names_the_pods_that_are_not_placed_yet() -> None:
    (event,) = decide(claim(), storage_class=late(), waiting=["q", "p"])
    assert isinstance(event, Emit)
    assert (event.reason, event.message) == (
        "WaitForPodScheduled",
        "waiting for pod p,q to be scheduled",
    )


def test_late_binding_is_provisioned_once_a_node_is_selected() -> None:
    asked, _ = decide(claim(annotations={names.SELECTED_NODE: "n1"}), storage_class=late())
    assert isinstance(asked, Patch)
    assert names.PROVISIONER in asked.body["metadata"]["annotations"]


def test_the_default_class_is_given_to_claims_without_one() -> None:
    classless = claim(storageClassName=None)
    assert decide(classless, default_class="fast") == [
        Patch(CLAIM, "ns/c", {"spec": {"storageClassName": "fast"}})
    ]
    (event,) = decide(claim(storageClassName=""), default_class="fast")
    assert isinstance(event, Emit)
    assert event.reason == "FailedBinding"


@pytest.mark.parametrize(
    ("found", "text"),
    [
        pytest.param(None, "not found", id="class missing"),
        pytest.param(storage_class(provisioner=names.NO_PROVISIONER), "free", id="static class"),
    ],
)
def test_what_cannot_be_provisioned_is_said(found: Obj | None, text: str) -> None:
    (event,) = decide(claim(), storage_class=found)
    assert isinstance(event, Emit)
    assert (event.reason, event.type) == ("ProvisioningFailed", "Warning")
    assert text in event.message


def test_a_named_volume_must_exist_be_free_and_suit() -> None:
    wants = claim(volumeName="v")
    assert decide(wants) == []
    reserved = volume(phase="Bound", claimRef={"namespace": "ns", "name": "c"})
    first, *_ = decide(wants, named=reserved)
    assert first == Patch(VOLUME, "v", {"spec": {"claimRef": claim_ref(wants)}})
    taken = volume(claimRef={"namespace": "ns", "name": "other", "uid": "x"})
    (event,) = decide(wants, named=taken)
    assert isinstance(event, Emit)
    assert event.reason == "FailedBinding"
    first, *_ = decide(wants, named=volume())
    assert isinstance(first, Patch)
    assert first.kind == VOLUME


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        ({"size": "1Mi"}, "too small"),
        ({"storageClassName": "slow"}, "storageClassName"),
        ({"volumeMode": "Block"}, "volumeMode"),
        ({"accessModes": ["ReadOnlyMany"]}, "accessMode"),
    ],
)
def test_a_named_volume_that_does_not_suit_is_refused(bad: Obj, why: str) -> None:
    (event,) = decide(claim(volumeName="v"), named=volume(**bad))
    assert isinstance(event, Emit)
    assert event.reason == "VolumeMismatch"
    assert why in event.message


@pytest.mark.parametrize(
    ("it", "named", "reason"),
    [
        pytest.param(claim(annotations=COMPLETED), None, "ClaimLost", id="reference lost"),
        pytest.param(
            claim(annotations=COMPLETED, volumeName="v"), None, "ClaimLost", id="no volume"
        ),
        pytest.param(
            claim(annotations=COMPLETED, volumeName="v"),
            volume(claimRef=claim_ref(claim(), uid="other")),
            "ClaimMisbound",
            id="volume of another",
        ),
    ],
)
def test_a_bound_claim_without_its_volume_is_lost(it: Obj, named: Obj | None, reason: str) -> None:
    patch, event = decide(it, named=named)
    assert isinstance(patch, Patch)
    assert patch.body["status"]["phase"] == "Lost"
    assert isinstance(event, Emit)
    assert event.reason == reason
    assert decide({**it, "status": {"phase": "Lost"}}, named=named) == []


@pytest.mark.parametrize(
    ("it", "claimed_by", "expected"),
    [
        pytest.param(volume(phase="Pending"), None, [phase("v", "Available")], id="unclaimed"),
        pytest.param(
            volume(phase="Pending", claimRef={"namespace": "ns", "name": "c"}),
            None,
            [phase("v", "Available")],
            id="reserved by a user",
        ),
        pytest.param(volume(claimRef=claim_ref(claim())), claim(), [], id="claim not bound yet"),
        pytest.param(
            volume(claimRef=claim_ref(claim())),
            claim(volumeName="v"),
            [phase("v", "Bound")],
            id="bound",
        ),
        pytest.param(
            volume(phase="Bound", claimRef=claim_ref(claim())),
            None,
            [phase("v", "Released")],
            id="claim gone",
        ),
        pytest.param(
            volume(phase="Bound", claimRef=claim_ref(claim())),
            claim(uid="new"),
            [phase("v", "Released")],
            id="claim made anew",
        ),
        pytest.param(
            volume(phase="Released", claimRef=claim_ref(claim())), None, [], id="stays released"
        ),
        pytest.param(
            volume(
                phase="Bound",
                claimRef=claim_ref(claim()),
                annotations={names.PROVISIONED_BY: DRIVER},
            ),
            claim(volumeName="other"),
            [phase("v", "Released")],
            id="provisioned in vain",
        ),
        pytest.param(
            volume(claimRef=claim_ref(claim())),
            claim(volumeName="other"),
            [Patch(VOLUME, "v", {"spec": {"claimRef": {"uid": None, "resourceVersion": None}}})],
            id="reserved by a user for a claim bound elsewhere",
        ),
        pytest.param(
            volume(
                phase="Bound",
                claimRef=claim_ref(claim()),
                annotations={names.BOUND_BY_CONTROLLER: "yes"},
            ),
            claim(volumeName="other"),
            [
                Patch(
                    VOLUME,
                    "v",
                    {
                        "spec": {"claimRef": None},
                        "metadata": {"annotations": {names.BOUND_BY_CONTROLLER: None}},
                    },
                ),
                phase("v", "Available"),
            ],
            id="our reservation for a claim bound elsewhere",
        ),
    ],
)
def test_a_volume_follows_its_claim(
    it: Obj, claimed_by: Obj | None, expected: list[Action]
) -> None:
    assert release(it, claimed_by) == expected


def test_only_csi_or_provisioned_volumes_can_be_deleted() -> None:
    local = volume(phase="Bound", claimRef=claim_ref(claim()))
    del local["spec"]["csi"]
    failed, event = release(local, None)
    assert isinstance(failed, Patch)
    assert failed.body["status"]["phase"] == "Failed"
    assert isinstance(event, Emit)
    assert event.reason == "VolumeFailedDelete"
    local["spec"]["persistentVolumeReclaimPolicy"] = "Retain"
    assert release(local, None) == [phase("v", "Released")]


def test_the_claim_reference_names_everything() -> None:
    assert binder.claim_ref(claim()) == manifests.claim_ref(claim())
