import dataclasses
from typing import Any

import pytest
from bitts.core.plans import RetryLater, WaitFor
from bitts.kube import objects
from bitts.volumes.secrets import SecretRef
from csi_provisioner import decide, model, names
from support import claims
from support.claims import DRIVER, POLICY

OWNED = {names.PROVISIONED_BY: DRIVER}
DELETION = {names.DELETION_SECRET_NAME: "s", names.DELETION_SECRET_NAMESPACE: "n"}


def kinds(steps: decide.VolumePlan) -> list[str]:
    return [type(step).__name__ for step in steps]


def plan(volume: objects.PersistentVolume, **fields: Any) -> decide.VolumePlan:
    return decide.decide_volume(POLICY, claims.volume_seen(volume=volume, **fields))


def released(**fields: Any) -> objects.PersistentVolume:
    return claims.volume(phase="Released", **fields)


FULL = ["EraseVolume", "DeleteObject", "RemoveFinalizer", "CountDeleted"]


@pytest.mark.parametrize(
    ("volume", "expected"),
    [
        (released(), FULL),
        (released(deleting=True), ["EraseVolume", "RemoveFinalizer", "CountDeleted"]),
        (released(finalizers=()), ["EraseVolume", "DeleteObject", "CountDeleted"]),
        (released(finalizers=("other",)), ["EraseVolume", "DeleteObject", "CountDeleted"]),
        (released(finalizers=(), deleting=True), []),
        (released(persistent_volume_reclaim_policy="Retain", finalizers=()), []),
        (claims.volume(), []),
        (claims.volume(deleting=True), []),
        (claims.volume(phase="Failed"), []),
        (claims.volume(phase="Available"), []),
        (claims.volume(phase="Pending", finalizers=()), []),
    ],
    ids=[
        "released",
        "released and deleting",
        "released without finalizer",
        "released with a foreign finalizer",
        "finished by others",
        "retained",
        "bound",
        "bound and deleting",
        "failed",
        "available",
        "pending",
    ],
)
def test_released_volumes_are_erased_then_their_objects(
    volume: objects.PersistentVolume, expected: list[str]
) -> None:
    assert kinds(plan(volume)) == expected


@pytest.mark.parametrize(
    ("volume", "expected"),
    [
        (claims.volume(finalizers=()), ["AddFinalizer"]),
        (claims.volume(finalizers=("kubernetes.io/pv-protection",)), ["AddFinalizer"]),
        (claims.volume(finalizers=(), deleting=True), []),
        (claims.volume(persistent_volume_reclaim_policy="Retain"), ["RemoveFinalizer"]),
        (claims.volume(persistent_volume_reclaim_policy="Recycle"), ["RemoveFinalizer"]),
        (released(persistent_volume_reclaim_policy="Retain"), ["RemoveFinalizer"]),
        (claims.volume(persistent_volume_reclaim_policy=""), []),
    ],
)
def test_the_finalizer_follows_the_reclaim_policy(
    volume: objects.PersistentVolume, expected: list[str]
) -> None:
    assert kinds(plan(volume)) == expected


FOREIGN = objects.CSIPersistentVolumeSource(driver="other", volume_handle="v")


@pytest.mark.parametrize(
    ("fields", "is_ours"),
    [
        ({"annotations": OWNED, "csi": FOREIGN}, True),
        ({"annotations": {names.PROVISIONED_BY: "other"}}, False),
        ({"annotations": {}}, True),
        ({"annotations": {}, "csi": FOREIGN}, False),
        ({"annotations": {}, "csi": None}, False),
    ],
    ids=["annotated", "annotated for another", "static", "another driver's", "not CSI"],
)
def test_whose_volume_it_is(fields: dict[str, Any], is_ours: bool) -> None:
    assert bool(plan(released(**fields))) is is_ours


def test_an_erased_volume_is_only_finished_even_if_its_policy_changed() -> None:
    steps = plan(released(persistent_volume_reclaim_policy="Retain"), erased=True)
    assert kinds(steps) == FULL[1:]
    assert kinds(plan(released(deleting=True), erased=True)) == FULL[2:]


@pytest.mark.parametrize(
    ("annotations", "parameters", "secret"),
    [
        (OWNED | DELETION, {}, SecretRef("n", "s")),
        (OWNED | DELETION | {names.DELETION_SECRET_NAME: ""}, {}, None),
        (OWNED, {}, None),
        (
            OWNED,
            {
                "csi.storage.k8s.io/provisioner-secret-name": "${pvc.name}",
                "csi.storage.k8s.io/provisioner-secret-namespace": "${pvc.namespace}",
            },
            SecretRef("team", "data"),
        ),
    ],
    ids=["annotated", "half annotated", "no secret", "by the class"],
)
def test_the_deletion_secret(
    annotations: dict[str, str], parameters: dict[str, str], secret: SecretRef | None
) -> None:
    storage_class = claims.storage_class(parameters=parameters)
    steps = plan(released(annotations=annotations), storage_class=storage_class)
    assert isinstance(steps[0], model.EraseVolume)
    assert (steps[0].volume_id, steps[0].secret) == ("vol-1", secret)


@pytest.mark.parametrize(
    "fields", [{"storage_class": None}, {"volume": released(annotations=OWNED, claimed=False)}]
)
def test_without_class_or_claim_there_is_no_secret(fields: dict[str, Any]) -> None:
    given = {"volume": released(annotations=OWNED)} | fields
    steps = decide.decide_volume(POLICY, claims.volume_seen(**given))
    assert isinstance(steps[0], model.EraseVolume)
    assert steps[0].secret is None


NO_CREATE = dataclasses.replace(POLICY, controller=frozenset())


@pytest.mark.parametrize(
    ("policy", "fields", "text"),
    [
        (POLICY, {"volume": released(csi=None)}, "invalid CSI PV"),
        (NO_CREATE, {}, "CREATE_DELETE_VOLUME capability is not reported"),
        (
            POLICY,
            {
                "volume": released(annotations=OWNED),
                "storage_class": claims.storage_class(
                    parameters={
                        "csi.storage.k8s.io/secret-name": "${pvc.annotations['x']}",
                        "csi.storage.k8s.io/secret-namespace": "n",
                    }
                ),
            },
            "StorageClass fast: parameter 'csi.storage.k8s.io/secret-name'",
        ),
    ],
    ids=["no source", "no capability", "bad secret template"],
)
def test_what_cannot_be_deleted_is_reported(
    policy: model.Policy, fields: dict[str, Any], text: str
) -> None:
    report, retry = decide.decide_volume(policy, claims.volume_seen(**fields))
    assert isinstance(report, model.Report)
    assert report.is_failure
    assert text in report.reason
    assert retry == RetryLater(report.reason)


def test_an_attached_volume_is_waited_for_and_said_once() -> None:
    text = f"persistentvolume {claims.VOLUME_NAME} is still attached to node n1, waiting for detach"
    first = plan(released(), attached_to=("n1", "n2"))
    assert first == [model.Report(text, is_failure=False), WaitFor(text)]
    assert plan(released(), attached_to=("n1",), told=text) == [WaitFor(text)]
