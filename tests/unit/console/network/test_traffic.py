"""Packets and connections between namespaces; here inside the one that the test runs in."""

import socket

import pytest
from bitts_console.network import traffic
from hypothesis import given
from hypothesis import strategies as st

OWN = "/proc/self/ns/net"


@given(st.integers(0, 0xFFFF))
def test_an_echo_request_has_a_checksum_that_adds_up(identifier: int) -> None:
    packet = traffic.echo_request(identifier)
    words = [int.from_bytes(packet[at : at + 2], "big") for at in range(0, len(packet), 2)]
    total = sum(words)
    assert (total & 0xFFFF) + (total >> 16) == 0xFFFF


@given(st.binary(max_size=64), st.integers(0, 0xFFFF))
def test_any_packet_can_be_looked_at(packet: bytes, identifier: int) -> None:
    header = bytes([0x45]) + bytes(19)
    reply = header + bytes([0, 0, 0, 0]) + identifier.to_bytes(2, "big") + bytes(2)
    assert traffic.is_reply(reply, identifier)
    assert not traffic.is_reply(reply, identifier ^ 1)
    traffic.is_reply(packet, identifier)


@pytest.mark.root
async def test_a_server_sends_its_name_and_the_bytes_asked_for() -> None:
    with traffic.make(OWN, socket.SOCK_STREAM) as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    async with traffic.serving(OWN, port, "me"):
        found = await traffic.fetch(OWN, "127.0.0.1", port, 600_000)
    assert (found.server, found.size) == ("me", 600_000)
    with pytest.raises(traffic.TrafficError, match=f"port {port}"):
        await traffic.fetch(OWN, "127.0.0.1", port, 1)
