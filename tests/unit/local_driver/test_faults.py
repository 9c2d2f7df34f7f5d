"""Wrong answers: what each kind makes of a right one."""

import pytest
from bitts.csi import v1
from local_driver import faults
from local_driver.faultrules import Kind, Rule

KEY = "topology.example/node"


def request() -> v1.CreateVolumeRequest:
    return v1.CreateVolumeRequest(name="v", capacity_range=v1.CapacityRange(required_bytes=1000))


def answer() -> v1.CreateVolumeResponse:
    return v1.CreateVolumeResponse(
        volume=v1.Volume(
            volume_id="id",
            capacity_bytes=1000,
            volume_context={"backend": "image"},
            accessible_topology=[v1.Topology(segments={KEY: "n1"})],
        )
    )


def spoilt(kind: Kind) -> v1.Volume:
    reply = faults.spoil(Rule("CreateVolume", kind), request(), answer())
    assert isinstance(reply, v1.CreateVolumeResponse)
    assert reply.volume is not None
    return reply.volume


def test_each_kind_spoils_its_field() -> None:
    assert spoilt(Kind.MISSING_ID).volume_id == ""
    assert spoilt(Kind.CAPACITY_TOO_SMALL).capacity_bytes == 500
    assert spoilt(Kind.OTHER_TOPOLOGY).accessible_topology[0].segments == {KEY: "not-n1"}
    assert len(bytes(spoilt(Kind.HUGE_CONTEXT))) > 4 << 20
    assert spoilt(Kind.OTHER_CONTENT).content_source is not None


@pytest.mark.parametrize("kind", [Kind.LOST, Kind.HANG, Kind.CRASH, Kind.LATENCY])
def test_other_kinds_leave_the_answer_alone(kind: Kind) -> None:
    assert spoilt(kind) == answer().volume


def test_an_empty_answer_has_no_fields() -> None:
    rule = Rule("GetPluginInfo", Kind.EMPTY)
    reply = faults.spoil(rule, v1.GetPluginInfoRequest(), v1.GetPluginInfoResponse(name="x"))
    assert bytes(reply) == b""


def test_capabilities_can_be_taken_away() -> None:
    kind = v1.ControllerServiceCapabilityRpcType
    reply = v1.ControllerGetCapabilitiesResponse(
        capabilities=[
            v1.ControllerServiceCapability(rpc=v1.ControllerServiceCapabilityRpc(type=one))
            for one in (kind.LIST_VOLUMES, kind.EXPAND_VOLUME)
        ]
    )
    rule = Rule("ControllerGetCapabilities", Kind.WITHOUT, value="EXPAND_VOLUME")
    left = faults.spoil(rule, v1.ControllerGetCapabilitiesRequest(), reply)
    assert isinstance(left, v1.ControllerGetCapabilitiesResponse)
    assert [one.rpc.type for one in left.capabilities if one.rpc] == [kind.LIST_VOLUMES]


def test_a_snapshot_can_be_said_not_to_be_ready() -> None:
    snapshot = v1.Snapshot(snapshot_id="s", ready_to_use=True)
    group = v1.VolumeGroupSnapshot(snapshots=[snapshot], ready_to_use=True)
    reply = v1.CreateVolumeGroupSnapshotResponse(group_snapshot=group)
    rule = Rule("CreateVolumeGroupSnapshot", Kind.NOT_READY)
    faults.spoil(rule, v1.CreateVolumeGroupSnapshotRequest(), reply)
    assert (group.ready_to_use, snapshot.ready_to_use) == (False, False)
