"""Routes (``linux/rtnetlink.h``)."""

import ipaddress
import struct
from dataclasses import dataclass

from bitts.net import wire
from bitts.net.addresses import FAMILIES
from bitts.net.wire import Message, Reply

IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
IpNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network

NEW, DELETE, GET = 24, 25, 26
MAIN = 254
LOCAL = 255
UNIVERSE, LINK, HOST = 0, 253, 254
BOOT = 3
"""The protocol of routes that plugins of the reference set make in containers."""

OURS = 177
"""The protocol that marks the host's routes as made by us: only those are ever swept."""

_INFO = struct.Struct("=BBBBBBBBI")
_DESTINATION, _OUTPUT, _GATEWAY, _PRIORITY, _PREFERRED, _METRICS, _TABLE = 1, 4, 5, 6, 7, 8, 15
_METRIC_MTU, _METRIC_ADVMSS = 2, 8
_UNICAST = 1
_TABLE_IN_HEADER = 256


@dataclass(frozen=True, slots=True)
class Route:
    """A unicast route; zeros leave a setting to the kernel."""

    destination: IpNetwork
    gateway: IpAddress | None = None
    index: int = 0
    table: int = MAIN
    scope: int = UNIVERSE
    priority: int = 0
    mtu: int = 0
    advmss: int = 0
    source: IpAddress | None = None
    protocol: int = BOOT


def add(route: Route, *, exclusive: bool = True) -> Message:
    """Add a route; an equal one is an error (``exclusive``) or is put in front of."""
    return Message(NEW, wire.CREATE | (wire.EXCLUSIVE if exclusive else 0), _body(route))


def replace(route: Route) -> Message:
    """Add a route, or let it take the place of one to the same destination."""
    return Message(NEW, wire.CREATE | wire.REPLACE, _body(route))


def remove(route: Route) -> Message:
    """Remove a route that has these properties."""
    return Message(DELETE, 0, _body(route))


def _body(route: Route) -> bytes:
    network = route.destination
    table = route.table if route.table < _TABLE_IN_HEADER else 0
    parts = [
        _INFO.pack(
            FAMILIES[network.version], network.prefixlen, 0, 0, table, route.protocol,
            route.scope, _UNICAST, 0,
        )
    ]  # fmt: skip
    if network.prefixlen:
        parts.append(wire.attribute(_DESTINATION, network.network_address.packed))
    if route.gateway is not None:
        parts.append(wire.attribute(_GATEWAY, route.gateway.packed))
    if route.source is not None:
        parts.append(wire.attribute(_PREFERRED, route.source.packed))
    numbers = (
        (_OUTPUT, route.index), (_PRIORITY, route.priority),
        (_TABLE, 0 if table else route.table),
    )  # fmt: skip
    parts += [wire.u32(kind, value) for kind, value in numbers if value]
    metrics = ((_METRIC_MTU, route.mtu), (_METRIC_ADVMSS, route.advmss))
    packed = [wire.u32(kind, value) for kind, value in metrics if value]
    if packed:
        parts.append(wire.nested(_METRICS, *packed))
    return b"".join(parts)


def every(version: int = 0) -> Message:
    """Ask for all routes of an IP version (0: of both)."""
    return Message(GET, 0, _INFO.pack(FAMILIES.get(version, 0), 0, 0, 0, 0, 0, 0, 0, 0))


@wire.decoder("a route")
def decode(reply: Reply) -> Route | None:
    """Read a route; None for what is not unicast IP (local, broadcast, multicast).

    Raises NetlinkError.
    """
    family, length, _, _, table, protocol, scope, kind, _ = _INFO.unpack_from(reply.body)
    if family not in FAMILIES.values() or kind != _UNICAST:
        return None
    found = wire.attributes(reply.body[_INFO.size :])
    size = 4 if family == FAMILIES[4] else 16
    raw = bytes(found.get(_DESTINATION, bytes(size)))
    network: IpNetwork
    if size == 4:
        network = ipaddress.IPv4Network((raw, length), strict=False)
    else:
        network = ipaddress.IPv6Network((raw, length), strict=False)
    metrics = wire.attributes(found.get(_METRICS, memoryview(b"")))
    return Route(
        destination=network,
        gateway=_address(found.get(_GATEWAY)),
        index=wire.number(found.get(_OUTPUT)),
        table=wire.number(found.get(_TABLE), table),
        scope=scope,
        priority=wire.number(found.get(_PRIORITY)),
        mtu=wire.number(metrics.get(_METRIC_MTU)),
        advmss=wire.number(metrics.get(_METRIC_ADVMSS)),
        source=_address(found.get(_PREFERRED)),
        protocol=protocol,
    )


def _address(value: memoryview | None) -> IpAddress | None:
    return None if value is None else ipaddress.ip_address(bytes(value))
