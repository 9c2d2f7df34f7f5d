"""Neighbour and bridge forwarding entries (``linux/neighbour.h``)."""

import ipaddress
import struct

from bitts.net import wire
from bitts.net.addresses import FAMILIES
from bitts.net.links import mac_bytes
from bitts.net.wire import Message

NEW, DELETE = 28, 29
PERMANENT = 0x80
SELF = 0x02
_BRIDGE_FAMILY = 7
_INFO = struct.Struct("=BxxxiHBB")
_DESTINATION, _MAC = 1, 2

IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address


def add(index: int, address: IpAddress, mac: str) -> Message:
    """Fix the MAC address of a neighbour on a link, replacing what is known."""
    header = _INFO.pack(FAMILIES[address.version], index, PERMANENT, 0, 0)
    parts = wire.attribute(_DESTINATION, address.packed) + wire.attribute(_MAC, mac_bytes(mac))
    return Message(NEW, wire.CREATE | wire.REPLACE, header + parts)


def remove(index: int, address: IpAddress) -> Message:
    """Forget a neighbour."""
    header = _INFO.pack(FAMILIES[address.version], index, 0, 0, 0)
    return Message(DELETE, 0, header + wire.attribute(_DESTINATION, address.packed))


def forward(index: int, mac: str, remote: IpAddress) -> Message:
    """Send frames for ``mac`` to a tunnel's remote end."""
    header = _INFO.pack(_BRIDGE_FAMILY, index, PERMANENT, SELF, 0)
    parts = wire.attribute(_MAC, mac_bytes(mac)) + wire.attribute(_DESTINATION, remote.packed)
    return Message(NEW, wire.CREATE | wire.REPLACE, header + parts)
