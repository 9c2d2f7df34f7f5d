"""Our restated .proto files against upstream's own: the judge of names, numbers and types."""

import functools

import pytest
from support import descriptors

SPEC = "github.com/container-storage-interface/spec"
OWN_COPIES = ("Timestamp", "BoolValue", "Int64Value")


@functools.cache
def rows_of(module: str, version: str, path: str) -> frozenset[descriptors.Row]:
    try:
        file = descriptors.upstream(module, version, path)
    except descriptors.UnavailableError as missing:
        pytest.skip(f"upstream's {path} cannot be had: {missing}")
    return frozenset(descriptors.rows(descriptors.read(file)))


def ours(name: str) -> set[descriptors.Row]:
    return descriptors.rows(descriptors.read(descriptors.PROTO / name), OWN_COPIES)


@pytest.mark.parametrize("version", ["v1.12.0", "v1.13.0"])
def test_all_of_a_csi_version_is_there(version: str) -> None:
    assert rows_of(SPEC, version, "csi.proto") - ours("csi.proto") == set()


def test_nothing_but_the_two_csi_versions_is_there() -> None:
    both = rows_of(SPEC, "v1.12.0", "csi.proto") | rows_of(SPEC, "v1.13.0", "csi.proto")
    assert ours("csi.proto") - both == set()


def test_the_registration_is_the_kubelets() -> None:
    path = "pkg/apis/pluginregistration/v1/api.proto"
    theirs = rows_of("k8s.io/kubelet", "v0.37.2", path)
    assert ours("pluginregistration.proto") == theirs


def test_the_comparison_sees_secrets_types_and_oneofs() -> None:
    found = ours("csi.proto")
    secret = [row for row in found if row[0] == "field" and row[-1]]
    assert ("DeleteVolumeRequest", "secrets", 2) in {row[1:4] for row in secret}
    assert {row[2] for row in secret} == {"secrets"}
    assert (
        "field",
        "VolumeCapability",
        "mount",
        2,
        11,
        1,
        ".csi.v1.VolumeCapability.MountVolume",
        "access_type",
        False,
    ) in found


def test_what_we_ask_of_runtimes_is_part_of_theirs() -> None:
    path = "pkg/apis/runtime/v1/api.proto"
    theirs = rows_of("k8s.io/cri-api", "v0.37.2", path)
    assert ours("cri.proto") - theirs == set()
