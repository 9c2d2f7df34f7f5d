"""What every plugin does with an IPAM answer inside the container (pure).

Order matters: addresses before the link is up (so that gratuitous ARP carries them), routes
after. Unlike the reference, a route that the result names twice is added once, and mtu and
advmss of routes are applied.
"""

import ipaddress
from collections.abc import Iterable, Sequence

from bitts.cni import results
from bitts.cni.errors import CniError, Code
from bitts.cni.results import Interface, Ip, IpAddress, IpInterface, Result
from bitts.net import links, routes
from bitts.net.links import Change

from cni_daemon.model import Place, Step
from cni_daemon.operations import AddAddress, AddRoute, AwaitAddresses, ChangeLink, SetSysctl

_DEFAULTS = {4: results.parse_interface("0.0.0.0/0"), 6: results.parse_interface("::/0")}


def default_route(version: int, gateway: IpAddress | None) -> results.Route:
    """Return the default route of an IP version."""
    return results.Route(_DEFAULTS[version], gateway)


def first_host(interface: IpInterface) -> IpAddress:
    """Return the address after the network's own: what a gateway has if nothing is said."""
    return interface.network.network_address + 1


def setting(place: Place, key: str, value: str, *, is_optional: bool = False) -> Step:
    """Return the step that sets a value below ``net``; nothing takes it back."""
    return Step(SetSysctl(place, key, value, is_optional))


def up(place: Place, index: int) -> Step:
    """Return the step that switches a link on."""
    return Step(ChangeLink(place, Change(flags=links.UP), index))


def settled(place: Place, index: int) -> Step:
    """Return the step that waits until IPv6 addresses of a link may be used."""
    return Step(AwaitAddresses(place, index))


def configure(
    result: Result, position: int, link: int, ifname: str, *, skips_dad: bool = True
) -> tuple[Step, ...]:
    """Return the steps that give the container's link its addresses and routes.

    ``position`` is the link's place in the result's interfaces, ``link`` its index.
    """
    own = _own(result, position, ifname)
    steps: list[Step] = []
    if any(ip.address.version == 6 for ip in own):
        steps += _ipv6_settings(ifname)
    steps += [Step(AddAddress(Place.POD, link, ip.address, skips_dad)) for ip in own]
    steps.append(up(Place.POD, link))
    if not skips_dad and any(ip.address.version == 6 and ip.gateway for ip in own):
        steps.append(settled(Place.POD, link))
    steps += [Step(AddRoute(Place.POD, route)) for route in _routes(result.routes, own, link)]
    return tuple(steps)


def _own(result: Result, position: int, ifname: str) -> list[Ip]:
    own: list[Ip] = []
    for ip in result.ips:
        if ip.interface is None:
            continue
        if ip.interface != position:
            raise CniError(
                Code.INTERNAL,
                f"failed to add IP addr {ip.address} to {ifname!r}: invalid interface index",
            )
        own.append(ip)
    return own


def _ipv6_settings(ifname: str) -> list[Step]:
    return [
        setting(Place.POD, "ipv6/conf/lo/disable_ipv6", "0"),
        setting(Place.POD, f"ipv6/conf/{ifname}/disable_ipv6", "0"),
        setting(Place.POD, f"ipv6/conf/{ifname}/keep_addr_on_down", "1"),
    ]


def _routes(wanted: Iterable[results.Route], own: Sequence[Ip], link: int) -> list[routes.Route]:
    gateways: dict[int, IpAddress] = {}
    for ip in own:
        if ip.gateway is not None:
            gateways.setdefault(ip.address.version, ip.gateway)
    found: list[routes.Route] = []
    for each in wanted:
        route = routes.Route(
            destination=each.destination.network,
            gateway=each.gateway or gateways.get(each.destination.version),
            index=link,
            table=routes.MAIN if each.table is None else each.table,
            scope=routes.UNIVERSE if each.scope is None else each.scope,
            priority=each.priority,
            mtu=each.mtu,
            advmss=each.advmss,
        )
        if route not in found:
            found.append(route)
    return found


def of_sandbox(result: Result, ifname: str, netns: str) -> Interface | None:
    """Return the container's own interface in a result."""
    return next(
        (each for each in result.interfaces if each.name == ifname and each.sandbox == netns), None
    )


def contains(network: results.IpInterface, address: IpAddress) -> bool:
    """Say whether an address is in the subnet of an interface address."""
    return address.version == network.version and address in network.network


def host_interface(address: IpAddress) -> IpInterface:
    """Return an address with the longest prefix: nothing else is reached by it."""
    return ipaddress.ip_interface((address, address.max_prefixlen))
