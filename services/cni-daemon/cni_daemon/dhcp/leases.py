"""Leases (pure): what a server gave, until when, what that means for the link, what is due.

Times are seconds of CLOCK_BOOTTIME, which goes on while the machine sleeps and through restarts
of the daemon; after a reboot no lease is left.
"""

import enum
import ipaddress
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from bitts.cni.results import Ip, Result, Route
from bitts.net.routes import LINK

from cni_daemon.dhcp.packets import NOWHERE, IPv4, Option, Packet, PacketError

DEFAULT_TIME = 3600.0
"""Seconds of a lease whose server does not say, as the reference plugin assumes."""

INFINITE = 0xFFFFFFFF
_LONGEST_RETRY = 60.0
_RETRY_PART = 24
"""A renewal that failed is tried again after half of what is left, but not sooner than this
part of the lease (a minute at most, which is RFC 2131's least pause for the usual leases)."""


@dataclass(frozen=True, slots=True)
class Lease:
    """One lease, as it is kept in the journal; bytes are written in hex.

    ``end`` is None for one without an end. ``hop`` is the MAC address that the answer came from;
    ``parameters`` and ``provided`` are what is asked for and sent at each renewal.
    """

    address: str
    prefix: int
    server: str
    mac: str
    client_id: str
    acquired: float
    renewal: float
    rebinding: float
    end: float | None
    routers: tuple[str, ...] = ()
    classless: str = ""
    classful: str = ""
    hop: str = ""
    parameters: str = ""
    provided: Mapping[str, str] = field(default_factory=dict)
    tried: float = 0.0

    def document(self) -> dict[str, object]:
        """Return what the journal keeps."""
        return {name: getattr(self, name) for name in self.__slots__}

    def attempted(self, now: float) -> "Lease":
        """Note that a renewal has failed."""
        return replace(self, tried=now)


def from_document(document: Mapping[str, object]) -> Lease:
    """Read what the journal keeps. Raises TypeError, KeyError for what is none."""
    known = {name: document[name] for name in Lease.__slots__ if name in document}
    known["routers"] = tuple(known.get("routers", ()))  # type: ignore[arg-type] # as written
    return Lease(**known)  # type: ignore[arg-type] # as written


def acknowledged(packet: Packet, client_id: str, now: float) -> Lease:
    """Return the lease of an ACK. Raises PacketError where it lacks what a lease must have."""
    server = packet.address(Option.SERVER)
    if server is None or packet.yours == NOWHERE:
        raise PacketError("an ACK without server or address")
    said = packet.number(Option.LEASE_TIME)
    length = DEFAULT_TIME if not said else float(said)
    renewal = packet.number(Option.RENEWAL_TIME) or length / 2
    rebinding = packet.number(Option.REBINDING_TIME) or length * 0.85
    rebinding = min(rebinding, length)
    return Lease(
        address=str(packet.yours),
        prefix=_prefix(packet),
        server=str(server),
        mac=packet.mac,
        client_id=client_id,
        acquired=now,
        renewal=now + min(renewal, rebinding),
        rebinding=now + rebinding,
        end=None if said == INFINITE else now + length,
        routers=tuple(map(str, _addresses(packet.options.get(Option.ROUTERS, b"")))),
        classless=packet.options.get(Option.CLASSLESS_ROUTES, b"").hex(),
        classful=packet.options.get(Option.STATIC_ROUTES, b"").hex(),
    )


def _prefix(packet: Packet) -> int:
    """Return the length of the subnet's prefix; of its class where the server does not say."""
    mask = packet.address(Option.SUBNET_MASK)
    if mask is None:
        return _class_prefix(packet.yours)
    try:
        return ipaddress.IPv4Network((0, str(mask))).prefixlen
    except ValueError:
        raise PacketError(f"subnet mask {mask}") from None


def _class_prefix(address: IPv4) -> int:
    first = int(address) >> 24
    return 8 if first < 128 else 16 if first < 192 else 24


def _addresses(data: bytes) -> Iterator[IPv4]:
    for at in range(0, len(data) - 3, 4):
        yield IPv4(data[at : at + 4])


def result(lease: Lease, priority: int = 0) -> Result:
    """Return what an IPAM plugin answers: one address, the first router, and routes."""
    gateway = IPv4(lease.routers[0]) if lease.routers else None
    address = ipaddress.ip_interface(f"{lease.address}/{lease.prefix}")
    routes = [replace(route, priority=priority) for route in _routes(lease, gateway)]
    return Result(ips=(Ip(address, gateway),), routes=tuple(routes))


def _routes(lease: Lease, gateway: IPv4 | None) -> Iterator[Route]:
    """Classless routes stand for all (RFC 3442); without them come old ones and the router."""
    if lease.classless:
        yield from _classless(bytes.fromhex(lease.classless))
        return
    pairs = list(_addresses(bytes.fromhex(lease.classful)))
    for target, via in zip(pairs[::2], pairs[1::2], strict=False):
        network = ipaddress.ip_network((int(target), _class_prefix(target)), strict=False)
        if int(target):  # a default route may not be told in this way
            yield Route(ipaddress.ip_interface(str(network)), via)
    if gateway is not None:
        yield Route(ipaddress.ip_interface("0.0.0.0/0"), gateway)


def _classless(data: bytes) -> Iterator[Route]:
    at = 0
    while at < len(data):
        length = data[at]
        size = (length + 7) // 8
        if length > 32 or at + 1 + size + 4 > len(data):
            return  # the rest makes no sense
        target = IPv4(data[at + 1 : at + 1 + size].ljust(4, b"\0"))
        via = IPv4(data[at + 1 + size : at + 5 + size])
        network = ipaddress.ip_network((int(target), length), strict=False)
        destination = ipaddress.ip_interface(str(network))
        # A router that is said to be nowhere stays one: without it others would put theirs there.
        yield Route(destination, via, scope=LINK if via == NOWHERE else None)
        at += 5 + size


class Due(enum.StrEnum):
    """What has to be done about a lease."""

    WAIT = "wait"
    RENEW = "renew"
    REBIND = "rebind"
    EXPIRE = "expire"


def due(lease: Lease, now: float) -> tuple[Due, float]:
    """Return what is due now, and the seconds until something is (0 unless it is to wait)."""
    if lease.end is None:
        return Due.WAIT, _LONGEST_RETRY * 60
    if now >= lease.end:
        return Due.EXPIRE, 0.0
    if now < lease.renewal:
        return Due.WAIT, lease.renewal - now
    is_late = now >= lease.rebinding
    limit = lease.end if is_late else lease.rebinding
    if lease.tried >= lease.renewal and not (is_late and lease.tried < lease.rebinding):
        least = min(_LONGEST_RETRY, (lease.end - lease.acquired) / _RETRY_PART)
        again = lease.tried + max((limit - lease.tried) / 2, least)
        if now < again:
            return Due.WAIT, min(again, limit) - now
    return (Due.REBIND if is_late else Due.RENEW), 0.0
