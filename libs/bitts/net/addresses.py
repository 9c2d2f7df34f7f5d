"""Addresses of links (``linux/if_addr.h``)."""

import functools
import ipaddress
import struct
from dataclasses import dataclass

from bitts.net import wire
from bitts.net.wire import Message, Reply

IpInterface = ipaddress.IPv4Interface | ipaddress.IPv6Interface

NEW, DELETE, GET = 20, 21, 22
NO_DAD = 0x02
TENTATIVE = 0x40
DAD_FAILED = 0x08
PERMANENT = 0x80
GLOBAL = 0
"""The scope of addresses that are good everywhere."""

_INFO = struct.Struct("=BBBBi")
_ADDRESS, _LOCAL, _FLAGS, _TARGET_NETNS = 1, 2, 8, 10
_REMEMBERED = 512  # a node looks at the same few addresses of its own again and again
FAMILIES = {4: 2, 6: 10}
"""Address families by IP version."""


@dataclass(frozen=True, slots=True)
class Address:
    """An address on a link, with the kernel's scope and flags."""

    index: int
    interface: IpInterface
    scope: int = 0
    flags: int = 0


def add(
    index: int, interface: IpInterface, *, skips_dad: bool = False, exclusive: bool = True
) -> Message:
    """Give a link an address; ``skips_dad`` makes an IPv6 address usable at once.

    One that it has already is an error (``exclusive``) or stays.
    """
    flags = wire.CREATE | (wire.EXCLUSIVE if exclusive else wire.REPLACE)
    return Message(NEW, flags, _body(index, interface, skips_dad))


def remove(index: int, interface: IpInterface) -> Message:
    """Take an address from a link."""
    return Message(DELETE, 0, _body(index, interface, skips_dad=False))


def _body(index: int, interface: IpInterface, skips_dad: bool) -> bytes:  # noqa: FBT001
    packed = interface.ip.packed
    flags = NO_DAD if skips_dad and interface.version != 4 else 0
    header = _INFO.pack(FAMILIES[interface.version], interface.network.prefixlen, flags, 0, index)
    return header + wire.attribute(_LOCAL, packed) + wire.attribute(_ADDRESS, packed)


def of_link(index: int = 0, *, netns: int | None = None) -> Message:
    """Ask for the addresses of one link, or of all (0).

    ``netns`` is the number by which this namespace knows another one (``Link.peer_netns``).
    """
    elsewhere = b"" if netns is None else wire.u32(_TARGET_NETNS, netns)
    return Message(GET, 0, _INFO.pack(0, 0, 0, 0, index) + elsewhere)


@wire.decoder("an address")
def decode(reply: Reply) -> Address | None:
    """Read an address; None for a family that is not IP. Raises NetlinkError."""
    family, length, flags, scope, index = _INFO.unpack_from(reply.body)
    found = wire.attributes(reply.body[_INFO.size :])
    packed = found.get(_LOCAL, found.get(_ADDRESS))
    if packed is None or family not in FAMILIES.values():
        return None
    interface = _interface(bytes(packed), length)
    return Address(index, interface, scope, wire.number(found.get(_FLAGS), flags))


@functools.lru_cache(_REMEMBERED)
def _interface(packed: bytes, length: int) -> IpInterface:
    if len(packed) == ipaddress.IPV4LENGTH // 8:
        return ipaddress.IPv4Interface((packed, length))
    return ipaddress.IPv6Interface((packed, length))
