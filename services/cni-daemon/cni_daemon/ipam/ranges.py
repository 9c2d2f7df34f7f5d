"""Ranges of addresses (pure): checked as host-local checks them, and walked through.

A range is part of a subnet; a range set gives one address; a configuration has several sets,
each of which gives one. Numbers, not address objects, are walked, since a /16 has 65,534.
"""

import ipaddress
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bitts.cni import results
from bitts.cni.documents import Fields

IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
IpNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network

_SMALLEST = 2
"""Bits that a subnet must leave for hosts."""


class RangeError(ValueError):
    """A range makes no sense; the message is host-local's."""


class NoRangesError(RangeError):
    """No range is named at all."""


@dataclass(frozen=True, slots=True)
class Range:
    """Addresses ``start`` to ``end`` of a subnet, the gateway never given."""

    subnet: IpNetwork
    start: IpAddress
    end: IpAddress
    gateway: IpAddress

    def __contains__(self, address: IpAddress) -> bool:
        """Say whether an address lies in the range."""
        return address.version == self.subnet.version and int(self.start) <= int(address) <= int(
            self.end
        )

    def __str__(self) -> str:
        """Render as host-local does in its errors."""
        return f"{self.start}-{self.end}"


RangeSet = tuple[Range, ...]


@dataclass(frozen=True, slots=True)
class Candidate:
    """An address that could be given, and the range it is from."""

    address: IpAddress
    range: Range


def read(fields: Fields) -> Range:
    """Read a range. Raises RangeError, DocumentError."""
    subnet = fields.converted("subnet", results.parse_interface, None)
    if subnet is None:
        raise RangeError("missing subnet")
    return canonical(
        subnet,
        fields.converted("rangeStart", results.parse_address, None),
        fields.converted("rangeEnd", results.parse_address, None),
        fields.converted("gateway", results.parse_address, None),
    )


def canonical(
    subnet: results.IpInterface,
    start: IpAddress | None,
    end: IpAddress | None,
    gateway: IpAddress | None,
) -> Range:
    """Fill in what is not given, and refuse what cannot be. Raises RangeError."""
    network = subnet.network
    if network.max_prefixlen - network.prefixlen < _SMALLEST:
        raise RangeError(f"Network {network} too small to allocate from")
    if subnet.ip != network.network_address:
        raise RangeError(
            f"Network has host bits set. For a subnet mask of length {network.prefixlen} the "
            f"network address is {network.network_address}"
        )
    first = network.network_address + 1
    last = network.broadcast_address - (1 if network.version == 4 else 0)
    _inside(network, gateway, "gateway")
    _inside(network, start, "RangeStart")
    _inside(network, end, "RangeEnd")
    found = Range(network, start or first, end or last, gateway or first)
    if int(found.start) > int(found.end):
        raise RangeError(
            f"RangeStart {found.start} is after RangeEnd {found.end} in network {network}"
        )
    return found


def _inside(network: IpNetwork, address: IpAddress | None, what: str) -> None:
    if address is not None and (address.version != network.version or address not in network):
        raise RangeError(f"{what} {address} not in network {network}")


def check(sets: Sequence[RangeSet]) -> None:
    """Refuse sets that are empty, mixed or overlap. Raises RangeError."""
    for index, one in enumerate(sets):
        try:
            _check_set(one)
        except RangeError as error:
            raise RangeError(f"invalid range set {index}: {error}") from None
    for index, one in enumerate(sets):
        for other in range(index + 1, len(sets)):
            if any(_overlap(a, b) for a in one for b in sets[other]):
                raise RangeError(f"range set {index} overlaps with {other}")


def _check_set(one: RangeSet) -> None:
    if not one:
        raise RangeError("empty range set")
    if len({each.subnet.version for each in one}) > 1:
        raise RangeError("mixed address families")
    for index, first in enumerate(one):
        for second in one[index + 1 :]:
            if _overlap(first, second):
                raise RangeError(f"subnets {first} and {second} overlap")


def _overlap(a: Range, b: Range) -> bool:
    return a.subnet.version == b.subnet.version and (
        int(a.start) <= int(b.end) and int(b.start) <= int(a.end)
    )


def range_of(one: RangeSet, address: IpAddress) -> Range | None:
    """Return the range of a set that holds an address."""
    return next((each for each in one if address in each), None)


def walk(one: RangeSet, last: IpAddress | None) -> Iterator[Candidate]:
    """Yield every address of a set once, beginning after the one that was given last."""
    origin = next((i for i, each in enumerate(one) if last is not None and last in each), None)
    if origin is None or last is None:
        for each in one:
            yield from _stretch(each, int(each.start), int(each.end))
        return
    first = one[origin]
    yield from _stretch(first, int(last) + 1, int(first.end))
    for step in range(1, len(one)):
        each = one[(origin + step) % len(one)]
        yield from _stretch(each, int(each.start), int(each.end))
    yield from _stretch(first, int(first.start), int(last))


def _stretch(one: Range, start: int, end: int) -> Iterator[Candidate]:
    make = ipaddress.IPv4Address if one.subnet.version == 4 else ipaddress.IPv6Address
    gateway = int(one.gateway)
    for number in range(start, end + 1):
        if number != gateway:
            yield Candidate(make(number), one)


def size(one: RangeSet) -> int:
    """Return how many addresses a set can give."""
    return sum(int(each.end) - int(each.start) + 1 - (each.gateway in each) for each in one)


def render(one: RangeSet) -> str:
    """Render a set as host-local does in its errors."""
    return ",".join(str(each) for each in one)
