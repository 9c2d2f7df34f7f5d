"""sbr: what a container sends from an address leaves by that address's link (cni.dev: meta/sbr).

Each address gets a routing table of its own, into which the link's routes are moved, and a rule
by source. Everything is taken back on DEL; the reference's DEL fails once the namespace is gone.
"""

import ipaddress
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from bitts.cni import results
from bitts.cni.config import PluginConfig
from bitts.cni.documents import NUMBERS
from bitts.cni.errors import CniError, Code
from bitts.cni.results import Ip, Result
from bitts.net import routes
from bitts.net.routes import Route
from bitts.net.rules import Rule

from cni_daemon.model import Call, Look, Observed, Place, Plan, Step, View
from cni_daemon.operations import Operation, RemoveRoute
from cni_daemon.plugins import addressing, checking
from cni_daemon.plugins.interface import Plugin
from cni_daemon.routing import AddRule, RemoveRule, ReplaceRoute

_FIRST_TABLE = 100
_MOST_GATEWAYS = 2
_V6_PRIORITY = 1024
"""What the kernel gives an IPv6 route of which nothing is said."""


@dataclass(frozen=True, slots=True)
class Options:
    """The plugin's own keys. ``gateways`` are read when they are needed, as in the reference."""

    table: int | None = None
    gateways: tuple[str, ...] = ()
    adds_source_hints: bool = False


def parse(config: PluginConfig, _call: Call) -> Options:
    """Read the configuration."""
    fields = config.fields
    return Options(
        fields.optional_integer("table", low=0, high=NUMBERS),
        fields.texts("gateways"),
        fields.boolean("addSourceHints"),
    )


def _gateways(options: Options) -> dict[int, results.IpAddress]:
    given = options.gateways
    if len(given) > _MOST_GATEWAYS:
        raise CniError(
            Code.INTERNAL,
            "gateways list cannot contain more than 2 entries (one IPv4, one IPv6)",
        )
    found: dict[int, results.IpAddress] = {}
    for text in given:
        try:
            address = results.parse_address(text)
        except ValueError:
            raise CniError(Code.INTERNAL, f"invalid static gateway IP address: {text}") from None
        if address.version in found:
            raise CniError(
                Code.INTERNAL,
                f"gateways list contains multiple IPv{address.version} addresses: "
                f"{found[address.version]} and {text}",
            )
        found[address.version] = address
    return found


def looks(_options: Options, call: Call) -> Look:
    """Look at the link, its addresses, and all routes and rules of the container."""
    if call.command == "CHECK":
        return Look()
    return Look(pod=(call.ifname,), has_pod_routes=True, has_pod_rules=True)


def _own(call: Call) -> list[Ip]:
    previous = call.previous
    if previous is None:
        raise CniError(Code.INTERNAL, "This plugin must be called as chained plugin")
    if not previous.ips:
        raise CniError(Code.INTERNAL, f"No IP addresses supplied on interface: {call.ifname}")
    return [ip for ip in previous.ips if _is_on(ip, previous, call.ifname)]


def _is_on(ip: Ip, previous: Result, ifname: str) -> bool:
    if ip.interface is None or not 0 <= ip.interface < len(previous.interfaces):
        return True
    return previous.interfaces[ip.interface].name == ifname


def plan(options: Options, call: Call, observed: Observed) -> Plan:
    """Plan rules and tables; the previous result goes through."""
    own = _own(call)
    assert call.previous is not None
    if options.table is not None:
        steps = [_rule(ip, options.table) for ip in own]
        return Plan(tuple(steps), call.previous)
    pod = checking.pod(observed, call)
    link = pod.links.get(call.ifname)
    if link is None:
        raise CniError(Code.INTERNAL, f"Cannot find network interface {call.ifname}")
    if not pod.addresses.get(call.ifname):
        raise CniError(
            Code.UNSUPPORTED_FIELD,
            f"sbr sees no address on {call.ifname}: it cannot be part of a list that is carried "
            "out in one call, list it for the runtime",
        )
    present = [r for r in pod.routes if r.index == link.index and r.table == routes.MAIN]
    steps = _tables(options, own, pod, present, link.index)
    if options.adds_source_hints:
        steps += _hinted(own, present, link.index)
        present = [each for each in present if each.scope != routes.LINK]
    by_gateway = sorted(present, key=lambda each: each.gateway is None)  # put back last
    steps += [_removed(each) for each in by_gateway]
    return Plan(tuple(steps), call.previous)


def _tables(
    options: Options, own: Iterable[Ip], pod: View, present: Sequence[Route], link: int
) -> list[Step]:
    gateways = _gateways(options)
    used = {rule.table for rule in pod.rules} | {routes.MAIN}
    table, steps = _FIRST_TABLE, []
    for ip in own:
        while table in used:
            table += 1
        steps.append(_rule(ip, table))
        gateway = gateways.get(ip.address.version) or ip.gateway
        moved = [replace(each, table=table) for each in present if _concerns(ip, each)]
        if gateway is not None:
            default = addressing.default_route(ip.address.version, None).destination.network
            moved.insert(0, Route(default, gateway, link, table))
        steps += [
            Step(ReplaceRoute(Place.POD, each), RemoveRoute(Place.POD, each)) for each in moved
        ]
        table += 1
    return steps


def _concerns(ip: Ip, route: Route) -> bool:
    named = [each for each in (route.source, route.gateway) if each is not None]
    return not named or any(addressing.contains(ip.address, each) for each in named)


def _rule(ip: Ip, table: int) -> Step:
    rule = Rule(ip.address.version, table, ip.address.ip)
    return Step(AddRule(Place.POD, rule), RemoveRule(Place.POD, rule))


def _hinted(own: Iterable[Ip], present: Sequence[Route], link: int) -> list[Step]:
    steps: list[Step] = []
    for ip in own:
        network: ipaddress.IPv4Network | ipaddress.IPv6Network = ip.address.network
        hint = Route(network, None, link, scope=routes.LINK, source=ip.address.ip)
        former = next((r for r in present if r.destination == network and not r.gateway), None)
        if former is not None:
            steps.append(Step(None, ReplaceRoute(Place.POD, former, is_optional=True)))
        own_route = hint if network.version == 4 else replace(hint, priority=_V6_PRIORITY)
        undo = RemoveRoute(Place.POD, own_route)
        steps.append(Step(ReplaceRoute(Place.POD, hint, is_optional=True), undo))
    return steps


def _removed(route: Route) -> Step:
    return Step(RemoveRoute(Place.POD, route), ReplaceRoute(Place.POD, route, is_optional=True))


def remove(options: Options | None, call: Call, _observed: Observed) -> tuple[Operation, ...]:
    """Remove the rules of addresses, as far as the table is known: the rest goes with the pod."""
    if options is None or call.previous is None or options.table is None:
        return ()
    return tuple(
        RemoveRule(Place.POD, Rule(ip.address.version, options.table, ip.address.ip))
        for ip in _own(call)
    )


PLUGIN = Plugin(type="sbr", parse=parse, plan=plan, looks=looks, remove=remove)
