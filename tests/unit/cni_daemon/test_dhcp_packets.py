"""DHCP messages as bytes: everything comes back, and nothing that comes breaks anything."""

import ipaddress

import pytest
from cni_daemon.dhcp import packets
from cni_daemon.dhcp.packets import Kind, Option, Packet, PacketError
from hypothesis import given
from hypothesis import strategies as st

ADDRESSES = st.integers(0, 2**32 - 1).map(ipaddress.IPv4Address)
CODES = st.integers(1, 254).filter(lambda code: code not in (Option.MESSAGE_TYPE, Option.OVERLOAD))
MESSAGES = st.builds(
    Packet,
    st.sampled_from(Kind),
    st.integers(0, 2**32 - 1),
    st.binary(min_size=6, max_size=6).map(lambda data: data.hex(":")),
    st.dictionaries(CODES, st.binary(max_size=255), max_size=8),
    ADDRESSES,
    ADDRESSES,
    st.integers(0, 0xFFFF),
    st.booleans(),
    st.booleans(),
)


@given(MESSAGES, ADDRESSES, ADDRESSES)
def test_what_is_sent_is_what_is_read(
    packet: Packet, source: ipaddress.IPv4Address, destination: ipaddress.IPv4Address
) -> None:
    data = packets.encode(packet)
    assert packets.decode(data) == packet
    datagram = packets.framed(data, source, destination)
    back = bytearray(datagram)
    back[20:24] = back[22:24] + back[20:22]  # an answer goes the other way
    assert packets.unframed(bytes(back)) == data


@given(st.binary(max_size=700))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    for read in (packets.decode, packets.unframed):
        try:
            read(data)
        except PacketError:
            continue


@given(MESSAGES, st.data())
def test_damage_is_read_or_refused(packet: Packet, data: st.DataObject) -> None:
    whole = bytearray(packets.encode(packet))
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(whole[: data.draw(st.integers(0, len(whole)))])
    try:
        packets.decode(cut)
    except PacketError:
        return


def test_checksums_are_those_of_the_standard() -> None:
    datagram = packets.framed(b"odd", ipaddress.IPv4Address("10.0.0.1"))
    assert packets._checksum(datagram[:20]) == 0
    udp = datagram[20:]
    pseudo = datagram[12:20] + bytes([0, 17]) + len(udp).to_bytes(2, "big")
    assert packets._checksum(pseudo + udp) == 0


def test_options_in_parts_and_in_other_fields_are_joined() -> None:
    """RFC 3396, and the overload of RFC 2132."""
    plain = bytearray(packets.encode(Packet(Kind.ACK, 1, "02:00:00:00:00:01")))
    options = bytes([53, 1, 5, 121, 2, 1, 2, 52, 1, 3, 121, 1, 3, 255])
    plain[240 : 240 + len(options)] = options
    plain[108 : 108 + 5] = bytes([121, 1, 4, 255, 0])  # file
    plain[44 : 44 + 4] = bytes([12, 1, 65, 255])  # server name
    found = packets.decode(bytes(plain))
    assert found.options[Option.CLASSLESS_ROUTES] == b"\x01\x02\x03\x04"
    assert found.options[Option.HOST_NAME] == b"A"


@pytest.mark.parametrize(
    ("at", "value", "reason"),
    [(1, 6, "no DHCP on Ethernet"), (236, 0, "no DHCP on Ethernet"), (242, 99, "no type"),
     (241, 200, "cut off")],
)  # fmt: skip
def test_what_is_none_of_ours_is_named(at: int, value: int, reason: str) -> None:
    data = bytearray(packets.encode(Packet(Kind.OFFER, 1, "02:00:00:00:00:01")))
    data[at] = value
    with pytest.raises(PacketError, match=reason):
        packets.decode(bytes(data))


def test_a_long_option_is_refused() -> None:
    packet = Packet(Kind.DISCOVER, 1, "02:00:00:00:00:01", {12: bytes(256)})
    with pytest.raises(ValueError, match="option 12 is longer"):
        packets.encode(packet)
