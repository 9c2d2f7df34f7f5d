"""What a device of the host had, for the container that gets it (pure).

Addresses, routes and rules by source, of host-device's ``useInterfaceNetwork``. What the kernel
or a router will give the device anew is left out. Nothing is put back on the host by DEL.
"""

import ipaddress
from collections.abc import Iterator
from dataclasses import dataclass, replace

from bitts.cni import results
from bitts.cni.results import Ip, Result
from bitts.net import addresses, routes
from bitts.net.links import Link
from bitts.net.routes import Route
from bitts.net.rules import Rule

from cni_daemon.model import Place, Step, View
from cni_daemon.operations import AddAddress, AddRoute
from cni_daemon.plugins import addressing
from cni_daemon.routing import AddRule, RemoveRule

_KERNEL, _ROUTER = 2, 9
"""Protocols of routes that come by themselves: with an address, by an advertisement."""


@dataclass(frozen=True, slots=True)
class Captured:
    """What was found, in the order of application."""

    interfaces: tuple[addresses.IpInterface, ...] = ()
    routes: tuple[Route, ...] = ()
    rules: tuple[Rule, ...] = ()


NOTHING = Captured()


def capture(device: Link, host: View) -> Captured:
    """Return what a device has on the host."""
    found = [
        each.interface
        for each in host.addresses.get(device.name, ())
        if each.scope == addresses.GLOBAL
        and (each.interface.version == 4 or each.flags & addresses.PERMANENT)
    ]
    moved = [each for each in host.routes if each.index == device.index and _is_moved(each)]
    moved.sort(key=lambda each: -each.scope)  # a gateway must be reachable when it is named
    tables = {each.table for each in moved}
    ruled = [
        each
        for each in host.rules
        if each.table in tables and not each.is_narrow and _covers(each, found)
    ]
    return Captured(tuple(found), tuple(moved), tuple(ruled))


def _is_moved(route: Route) -> bool:
    is_own = route.table == routes.LOCAL or route.protocol in {_KERNEL, _ROUTER}
    is_default = not route.destination.prefixlen
    is_local = route.destination.version == 6 and route.destination.network_address.is_link_local
    return not is_own and (is_default or not is_local)


def _covers(rule: Rule, found: list[addresses.IpInterface]) -> bool:
    if rule.source is None:
        return False
    length = rule.source.max_prefixlen if rule.length is None else rule.length
    subnet = ipaddress.ip_network((rule.source, length), strict=False)
    return any(each.version == rule.version and each.ip in subnet for each in found)


def steps(captured: Captured, index: int, ifname: str) -> Iterator[Step]:
    """Yield the steps that give it all to a link of the container."""
    if any(each.version == 6 for each in captured.interfaces):
        yield addressing.setting(Place.POD, f"ipv6/conf/{ifname}/disable_ipv6", "0")
    for interface in captured.interfaces:
        yield Step(AddAddress(Place.POD, index, interface, is_shared=True))
    if any(each.source is not None and each.source.version == 6 for each in captured.routes):
        yield addressing.settled(Place.POD, index)  # only then it may be a source
    for route in captured.routes:
        yield Step(AddRoute(Place.POD, replace(route, index=index), is_shared=True))
    for rule in captured.rules:
        yield Step(AddRule(Place.POD, rule), RemoveRule(Place.POD, rule))


def told(result: Result, captured: Captured) -> Result:
    """Return a result that tells of it as well, after what is told already."""
    found = tuple(
        results.Route(
            results.parse_interface(str(each.destination)), each.gateway,
            priority=each.priority, table=each.table, scope=each.scope or None,
        )
        for each in captured.routes
    )  # fmt: skip
    ips = tuple(Ip(interface, None, 0) for interface in captured.interfaces)
    return replace(result, ips=(*result.ips, *ips), routes=(*result.routes, *found))
