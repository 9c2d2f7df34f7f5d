"""Elements of nftables sets and maps, packed by hand; rule sets by the ``nft`` program.

A pod is one element in a few sets, so elements are what changes all the time: 13 µs each,
against 4 ms for a run of ``nft``. The rules around them are written once, as text.
"""

import functools
import ipaddress
import struct
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

from bitts.net import wire
from bitts.net.errors import NetlinkError
from bitts.net.wire import Message, Reply

IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address

INET, IPV4, IPV6, BRIDGE, NETDEV = 1, 2, 10, 7, 5
_SUBSYSTEM = 0x0A00
_GET_RULE, _GET_SET = _SUBSYSTEM | 7, _SUBSYSTEM | 10
_NEW_ELEMENT, _GET_ELEMENT, _DELETE_ELEMENT = _SUBSYSTEM | 12, _SUBSYSTEM | 13, _SUBSYSTEM | 14
_GOTO = -4 & 0xFFFFFFFF
_HEADER_SIZE = 4
_SCRIPT_TIMEOUT = 55.0
_ERROR_LINES = 4
_EMPTY = memoryview(b"")
_REMEMBERED = 256  # sets and maps are few


@dataclass(frozen=True, slots=True)
class Goto:
    """A verdict: go on in another chain."""

    chain: str


Data: TypeAlias = bytes | Goto | None


@dataclass(frozen=True, slots=True)
class Element:
    """A member of a set (no data), or an entry of a map. Keys are as the kernel stores them."""

    key: bytes
    data: Data = None


@dataclass(frozen=True, slots=True)
class Container:
    """The set or map that elements belong to."""

    table: str
    name: str
    family: int = INET


def concatenated(*parts: bytes) -> bytes:
    """Return a key or value of several fields: each is padded to four bytes."""
    return b"".join(part + bytes(-len(part) % 4) for part in parts)


def service(number: int) -> bytes:
    """Return a port as an ``inet_service`` field."""
    return struct.pack("!H", number)


def add(container: Container, elements: Iterable[Element]) -> Message:
    """Add elements; one that is there with the same data is fine."""
    return Message(_NEW_ELEMENT, wire.CREATE, _body(container, elements))


def remove(container: Container, elements: Iterable[Element]) -> Message:
    """Remove elements by their keys; one that is missing fails the transaction (ENOENT)."""
    return Message(_DELETE_ELEMENT, 0, _body(container, elements))


def get(container: Container, key: bytes) -> Message:
    """Ask for one element by its key; a missing one, or a missing set, is an error (ENOENT)."""
    return Message(_GET_ELEMENT, 0, _body(container, [Element(key)]))


def every(container: Container) -> Message:
    """Ask for all elements of a set or map."""
    return Message(_GET_ELEMENT, 0, _body(container, []))


def sets(table: str, family: int = INET) -> Message:
    """Ask for all sets and maps of a table; one that is missing is an error or has none."""
    return Message(_GET_SET, 0, struct.pack("=BBH", family, 0, 0) + wire.text(1, table))


@dataclass(frozen=True, slots=True)
class Placed:
    """A rule as far as it matters to find it again: where it stands, and the chain it leads to."""

    family: int
    table: str
    chain: str
    target: str = ""


def rules(table: str, family: int = INET) -> Message:
    """Ask for all rules of a table; one that is missing is an error or has none."""
    return Message(_GET_RULE, 0, struct.pack("=BBH", family, 0, 0) + wire.text(1, table))


@wire.decoder("an nftables rule")
def decode_rule(reply: Reply) -> Placed:
    """Read where a rule stands and where it leads. Raises NetlinkError."""
    found = wire.attributes(reply.body[_HEADER_SIZE:])
    target = ""
    for each in wire.listed(found.get(4, memoryview(b""))):
        expression = wire.attributes(each)
        if wire.string(expression.get(1)) == "immediate":
            data = wire.attributes(wire.attributes(expression.get(2, _EMPTY)).get(2, _EMPTY))
            target = wire.string(wire.attributes(data.get(2, _EMPTY)).get(2)) or target
    return Placed(reply.body[0], wire.string(found.get(1)), wire.string(found.get(2)), target)


@wire.decoder("an nftables set")
def decode_set(reply: Reply) -> Container:
    """Read which set an answer describes. Raises NetlinkError."""
    family = reply.body[0]
    found = wire.attributes(reply.body[_HEADER_SIZE:])
    return Container(wire.string(found.get(1)), wire.string(found.get(2)), family)


@wire.decoder("nftables elements")
def decode(reply: Reply) -> list[Element]:
    """Read the elements of an answer; of verdicts only those that go to a chain are told.

    Raises NetlinkError.
    """
    found = wire.attributes(reply.body[_HEADER_SIZE:])
    return [_decoded(each) for each in wire.listed(found.get(3, memoryview(b"")))]


def _decoded(view: memoryview) -> Element:
    parts = wire.attributes(view)
    key = wire.attributes(parts.get(1, memoryview(b""))).get(1, memoryview(b""))
    if 2 not in parts:
        return Element(bytes(key))
    data = wire.attributes(parts[2])
    if 2 in data:
        return Element(bytes(key), Goto(wire.string(wire.attributes(data[2]).get(2))))
    return Element(bytes(key), bytes(data.get(1, memoryview(b""))))


def _body(container: Container, elements: Iterable[Element]) -> bytes:
    listed = b"".join([wire.attribute(1 | wire.NESTED, _element(each)) for each in elements])
    return _head(container) + (wire.attribute(3 | wire.NESTED, listed) if listed else b"")


@functools.lru_cache(_REMEMBERED)
def _head(container: Container) -> bytes:
    return (
        struct.pack("=BBH", container.family, 0, 0)
        + wire.text(1, container.table)
        + wire.text(2, container.name)
    )


def _element(element: Element) -> bytes:
    packed = wire.nested(1 | wire.NESTED, wire.attribute(1, element.key))
    if element.data is None:
        return packed
    if isinstance(element.data, Goto):
        code = wire.attribute(1, struct.pack("!I", _GOTO))
        value = wire.nested(2 | wire.NESTED, code, wire.text(2, element.data.chain))
    else:
        value = wire.attribute(1, element.data)
    return packed + wire.nested(2 | wire.NESTED, value)


def apply(script: str) -> None:
    """Run an nft script as one transaction. Blocks. Raises NetlinkError with nft's words."""
    try:
        done = subprocess.run(
            ["nft", "-f", "-"],
            input=script,
            text=True,
            capture_output=True,
            timeout=_SCRIPT_TIMEOUT,
            check=False,
        )
    except FileNotFoundError:
        raise NetlinkError(2, "nft is missing: install nftables 1.0 or newer") from None
    except subprocess.TimeoutExpired:
        raise NetlinkError(110, f"nft did not end within {_SCRIPT_TIMEOUT:g} seconds") from None
    if done.returncode:
        words = " / ".join(done.stderr.strip().splitlines()[:_ERROR_LINES])
        raise NetlinkError(22, "nft refused the rules", words)
