import dataclasses
from typing import Any

import pytest
from bitts.kube import objects
from bitts.volumes.secrets import SecretRef
from csi_provisioner import drafts, names, topology
from csi_provisioner.model import Policy
from csi_provisioner.topology import Nodes
from support import claims

ZONE = "example.com/zone"
NODES = Nodes({"n1": (ZONE,)}, {"n1": {ZONE: "z1"}})
PLACED = dataclasses.replace(claims.POLICY, topology=True)


def draft(
    policy: Policy = claims.POLICY,
    storage_class: dict[str, Any] | None = None,
    nodes: Nodes = NODES,
    **claim: Any,
) -> Any:
    return drafts.draft(
        policy, claims.claim(**claim), claims.storage_class(**(storage_class or {})), nodes
    )


def test_a_plain_claim() -> None:
    assert draft() == claims.draft()


def test_everything_that_claim_and_class_can_say() -> None:
    policy = dataclasses.replace(PLACED, extra_metadata=True, default_fstype="ext4", name_length=8)
    storage_class = {
        "reclaim_policy": "Retain",
        "mount_options": ("noatime",),
        "parameters": {
            "tier": "gold",
            "csi.storage.k8s.io/secret-name": "${pvc.name}",
            "csi.storage.k8s.io/secret-namespace": "${pvc.namespace}",
            "csi.storage.k8s.io/node-stage-secret-name": "stage",
            "csi.storage.k8s.io/node-stage-secret-namespace": "team",
        },
    }
    found = draft(
        policy,
        storage_class,
        annotations={names.STORAGE_PROVISIONER: claims.DRIVER, names.SELECTED_NODE: "n1"},
        access_modes=("ReadWriteMany", "ReadOnlyMany"),
        volume_mode="Filesystem",
        volume_attributes_class_name="silver",
        resources=objects.VolumeResources(requests={"storage": "1500m"}),
    )
    default = SecretRef("team", "data")
    assert found == claims.draft(
        volume_name="pvc-11111111",
        required_bytes=2,
        access_modes=("ReadWriteMany", "ReadOnlyMany"),
        volume_mode="Filesystem",
        fs_type="ext4",
        mount_options=("noatime",),
        parameters={
            "tier": "gold",
            "csi.storage.k8s.io/pvc/name": "data",
            "csi.storage.k8s.io/pvc/namespace": "team",
            "csi.storage.k8s.io/pv/name": "pvc-11111111",
        },
        secrets={
            "PROVISION": default,
            "CONTROLLER_PUBLISH": default,
            "NODE_STAGE": SecretRef("team", "stage"),
            "NODE_PUBLISH": default,
            "CONTROLLER_EXPAND": default,
            "NODE_EXPAND": default,
            "CONTROLLER_MODIFY": default,
        },
        requirement=topology.Requirement((((ZONE, "z1"),),), (((ZONE, "z1"),),)),
        selected_node="n1",
        reclaim_policy="Retain",
        attributes_class="silver",
    )


def test_a_block_volume_has_no_file_system() -> None:
    found = draft(storage_class={"parameters": {"fstype": "xfs"}}, volume_mode="Block")
    assert (found.volume_mode, found.fs_type) == ("Block", "")


def test_a_claim_without_size_asks_for_none() -> None:
    assert draft(resources=objects.VolumeResources()).required_bytes == 0


def test_a_class_without_reclaim_policy_deletes() -> None:
    assert draft(storage_class={"reclaim_policy": None}).reclaim_policy == "Delete"


def test_attributes_classes_are_ignored_when_the_gate_is_off() -> None:
    policy = dataclasses.replace(
        claims.POLICY, attributes_classes=False, controller=frozenset({"CREATE_DELETE_VOLUME"})
    )
    assert draft(policy, volume_attributes_class_name="silver").attributes_class == ""


def test_allowed_topologies_reach_the_requirement() -> None:
    term = objects.TopologySelectorTerm(
        match_label_expressions=(
            objects.TopologySelectorLabelRequirement(key=ZONE, values=("z5",)),
        )
    )
    found = draft(PLACED, {"allowed_topologies": (term,)})
    assert found.requirement == topology.Requirement((((ZONE, "z5"),),), (((ZONE, "z5"),),))


def test_the_alpha_annotation_selects_a_node_too() -> None:
    annotations = {names.ALPHA_SELECTED_NODE: "n1"}
    assert drafts.selected_node(claims.claim(annotations=annotations)) == "n1"


NO_SERVICE = dataclasses.replace(claims.POLICY, plugin=frozenset())
NO_CREATE = dataclasses.replace(claims.POLICY, controller=frozenset())
NO_MODIFY = dataclasses.replace(claims.POLICY, controller=frozenset({"CREATE_DELETE_VOLUME"}))
SECRET = {"csi.storage.k8s.io/provisioner-secret-name": "x"}


@pytest.mark.parametrize(
    ("arguments", "message", "is_final"),
    [
        ({"policy": NO_SERVICE}, "plugin CONTROLLER_SERVICE capability is not reported", True),
        ({"policy": NO_CREATE}, "controller CREATE_DELETE_VOLUME capability is not", True),
        (
            {"policy": NO_MODIFY, "volume_attributes_class_name": "silver"},
            "controller MODIFY_VOLUME capability is not reported",
            True,
        ),
        ({"selector": objects.LabelSelector()}, "claim Selector is not supported", True),
        (
            {"policy": dataclasses.replace(claims.POLICY, name_prefix="")},
            "--volume-name-prefix",
            True,
        ),
        ({"storage_class": {"parameters": {"fstype": "a", "fsType": "b"}}}, "file system", True),
        ({"access_modes": ("Sometimes",)}, "spec.accessModes", True),
        (
            {"resources": objects.VolumeResources(requests={"storage": "much"})},
            "spec.resources.requests.storage",
            True,
        ),
        (
            {"storage_class": {"parameters": {"csi.storage.k8s.io/x": ""}}},
            "unknown parameter",
            True,
        ),
        ({"storage_class": {"parameters": SECRET}}, "StorageClass fast: parameter", False),
        (
            {"policy": PLACED, "nodes": Nodes()},
            "error generating accessibility requirements: no available topology found",
            False,
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_cannot_be_made_is_refused(
    arguments: dict[str, Any], message: str, is_final: bool
) -> None:
    with pytest.raises(drafts.RefusedError) as caught:
        draft(**arguments)
    assert message in str(caught.value)
    assert caught.value.is_final is is_final


def test_a_vanished_node_is_an_error_of_its_own() -> None:
    with pytest.raises(topology.NodeVanishedError):
        draft(PLACED, annotations={names.SELECTED_NODE: "gone"})
