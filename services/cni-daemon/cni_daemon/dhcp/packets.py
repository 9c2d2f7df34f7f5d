"""DHCP messages as bytes and back (pure; RFC 2131, 2132, 3396).

Everything from a network is read with suspicion: ``decode`` takes any bytes and either returns
a message or raises PacketError.
"""

import enum
import ipaddress
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field

IPv4 = ipaddress.IPv4Address
NOWHERE = IPv4(0)
EVERYBODY = IPv4(0xFFFFFFFF)
SERVER_PORT, CLIENT_PORT = 67, 68

_FIXED = struct.Struct("!BBBBIHH4s4s4s4s16s64s128s4s")
_COOKIE = bytes.fromhex("63825363")
_IP = struct.Struct("!BBHHHBBH4s4s")
_UDP = struct.Struct("!HHHH")
_BROADCAST = 0x8000
_ETHERNET, _MAC_SIZE = 1, 6
_SMALLEST = 300
"""Bytes below which relays and servers of old drop a message."""

_OPTION_LIMIT = 255
_PROTOCOL_UDP = 17


class PacketError(ValueError):
    """Bytes are no DHCP message for us."""


class Kind(enum.IntEnum):
    """The message types."""

    DISCOVER = 1
    OFFER = 2
    REQUEST = 3
    DECLINE = 4
    ACK = 5
    NAK = 6
    RELEASE = 7
    INFORM = 8


class Option(enum.IntEnum):
    """The options that are used here, by their numbers."""

    PAD = 0
    SUBNET_MASK = 1
    ROUTERS = 3
    HOST_NAME = 12
    STATIC_ROUTES = 33
    REQUESTED_ADDRESS = 50
    LEASE_TIME = 51
    OVERLOAD = 52
    MESSAGE_TYPE = 53
    SERVER = 54
    PARAMETERS = 55
    MESSAGE = 56
    MAXIMUM_SIZE = 57
    RENEWAL_TIME = 58
    REBINDING_TIME = 59
    VENDOR_CLASS = 60
    CLIENT_ID = 61
    USER_CLASS = 77
    CLASSLESS_ROUTES = 121
    END = 255


@dataclass(frozen=True, slots=True)
class Packet:
    """One message. ``yours`` is what the server gives, ``client`` what the client has."""

    kind: Kind
    transaction: int
    mac: str
    options: Mapping[int, bytes] = field(default_factory=dict)
    client: IPv4 = NOWHERE
    yours: IPv4 = NOWHERE
    seconds: int = 0
    is_reply: bool = False
    wants_broadcast: bool = False

    def address(self, option: Option) -> IPv4 | None:
        """Return an option that is one address."""
        value = self.options.get(option, b"")
        return IPv4(value) if len(value) == 4 else None

    def number(self, option: Option) -> int | None:
        """Return an option that is a 32-bit number."""
        value = self.options.get(option, b"")
        return int.from_bytes(value, "big") if len(value) == 4 else None


def encode(packet: Packet) -> bytes:
    """Return the bytes of a message. Raises ValueError for an option that is too long."""
    fixed = _FIXED.pack(
        2 if packet.is_reply else 1, _ETHERNET, _MAC_SIZE, 0, packet.transaction, packet.seconds,
        _BROADCAST if packet.wants_broadcast else 0, packet.client.packed, packet.yours.packed,
        bytes(4), bytes(4), bytes.fromhex(packet.mac.replace(":", "")), b"", b"", _COOKIE,
    )  # fmt: skip
    parts = [_option(Option.MESSAGE_TYPE, bytes([packet.kind]))]
    parts += [_option(code, value) for code, value in packet.options.items()]
    return (fixed + b"".join(parts) + bytes([Option.END])).ljust(_SMALLEST, b"\0")


def _option(code: int, value: bytes) -> bytes:
    if len(value) > _OPTION_LIMIT:
        raise ValueError(f"option {code} is longer than {_OPTION_LIMIT} bytes")
    return bytes([code, len(value)]) + value


