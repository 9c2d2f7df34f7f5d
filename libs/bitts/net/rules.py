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
_TO_TABLE = 1
_TABLE_IN_HEADER = 256


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule for one source address; None for rules about anything else."""

    version: int
    table: int
    source: IpAddress | None = None


def add(rule: Rule) -> Message:
    """Add a rule in front of those that are there; an equal one is an error."""
    return Message(NEW, wire.CREATE | wire.EXCLUSIVE, _body(rule))


def remove(rule: Rule) -> Message:
    """Remove a rule."""
    return Message(DELETE, 0, _body(rule))


def _body(rule: Rule) -> bytes:
    assert rule.source is not None
    table = rule.table if rule.table < _TABLE_IN_HEADER else 0
    family, length = FAMILIES[rule.version], rule.source.max_prefixlen
    header = _INFO.pack(family, 0, length, 0, table, 0, 0, _TO_TABLE, 0)
    return header + wire.attribute(_SOURCE, rule.source.packed) + wire.u32(_TABLE, rule.table)


def every() -> Message:
    """Ask for the rules of both IP versions."""
    return Message(GET, 0, _INFO.pack(0, 0, 0, 0, 0, 0, 0, 0, 0))


def decode(reply: Reply) -> Rule | None:
    """Read a rule; None for a family that is not IP."""
    family, _, length, _, table, _, _, _, _ = _INFO.unpack_from(reply.body)
    version = next((v for v, number in FAMILIES.items() if number == family), 0)
    if not version:
        return None
    found = wire.attributes(reply.body[_INFO.size :])
    source = found.get(_SOURCE)
    address = None
    if source is not None and length == len(source) * 8:
        address = ipaddress.ip_address(bytes(source))
    return Rule(version, wire.number(found.get(_TABLE), table), address)
