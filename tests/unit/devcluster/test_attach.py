"""Which VolumeAttachments there should be."""

from typing import Any

import pytest
from devcluster.loops import attach, names
from devcluster.loops.actions import Again, Create, Delete, Emit, Patch
from support.manifests import DRIVER, NOW, csi_driver, meta, node, pod, volume

Obj = dict[str, Any]
# sha256("handle-v" + DRIVER + "n1")
NAME = attach.attachment_name(volume(), "n1")


def attachment(node_name: str = "n1", **more: Any) -> Obj:
    name = attach.attachment_name(volume(), node_name)
    return {"metadata": meta(name, **more), "spec": {"nodeName": node_name}}


def seen(**more: Any) -> attach.Seen:
    fields: Obj = {"node_name": "n1", "volume": volume(), "attachment": None, "users": [pod()]}
    fields |= {"elsewhere": [], "driver": csi_driver(), "in_use": False}
    return attach.Seen(**(fields | more))


def test_a_wanted_volume_is_attached_under_the_customary_name() -> None:
    (created,) = attach.decide(seen())
    assert isinstance(created, Create)
    assert created.body["metadata"]["name"] == NAME
    assert created.body["spec"] == {
        "attacher": DRIVER,
        "nodeName": "n1",
        "source": {"persistentVolumeName": "v"},
    }


def test_the_name_is_the_hash_of_handle_driver_and_node() -> None:
    it = volume(csi={"driver": "b", "volumeHandle": "a"})
    # sha256sum of "abc"
    expected = "csi-ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert attach.attachment_name(it, "c") == expected
    assert attach.unique_name(it) == "kubernetes.io/csi/b^a"


@pytest.mark.parametrize(
    "more",
    [
        pytest.param({"attachment": attachment()}, id="attached already"),
        pytest.param({"driver": csi_driver(attachRequired=False)}, id="driver needs none"),
        pytest.param({"users": []}, id="nobody wants it"),
        pytest.param({"volume": None}, id="no CSI volume"),
        pytest.param({"attachment": attachment(), "users": [], "in_use": True}, id="still mounted"),
        pytest.param(
            {"attachment": attachment(deletionTimestamp=NOW), "users": []}, id="detaching already"
        ),
    ],
)
def test_nothing_to_do(more: Obj) -> None:
    assert attach.decide(seen(**more)) == []


def test_without_a_csi_driver_object_volumes_are_attached() -> None:
    assert isinstance(attach.decide(seen(driver=None))[0], Create)


def test_an_unused_volume_is_detached() -> None:
    expected = [Delete(names.ATTACHMENTS, NAME, f"uid-{NAME}")]
    assert attach.decide(seen(attachment=attachment(), users=[])) == expected
    assert attach.decide(seen(attachment=attachment(), volume=None)) == expected


def test_what_somebody_else_attached_is_left_alone() -> None:
    foreign = {"metadata": meta("by-hand"), "spec": {"nodeName": "n1"}}
    assert attach.decide(seen(attachment=foreign, users=[])) == []


def test_a_volume_for_one_node_waits_for_the_last_one() -> None:
    event, again = attach.decide(seen(elsewhere=[attachment("n2")]))
    assert isinstance(event, Emit)
    assert event.reason == "FailedAttachVolume"
    assert '"n2"' in event.message
    assert again == Again(attach.DETACH_CHECK)


def test_a_shared_volume_does_not_wait() -> None:
    shared = volume(accessModes=["ReadWriteMany"])
    (created,) = attach.decide(seen(volume=shared, elsewhere=[attachment("n2")]))
    assert isinstance(created, Create)


def entries(volumes: list[str]) -> list[Obj]:
    return [{"name": name, "devicePath": ""} for name in volumes]


@pytest.mark.parametrize(
    ("listed", "attached", "written"),
    [
        pytest.param([], ["b", "a"], ["a", "b"], id="new"),
        pytest.param(["a"], [], None, id="gone"),
    ],
)
def test_the_node_status_lists_what_is_attached(
    listed: list[str], attached: list[str], written: list[str] | None
) -> None:
    it = node(status={"volumesAttached": entries(listed)})
    (patch,) = attach.decide_node(it, by_name(attached))
    expected = entries(written) if written else None
    assert patch == Patch(names.NODES, "n1", {"status": {"volumesAttached": expected}}, "status")
    assert attach.decide_node(it, by_name(listed)) == []


def by_name(unique_names: list[str]) -> dict[str, attach.Attached]:
    return {name: attach.Attached("v") for name in unique_names}


def test_pods_hear_that_their_volume_is_attached() -> None:
    _, event = attach.decide_node(node(), {"a": attach.Attached("v", [pod()])})
    assert isinstance(event, Emit)
    assert (event.reason, event.about) == ("SuccessfulAttachVolume", pod())


def test_a_node_is_told_before_a_volume_is_taken_from_it() -> None:
    mine = attach.unique_name(volume())
    it = node(status={"volumesAttached": entries([mine, "other"])})
    told, deleted = attach.decide(seen(attachment=attachment(), users=[], node=it))
    left = {"status": {"volumesAttached": entries(["other"])}}
    assert told == Patch(names.NODES, "n1", left, "status")
    assert isinstance(deleted, Delete)
