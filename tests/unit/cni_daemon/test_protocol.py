"""Frames of the shim, requests in them, and chains: read, or refused in words."""

import contextlib
import json
from typing import Any

import pytest
from bitts.cni.errors import CniError
from cni_daemon import chain, protocol, records, requests
from cni_daemon.protocol import Frame, FrameError
from hypothesis import given, settings
from hypothesis import strategies as st
from support import cnicalls

ENVIRONMENT = {
    "CNI_COMMAND": "ADD",
    "CNI_CONTAINERID": "c1",
    "CNI_NETNS": "/run/netns/x",
    "CNI_IFNAME": "eth0",
    "CNI_PATH": "/opt/cni/bin",
}


def frame(document: Any, plugin: str = "bridge", **environ: str) -> Frame:
    stdin = document if isinstance(document, bytes) else json.dumps(document).encode()
    return Frame("00" * 16, plugin, {**ENVIRONMENT, **environ}, stdin)


_text = st.text(st.characters(blacklist_characters="\0=", blacklist_categories=["Cs"]), max_size=9)


@settings(max_examples=100)
@given(
    nonce=st.binary(min_size=16, max_size=16),
    plugin=_text.filter(bool),
    environ=st.dictionaries(_text.filter(bool), _text, max_size=5),
    stdin=st.binary(max_size=50),
)
def test_frames_survive(nonce: bytes, plugin: str, environ: dict[str, str], stdin: bytes) -> None:
    sent = Frame(nonce.hex(), plugin, environ, stdin)
    assert protocol.decode(protocol.encode(sent)) == sent


@settings(max_examples=200)
@given(st.binary(max_size=100))
def test_any_bytes_are_a_frame_or_refused(data: bytes) -> None:
    with contextlib.suppress(FrameError):
        protocol.decode(data)
    with contextlib.suppress(FrameError):
        protocol.decode(protocol.HEADER.pack(b"BCN1", max(1, len(data)), b"n" * 16) + data)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"GET / HTTP/1.1\r\n\r\n123456", "not a request"),
        (protocol.HEADER.pack(b"BCN1", 1 << 30, b"n" * 16), "at most"),
        (protocol.HEADER.pack(b"BCN1", 0, b"n" * 16), "at most"),
        (protocol.HEADER.pack(b"BCN1", 9, b"n" * 16) + b"bridge", "were announced"),
        (protocol.HEADER.pack(b"BCN1", 6, b"n" * 16) + b"bridge", "end of its environment"),
        (protocol.HEADER.pack(b"BCN1", 10, b"n" * 16) + b"bridge\0A\0\0", "no value"),
        (protocol.HEADER.pack(b"BCN1", 302, b"n" * 16) + b"b" * 300 + b"\0\0", "absurd"),
        (b"short", "within its header"),
    ],
)
def test_frames_with_mistakes_are_refused(data: bytes, message: str) -> None:
    with pytest.raises(FrameError, match=message):
        protocol.decode(data)


def test_a_request_is_checked() -> None:
    found = requests.read(frame({"name": "n", "cniVersion": "1.0.0", "type": "bridge"}))
    assert (found.plugin, found.config.name, found.invocation.ifname) == ("bridge", "n", "eth0")


@pytest.mark.parametrize(
    ("wrong", "code", "text"),
    [
        (frame({}, plugin="weave"), 7, "no plugin 'weave' is served here"),
        (frame({}, plugin="../bridge"), 7, "invalid plugin name"),
        (frame({}, CNI_CONTAINERID="a/../b"), 4, "invalid characters in containerID"),
        (frame({}, CNI_IFNAME="../x"), 4, "interface name contains"),
        (frame({}), 7, "missing network name"),
        (frame(b"\xff\xfe"), 6, "error unmarshall network config"),
        (frame({"name": "n", "cniVersion": "3.0.0"}), 1, "incompatible CNI versions"),
    ],
)
def test_wrong_requests_are_refused(wrong: Frame, code: int, text: str) -> None:
    with pytest.raises(CniError) as caught:
        requests.read(wrong)
    assert caught.value.code == code
    assert text in str(caught.value)


