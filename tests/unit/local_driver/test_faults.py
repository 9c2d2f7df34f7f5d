"""Wrong answers: what each kind makes of a right one."""

import pytest
from bitts.csi import v1
from local_driver import faults
from local_driver.faultrules import Kind

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
    reply = faults.spoil(kind, request(), answer())
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
    reply = faults.spoil(Kind.EMPTY, v1.GetPluginInfoRequest(), v1.GetPluginInfoResponse(name="x"))
    assert bytes(reply) == b""
