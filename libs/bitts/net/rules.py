"""Policy routing: which routing table serves packets from an address (``linux/fib_rules.h``)."""

import ipaddress
import struct
from dataclasses import dataclass

from bitts.net import wire
from bitts.net.addresses import FAMILIES
from bitts.net.wire import Message, Reply

IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address

NEW, DELETE, GET = 32, 33, 34

_INFO = struct.Struct("=BBBBBBBBI")
_SOURCE, _PRIORITY, _TABLE = 2, 6, 15
_NOTHING_ASKED = {_SOURCE, _PRIORITY, _TABLE, 13, 14, 21}
"""Attributes that do not narrow a rule: what limits prefixes (13, 14) is off unless set."""

_OFF = 0xFFFFFFFF
_TO_TABLE = 1
_INVERTED = 2
_TABLE_IN_HEADER = 256


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule for one source address; None for rules about anything else.

    ``length`` makes it one for a subnet, and ``priority`` 0 leaves its place to the kernel.
    ``is_narrow`` says that it asks for more than the source.
    """

    version: int
    table: int
    source: IpAddress | None = None
    length: int | None = None
    priority: int = 0
    is_narrow: bool = False


def add(rule: Rule) -> Message:
    """Add a rule in front of those that are there; an equal one is an error."""
    return Message(NEW, wire.CREATE | wire.EXCLUSIVE, _body(rule))


def remove(rule: Rule) -> Message:
    """Remove a rule."""
    return Message(DELETE, 0, _body(rule))


def _body(rule: Rule) -> bytes:
    assert rule.source is not None
    table = rule.table if rule.table < _TABLE_IN_HEADER else 0
    length = rule.source.max_prefixlen if rule.length is None else rule.length
    header = _INFO.pack(FAMILIES[rule.version], 0, length, 0, table, 0, 0, _TO_TABLE, 0)
    priority = wire.u32(_PRIORITY, rule.priority) if rule.priority else b""
    source = wire.attribute(_SOURCE, rule.source.packed)
    return header + source + wire.u32(_TABLE, rule.table) + priority


def every() -> Message:
    """Ask for the rules of both IP versions."""
    return Message(GET, 0, _INFO.pack(0, 0, 0, 0, 0, 0, 0, 0, 0))


@wire.decoder("a routing rule")
def decode(reply: Reply) -> Rule | None:
    """Read a rule; None for a family that is not IP. Raises NetlinkError."""
    family, into, length, service, table, _, _, action, inverted = _INFO.unpack_from(reply.body)
    version = next((v for v, number in FAMILIES.items() if number == family), 0)
    if not version:
        return None
    found = wire.attributes(reply.body[_INFO.size :])
    source = found.get(_SOURCE)
    address = None if source is None else ipaddress.ip_address(bytes(source))
    limits = any(wire.number(found.get(kind), _OFF) != _OFF for kind in (13, 14))
    return Rule(
        version,
        wire.number(found.get(_TABLE), table),
        address,
        None if address is None or length == address.max_prefixlen else length,
        wire.number(found.get(_PRIORITY)),
        bool(into or service or inverted & _INVERTED or limits or found.keys() - _NOTHING_ASKED)
        or action != _TO_TABLE,
    )
