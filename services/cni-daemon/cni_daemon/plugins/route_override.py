"""route-override: routes of an earlier plugin are changed (openshift/route-override-cni).

The reference only logs what it cannot add or remove, and so do we; where a route to the same
destination is there already, the one asked for takes its place.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from bitts.cni import results
from bitts.cni.config import PluginConfig
from bitts.cni.documents import Fields
from bitts.cni.errors import CniError, Code
from bitts.cni.results import Ip, Result
from bitts.net import routes
from bitts.net.routes import Route

from cni_daemon.model import Call, Look, Observed, Place, Plan, Step
from cni_daemon.operations import RemoveRoute
from cni_daemon.plugins import checking
from cni_daemon.plugins.interface import Plugin
from cni_daemon.routing import ReplaceRoute

_DEFAULTS = tuple(results.parse_interface(each).network for each in ("0.0.0.0/0", "::/0"))
_NOWHERE = {each.version: each.network_address for each in _DEFAULTS}
_FALLBACK = "eth0"


@dataclass(frozen=True, slots=True)
class Options:
    """The plugin's own keys."""

    flushes_routes: bool = False
    flushes_gateway: bool = False
    removed: tuple[results.Route, ...] = ()
    added: tuple[results.Route, ...] = ()
    skips_check: bool = False


def parse(config: PluginConfig, _call: Call) -> Options:
    """Read the configuration; ``args.cni`` replaces what it names. Raises CniError."""
    own = _overridden(Options(), config.fields)
    return _overridden(own, config.fields.nested("args").nested("cni"))


def _overridden(options: Options, fields: Fields) -> Options:
    for key in ("addecmproutes", "delecmproutes"):
        if fields.items(key):
            raise CniError(
                Code.UNSUPPORTED_FIELD, f"{key} is not served: name one gateway in addroutes"
            )
    return Options(
        fields.boolean("flushroutes", default=options.flushes_routes),
        fields.boolean("flushgateway", default=options.flushes_gateway),
        _routes(fields, "delroutes", options.removed),
        _routes(fields, "addroutes", options.added),
        fields.boolean("skipcheck", default=options.skips_check),
    )


def _routes(
    fields: Fields, key: str, default: tuple[results.Route, ...]
) -> tuple[results.Route, ...]:
    if fields.raw(key) is None:
        return default
    return tuple(results.decode_route(each) for each in fields.objects(key))


def _previous(call: Call) -> Result:
    if call.previous is None:
        raise CniError(Code.INTERNAL, "Required prevResult missing")
    return call.previous


def _names(previous: Result) -> list[str]:
    inner = [each.name for each in previous.interfaces if each.sandbox]
    return inner if previous.interfaces else [_FALLBACK]


def looks(_options: Options, call: Call) -> Look:
    """Look at the container's links and routes."""
    return Look(pod=tuple(_names(_previous(call))), has_pod_routes=True)


def plan(options: Options, call: Call, observed: Observed) -> Plan:
    """Plan what goes and what comes, and the result that tells it."""
    previous, pod = _previous(call), checking.pod(observed, call)
    present = [pod.links[name] for name in _names(previous) if name in pod.links]
    if previous.ips and not any(pod.addresses.get(link.name) for link in present):
        raise CniError(
            Code.UNSUPPORTED_FIELD,
            "route-override sees no address in the container: it cannot be part of a list that "
            "is carried out in one call, list it for the runtime",
        )
    indexes = {link.index for link in present}
    own = [r for r in pod.routes if r.index in indexes and r.table == routes.MAIN]
    steps = [_removed(each) for each in own if _goes(options, previous, each)]
    if present:
        steps += [_added(each, present[0].index) for each in options.added]
    return Plan(tuple(steps), _result(options, previous))


def _goes(options: Options, previous: Result, route: Route) -> bool:
    is_default = route.destination in _DEFAULTS
    if options.flushes_gateway and is_default:
        return True
    if options.flushes_routes:
        is_local = route.destination.network_address.is_link_local and route.destination.prefixlen
        return route.scope != routes.LINK and route.gateway is not None and not is_local
    told = {each.destination.network for each in previous.routes}
    return route.destination in told & {each.destination.network for each in options.removed}


def _removed(route: Route) -> Step:
    return Step(RemoveRoute(Place.POD, route), ReplaceRoute(Place.POD, route, is_optional=True))


def _added(wanted: results.Route, link: int) -> Step:
    """Return the step for a new route. Raises CniError for one that no kernel could remove."""
    gateway, destination = wanted.gateway, wanted.destination
    if gateway is not None and gateway.version != destination.version:
        raise CniError(
            Code.INVALID_CONFIG,
            f"addroutes: {destination} is IPv{destination.version}, its gateway {gateway} is not",
        )
    route = Route(wanted.destination.network, wanted.gateway, link)
    return Step(ReplaceRoute(Place.POD, route, is_optional=True), RemoveRoute(Place.POD, route))


def _result(options: Options, previous: Result) -> Result:
    kept: Iterable[results.Route] = ()
    if not options.flushes_routes:
        gone = {each.destination.network for each in options.removed}
        gone |= set(_DEFAULTS) if options.flushes_gateway else set()
        kept = [each for each in previous.routes if each.destination.network not in gone]
    ips = previous.ips
    if options.flushes_gateway:
        ips = tuple(_without_gateway(ip) for ip in ips)
    return replace(previous, ips=ips, routes=(*kept, *options.added))


def _without_gateway(ip: Ip) -> Ip:
    return replace(ip, gateway=_NOWHERE[ip.address.version])


def check(options: Options, call: Call, observed: Observed) -> None:
    """Find removed routes missing, and those of the result present."""
    if options.skips_check:
        return
    previous, pod = _previous(call), checking.pod(observed, call)
    present = {each.destination for each in pod.routes if each.table == routes.MAIN}
    added = {each.destination.network for each in options.added}
    for route in options.removed:
        if route.destination.network in present - added:
            raise checking.fail(f"route-override: route is not removed: {route.destination}")
    checking.all_routes(pod, previous.routes)


PLUGIN = Plugin(type="route-override", parse=parse, plan=plan, looks=looks, check=check)
