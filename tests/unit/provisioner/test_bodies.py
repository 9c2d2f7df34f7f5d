import dataclasses

from bitts.volumes.secrets import SecretRef
from csi_provisioner import bodies, names
from csi_provisioner.model import Created
from support import claims
from support.claims import CREATED, DRIVER, GIB, POLICY, UID, VOLUME_NAME


def test_a_plain_volume_is_complete_from_the_start() -> None:
    assert bodies.persistent_volume(POLICY, "me", claims.draft(), CREATED) == {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {
            "name": VOLUME_NAME,
            "finalizers": ["external-provisioner.volume.kubernetes.io/finalizer"],
            "annotations": {
                "pv.kubernetes.io/provisioned-by": DRIVER,
                "volume.kubernetes.io/provisioner-deletion-secret-name": "",
                "volume.kubernetes.io/provisioner-deletion-secret-namespace": "",
            },
        },
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "capacity": {"storage": "1Gi"},
            "claimRef": {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "namespace": "team",
                "name": "data",
                "uid": UID,
                "resourceVersion": "7",
            },
            "csi": {
                "driver": DRIVER,
                "volumeHandle": "vol-1",
                "volumeAttributes": {"storage.kubernetes.io/csiProvisionerIdentity": "me"},
            },
            "persistentVolumeReclaimPolicy": "Delete",
            "storageClassName": "fast",
        },
    }


RICH = claims.draft(
    access_modes=("ReadOnlyMany",),
    volume_mode="Filesystem",
    fs_type="xfs",
    mount_options=("noatime",),
    attributes_class="silver",
    secrets={
        "PROVISION": SecretRef("n", "provision"),
        "CONTROLLER_PUBLISH": SecretRef("n", "publish"),
        "NODE_STAGE": SecretRef("n", "stage"),
        "NODE_PUBLISH": SecretRef("n", "node"),
        "CONTROLLER_EXPAND": SecretRef("n", "expand"),
        "NODE_EXPAND": SecretRef("n", "grow"),
        "CONTROLLER_MODIFY": SecretRef("n", "modify"),
    },
)


def test_everything_that_a_draft_can_say() -> None:
    policy = dataclasses.replace(POLICY, publish_readonly=True)
    created = Created("vol-1", 1500000000, {"pool": "a"})
    found = bodies.persistent_volume(policy, "me", RICH, created)
    assert found["metadata"]["annotations"] == {
        "pv.kubernetes.io/provisioned-by": DRIVER,
        "volume.kubernetes.io/provisioner-deletion-secret-name": "provision",
        "volume.kubernetes.io/provisioner-deletion-secret-namespace": "n",
        "volume.kubernetes.io/controller-modify-secret-name": "modify",
        "volume.kubernetes.io/controller-modify-secret-namespace": "n",
    }
    spec = found["spec"]
    assert spec["capacity"] == {"storage": "1500000000"}
    assert spec["mountOptions"] == ["noatime"]
    assert spec["volumeMode"] == "Filesystem"
    assert spec["volumeAttributesClassName"] == "silver"
    assert spec["csi"] == {
        "driver": DRIVER,
        "volumeHandle": "vol-1",
        "fsType": "xfs",
        "readOnly": True,
        "volumeAttributes": {names.IDENTITY_ATTRIBUTE: "me", "pool": "a"},
        "controllerPublishSecretRef": {"name": "publish", "namespace": "n"},
        "nodeStageSecretRef": {"name": "stage", "namespace": "n"},
        "nodePublishSecretRef": {"name": "node", "namespace": "n"},
        "controllerExpandSecretRef": {"name": "expand", "namespace": "n"},
        "nodeExpandSecretRef": {"name": "grow", "namespace": "n"},
    }


def test_the_places_of_a_volume_become_its_affinity() -> None:
    policy = dataclasses.replace(POLICY, topology=True)
    places = ((("r", "r1"), ("z", "z1")), (("z", "z2"),))
    created = Created("vol-1", GIB, {}, places)
    found = bodies.persistent_volume(policy, "me", claims.draft(), created)
    terms = found["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]
    assert terms == [
        {
            "matchExpressions": [
                {"key": "r", "operator": "In", "values": ["r1"]},
                {"key": "z", "operator": "In", "values": ["z1"]},
            ]
        },
        {"matchExpressions": [{"key": "z", "operator": "In", "values": ["z2"]}]},
    ]


def test_a_retained_volume_needs_no_finalizer_that_would_be_taken_off_again() -> None:
    found = bodies.persistent_volume(POLICY, "me", claims.draft(reclaim_policy="Retain"), CREATED)
    assert "finalizers" not in found["metadata"]


def test_without_capacity_in_the_answer_the_wish_is_recorded() -> None:
    found = bodies.persistent_volume(POLICY, "me", claims.draft(), Created("vol-1"))
    assert found["spec"]["capacity"] == {"storage": "1Gi"}


def test_the_driver_may_override_the_identity() -> None:
    created = Created("vol-1", GIB, {names.IDENTITY_ATTRIBUTE: "driver"})
    found = bodies.persistent_volume(POLICY, "me", claims.draft(), created)
    assert found["spec"]["csi"]["volumeAttributes"] == {names.IDENTITY_ATTRIBUTE: "driver"}


def test_topology_without_the_gate_makes_no_affinity() -> None:
    created = Created("vol-1", GIB, {}, ((("z", "z1"),),))
    found = bodies.persistent_volume(POLICY, "me", claims.draft(), created)
    assert "nodeAffinity" not in found["spec"]


def test_read_only_needs_the_flag_and_the_one_mode() -> None:
    policy = dataclasses.replace(POLICY, publish_readonly=True)
    modes = ("ReadOnlyMany", "ReadWriteOnce")
    found = bodies.persistent_volume(policy, "me", claims.draft(access_modes=modes), CREATED)
    assert "readOnly" not in found["spec"]["csi"]
