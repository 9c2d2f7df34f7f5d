import json
import logging

import pytest
from bitts.core import logs
from bitts.csi import calllog, redact, v1
from bitts.csi._generated import secret_fields
from bitts.rpc import calls
from bitts.rpc.codes import Code, RpcError

SECRET = "correct horse battery staple"


def create(**fields: object) -> v1.CreateVolumeRequest:
    return v1.CreateVolumeRequest(name="pvc-1", secrets={"password": SECRET}, **fields)  # type: ignore[arg-type]


def test_a_message_is_one_line_with_the_names_of_the_proto_file() -> None:
    mode = v1.VolumeCapabilityAccessModeMode.SINGLE_NODE_WRITER
    request = create(
        capacity_range=v1.CapacityRange(required_bytes=1 << 40),
        volume_capabilities=[
            v1.VolumeCapability(
                mount=v1.VolumeCapabilityMountVolume(mount_flags=["ro\nx"]),
                access_mode=v1.VolumeCapabilityAccessMode(mode=mode),
            )
        ],
        accessibility_requirements=v1.TopologyRequirement(
            requisite=[v1.Topology(segments={"zone": "a"})]
        ),
    )
    text = redact.render(request)
    assert "\n" not in text
    assert json.loads(text) == {
        "name": "pvc-1",
        "capacity_range": {"required_bytes": 1 << 40},
        "volume_capabilities": [
            {
                "mount": {"mount_flags": ["ro\nx"]},
                "access_mode": {"mode": "SINGLE_NODE_WRITER"},
            }
        ],
        "secrets": "***stripped***",
        "accessibility_requirements": {"requisite": [{"segments": {"zone": "a"}}]},
    }


@pytest.mark.parametrize("name", sorted(secret_fields.SECRET_FIELDS))
def test_no_message_shows_its_secrets(name: str) -> None:
    message = getattr(v1, name)(secrets={"key": SECRET})
    assert redact.render(message) == '{"secrets":"***stripped***"}'
    assert redact.scrub(message, f"bad {SECRET}!") == "bad ***stripped***!"


def test_empty_members_of_a_oneof_are_shown_and_unset_fields_are_not() -> None:
    block = v1.VolumeCapability(block=v1.VolumeCapabilityBlockVolume())
    assert redact.render(block) == '{"block":{}}'
    assert redact.render(v1.ProbeRequest()) == "{}"
    assert redact.render(v1.CreateVolumeRequest(secrets={})) == "{}"


def test_absent_and_false_differ() -> None:
    assert redact.render(v1.ProbeResponse()) == "{}"
    assert redact.render(v1.ProbeResponse(ready=v1.BoolValue(value=False))) == '{"ready":{}}'


def test_unknown_enum_numbers_are_shown_as_numbers() -> None:
    usage = v1.VolumeUsage.parse(b"\x20\x63")
    assert redact.render(usage) == '{"unit":99}'


def test_no_message_is_null() -> None:
    assert redact.render(None) == "null"


def test_a_long_message_is_cut_between_characters() -> None:
    message = v1.DeleteVolumeRequest(volume_id="ä" * 50)
    assert redact.render(message, 21) == '{"volume_id":"äää… (116 bytes in all)'
    assert redact.render(message, 116) == redact.render(message)


def test_scrubbing_finds_secrets_in_nested_text_and_longer_ones_first() -> None:
    request = v1.NodeStageVolumeRequest(secrets={"a": "abc", "b": "abcdef", "c": "x", "d": ""})
    assert redact.scrub(request, "abcdef abc x") == "***stripped*** ***stripped*** x"


def test_scrubbing_looks_into_lists_and_messages() -> None:
    request = v1.CreateVolumeRequest(
        volume_capabilities=[v1.VolumeCapability()], secrets={"k": SECRET}
    )
    assert SECRET not in redact.scrub(request, SECRET)


def call(reply: v1.ProbeResponse | None, error: RpcError | None = None) -> calls.Call:
    return calls.Call(7, "/csi.v1.Controller/CreateVolume", create(), reply, error, 0.5)


def fields(record: logging.LogRecord) -> dict[str, object]:
    found: dict[str, object] = record.__dict__["fields"]
    return found


def test_calls_are_logged_at_verbosity_five(caplog: pytest.LogCaptureFixture) -> None:
    log = calllog.CallLog(logs.get("csi"), limit=40)
    with caplog.at_level(logging.INFO - 5, "bitts"):
        log.started(call(None))
        log.ended(call(v1.ProbeResponse()))
        log.ended(call(None, RpcError(Code.ABORTED, "busy")))
    sent, answered, failed = caplog.records
    assert [one.getMessage() for one in caplog.records] == ["GRPC call", *["GRPC response"] * 2]
    assert fields(sent)["request"] == '{"name":"pvc-1","secrets":"***stripped**… (43 bytes in all)'
    assert fields(answered)["response"] == "{}"
    assert fields(answered)["err"] is None
    assert fields(failed)["err"] == RpcError(Code.ABORTED, "busy")
    assert {fields(one)["call"] for one in caplog.records} == {7}


def test_nothing_is_rendered_below_verbosity_five(caplog: pytest.LogCaptureFixture) -> None:
    class Unreadable:
        def __bytes__(self) -> bytes:
            return b""

        def __getattribute__(self, name: str) -> object:
            raise AssertionError(f"{name} was looked at")

    unread = calls.Call(1, "/m", Unreadable())  # type: ignore[arg-type]
    log = calllog.CallLog(logs.get("csi"))
    with caplog.at_level(logging.INFO - 4, "bitts"):
        log.started(unread)
        log.ended(unread)
    assert caplog.records == []