def decode(data: bytes) -> Packet:
    """Read a message. Raises PacketError."""
    if len(data) < _FIXED.size:
        raise PacketError("too short")
    (
        operation, hardware, size, _, transaction, seconds, flags, client, yours, _, _, mac,
        name, file, cookie,
    ) = _FIXED.unpack_from(data)  # fmt: skip
    if cookie != _COOKIE or hardware != _ETHERNET or size != _MAC_SIZE:
        raise PacketError("no DHCP on Ethernet")
    options = _options(data[_FIXED.size :])
    overload = options.pop(Option.OVERLOAD, b"\0")[:1]
    for bit, where in ((1, file), (2, name)):
        if overload and overload[0] & bit:
            for code, value in _options(where).items():
                options[code] = options.get(code, b"") + value
    said = options.pop(Option.MESSAGE_TYPE, b"")
    try:
        kind = Kind(said[0]) if len(said) == 1 else None
    except ValueError:
        kind = None
    if kind is None:
        raise PacketError("no type that is known")
    return Packet(
        kind, transaction, bytes(mac[:_MAC_SIZE]).hex(":"), options, IPv4(client), IPv4(yours),
        seconds, operation == 2, bool(flags & _BROADCAST),
    )  # fmt: skip


def _options(data: bytes) -> dict[int, bytes]:
    """Read options; one that comes in parts is joined (RFC 3396)."""
    found: dict[int, bytes] = {}
    at = 0
    while at < len(data):
        code = data[at]
        if code == Option.END:
            return found
        at += 1
        if code == Option.PAD:
            continue
        if at >= len(data) or at + 1 + data[at] > len(data):
            raise PacketError(f"option {code} is cut off")
        found[code] = found.get(code, b"") + data[at + 1 : at + 1 + data[at]]
        at += 1 + data[at]
    return found


def framed(payload: bytes, source: IPv4 = NOWHERE, destination: IPv4 = EVERYBODY) -> bytes:
    """Return a client's message as an IP datagram, for a link that has no address yet."""
    udp = _UDP.pack(CLIENT_PORT, SERVER_PORT, _UDP.size + len(payload), 0) + payload
    pseudo = source.packed + destination.packed + struct.pack("!BBH", 0, _PROTOCOL_UDP, len(udp))
    udp = udp[:6] + struct.pack("!H", _checksum(pseudo + udp) or 0xFFFF) + udp[8:]
    head = _IP.pack(
        0x45, 0x10, _IP.size + len(udp), 0, 0, 64, _PROTOCOL_UDP, 0, source.packed,
        destination.packed,
    )  # fmt: skip
    return head[:10] + struct.pack("!H", _checksum(head)) + head[12:] + udp


def unframed(datagram: bytes) -> bytes:
    """Return the payload of a datagram for a client's port. Raises PacketError.

    Checksums are not looked at: on virtual links they are filled in later or never.
    """
    if len(datagram) < _IP.size or datagram[0] >> 4 != 4:
        raise PacketError("no IPv4")
    size = (datagram[0] & 0xF) * 4
    total = int.from_bytes(datagram[2:4], "big")
    is_fragment = int.from_bytes(datagram[6:8], "big") & 0x3FFF
    if datagram[9] != _PROTOCOL_UDP or is_fragment or size < _IP.size:
        raise PacketError("no whole UDP datagram")
    udp = datagram[size:total]
    if len(udp) < _UDP.size:
        raise PacketError("no UDP header")
    _, port, length, _ = _UDP.unpack_from(udp)
    if port != CLIENT_PORT or not _UDP.size <= length <= len(udp):
        raise PacketError("not for a DHCP client")
    return udp[_UDP.size : length]


def _checksum(data: bytes) -> int:
    if len(data) % 2:
        data += b"\0"
    total: int = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF
