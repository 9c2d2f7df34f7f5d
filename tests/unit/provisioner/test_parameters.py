import pytest
from csi_provisioner import parameters

P = "csi.storage.k8s.io/"


def test_known_reserved_keys_are_ours_and_the_rest_is_for_the_driver() -> None:
    given = {
        f"{P}fstype": "xfs",
        f"{P}provisioner-secret-name": "s",
        f"{P}node-stage-secret-namespace": "n",
        f"{P}secret-name": "s",
        "fstype": "ext4",
        "csiProvisionerSecretName": "old",
        "tier": "gold",
    }
    assert parameters.for_driver(given) == {
        "fstype": "ext4",
        "csiProvisionerSecretName": "old",
        "tier": "gold",
    }


def test_a_misspelt_reserved_key_is_named() -> None:
    with pytest.raises(
        parameters.ParameterError, match=r'unknown parameter key "csi.storage.k8s.io/provisoner"'
    ):
        parameters.for_driver({f"{P}provisoner": "x", "tier": "gold"})


@pytest.mark.parametrize(
    ("given", "default", "found"),
    [
        ({}, "", ""),
        ({}, "ext4", "ext4"),
        ({f"{P}fstype": "xfs"}, "ext4", "xfs"),
        ({"fsType": "xfs"}, "ext4", "xfs"),
        ({"FSTYPE": "xfs"}, "ext4", "xfs"),
        ({f"{P}fstype": ""}, "ext4", "ext4"),
    ],
)
def test_the_file_system_is_the_class_s_or_the_default(
    given: dict[str, str], default: str, found: str
) -> None:
    assert parameters.fs_type(given, default) == found


def test_two_keys_for_the_file_system_are_refused() -> None:
    with pytest.raises(
        parameters.ParameterError, match=r"csi.storage.k8s.io/fstype, fsType all name"
    ):
        parameters.fs_type({"fsType": "xfs", f"{P}fstype": "xfs"}, "")


def test_extra_metadata_names_claim_and_volume() -> None:
    assert parameters.metadata("pvc-1", "team", "data") == {
        f"{P}pvc/name": "data",
        f"{P}pvc/namespace": "team",
        f"{P}pv/name": "pvc-1",
    }