def test_versions_are_told_whatever_else_is_wrong() -> None:
    asked = frame(b"", plugin="host-local", CNI_COMMAND="VERSION")
    assert requests.is_version(asked)
    assert "0.1.0" in requests.version_document("host-local")["supportedVersions"]  # type: ignore[operator]


def stages(document: dict[str, Any], plugin: str) -> tuple[chain.Stage, ...]:
    whole = {"name": "n", "cniVersion": "1.0.0", "type": plugin, **document}
    return chain.stages(requests.read(frame(whole, plugin)), cnicalls.draws())


def test_a_plugin_is_one_stage_and_a_chain_several() -> None:
    assert [s.plugin.type for s in stages({"ipam": {"type": "static"}}, "bridge")] == ["bridge"]
    assert stages({"ipam": {"type": "static"}}, "bridge")[0].ipam == "static"
    several = stages(
        {
            "plugins": [
                {"type": "bridge", "capabilities": {"mac": True}},
                {"type": "loopback", "capabilities": {"mac": False}},
            ],
            "runtimeConfig": {"mac": "02:00:00:00:00:01"},
        },
        "bitts",
    )
    assert [each.plugin.type for each in several] == ["bridge", "loopback"]
    assert several[0].call.config.document["name"] == "n"
    assert several[0].call.runtime.text("mac") == "02:00:00:00:00:01"
    assert several[1].call.runtime.text("mac") == ""


@pytest.mark.parametrize(
    ("document", "plugin", "text"),
    [
        ({}, "bitts", "needs a list of plugins"),
        ({"plugins": [{"type": "weave"}]}, "bitts", "no plugin 'weave'"),
        ({"plugins": [3]}, "bitts", "into an object"),
        ({}, "ptp", "no plugin name provided"),
        ({"mtu": "1500"}, "bridge", "failed to load netconf: mtu"),
    ],
)
def test_chains_with_mistakes_are_refused(document: dict[str, Any], plugin: str, text: str) -> None:
    with pytest.raises(CniError, match=text):
        stages(document, plugin)


def test_an_attachment_is_named_by_what_is_configured_not_by_what_is_passed_along() -> None:
    def key(**more: Any) -> records.Key:
        document = {"name": "n", "cniVersion": "1.0.0", "type": "bridge", **more}
        return chain.key(requests.read(frame(document)))

    assert key() == key(prevResult={"ips": []}) == key(runtimeConfig={"mac": "x"})
    assert key() != key(mtu=1400)
    assert key().type == key(mtu=1400).type == "bridge"


@pytest.mark.parametrize(
    ("command", "only_asks"),
    [("STATUS", True), ("VERSION", True), ("ADD", False), ("DEL", False), ("GC", False)],
)
def test_questions_about_us_are_told_from_work(command: str, only_asks: bool) -> None:
    data = protocol.encode(frame({"CNI_COMMAND=STATUS": "\0"}, CNI_COMMAND=command))
    assert protocol.only_asks(data) == only_asks


@settings(max_examples=100)
@given(st.binary(max_size=99))
def test_what_is_no_frame_asks_for_nothing_or_is_refused_later(data: bytes) -> None:
    if protocol.only_asks(data):
        assert b"CNI_COMMAND=" in data


def test_of_two_commands_the_one_that_is_carried_out_counts() -> None:
    body = b"bridge\0CNI_COMMAND=STATUS\0CNI_COMMAND=ADD\0\0{}"
    data = protocol.HEADER.pack(protocol.MAGIC, len(body), bytes(16)) + body
    assert protocol.decode(data).environment["CNI_COMMAND"] == "ADD"
    assert not protocol.only_asks(data)
