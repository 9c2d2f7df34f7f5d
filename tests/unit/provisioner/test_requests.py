import pytest
from bitts.csi import v1
from csi_provisioner import requests
from csi_provisioner.model import Created
from csi_provisioner.topology import Requirement
from support import claims
from support.claims import GIB, VOLUME_NAME

Z1, Z2 = (("z", "z1"),), (("z", "z2"),)


def over_the_wire(request: v1.CreateVolumeRequest) -> v1.CreateVolumeRequest:
    return v1.CreateVolumeRequest.parse(bytes(request))


def test_a_mounted_volume() -> None:
    draft = claims.draft(
        access_modes=("ReadWriteOnce", "ReadOnlyMany"),
        fs_type="xfs",
        mount_options=("noatime", "discard"),
        parameters={"tier": "gold"},
        mutable_parameters={"iops": "9"},
        requirement=Requirement((Z1, Z2), (Z2, Z1)),
    )
    request = over_the_wire(requests.create_volume(draft, {"key": "s3cret"}, multi_writer=True))
    assert request.name == VOLUME_NAME
    assert request.capacity_range == v1.CapacityRange(required_bytes=GIB)
    assert request.parameters == {"tier": "gold"}
    assert request.mutable_parameters == {"iops": "9"}
    assert request.secrets == {"key": "s3cret"}
    modes = [one.access_mode.mode for one in request.volume_capabilities if one.access_mode]
    assert modes == [7, 3]
    for capability in request.volume_capabilities:
        assert capability.block is None
        assert capability.mount == v1.VolumeCapabilityMountVolume(
            fs_type="xfs", mount_flags=["noatime", "discard"]
        )
    places = request.accessibility_requirements
    assert places is not None
    assert [place.segments for place in places.requisite] == [{"z": "z1"}, {"z": "z2"}]
    assert [place.segments for place in places.preferred] == [{"z": "z2"}, {"z": "z1"}]


def test_a_block_volume() -> None:
    draft = claims.draft(volume_mode="Block", mount_options=("noatime",))
    request = over_the_wire(requests.create_volume(draft, {}, multi_writer=False))
    [capability] = request.volume_capabilities
    assert capability.mount is None
    assert capability.block is not None
    assert capability.access_mode is not None
    assert capability.access_mode.mode == v1.VolumeCapabilityAccessModeMode.SINGLE_NODE_WRITER
    assert request.accessibility_requirements is None


def place(**segments: str) -> v1.Topology:
    return v1.Topology(segments=segments)


@pytest.mark.parametrize(
    ("volume", "created"),
    [
        (None, None),
        (v1.Volume(volume_id="v"), Created("v")),
        (
            v1.Volume(
                volume_id="v",
                capacity_bytes=5,
                volume_context={"pool": "a"},
                accessible_topology=[place(z="z1", r="r1"), place(), place(z="z2")],
            ),
            Created("v", 5, {"pool": "a"}, ((("r", "r1"), ("z", "z1")), Z2)),
        ),
    ],
    ids=["no volume", "only an id", "everything"],
)
def test_an_answer_in_plain_values(volume: v1.Volume | None, created: Created | None) -> None:
    assert requests.created(v1.CreateVolumeResponse(volume=volume)) == created


def test_a_deletion_carries_handle_and_secrets() -> None:
    request = requests.delete_volume("vol-1", {"key": "s3cret"})
    assert (request.volume_id, request.secrets) == ("vol-1", {"key": "s3cret"})


def test_a_capacity_question_names_class_parameters_and_place() -> None:
    request = requests.get_capacity({"csi.storage.k8s.io/fstype": "xfs"}, Z1)
    assert request.parameters == {"csi.storage.k8s.io/fstype": "xfs"}
    assert request.accessible_topology == place(z="z1")
