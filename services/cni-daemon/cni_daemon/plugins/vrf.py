"""vrf: a link of the container is put into a routing domain of its own (cni.dev: meta/vrf).

Putting a link into a VRF switches it off and on: IPv6 addresses may go, and routes do. Both are
given again, the routes in the VRF's table. Unlike the reference, DEL bears that the link is gone
already, and a table that is chosen is neither one of the kernel's own nor in use.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace

from bitts.cni import versions
from bitts.cni.config import PluginConfig
from bitts.cni.errors import CniError, Code
from bitts.cni.results import Result
from bitts.net import addresses, links, routes
from bitts.net.links import Change, Link
from bitts.net.routes import Route

from cni_daemon.devices import RemoveIdleVrf
from cni_daemon.model import Call, Look, Observed, Place, Plan, Step, View
from cni_daemon.operations import AddAddress, AwaitAddresses, ChangeLink, MakeLink, Operation
from cni_daemon.plugins import checking
from cni_daemon.plugins.interface import Plugin
from cni_daemon.routing import ReplaceRoute

_KIND = "vrf"
_KERNEL = 2
"""The protocol of routes that the kernel makes, with an address, by itself."""

_RESERVED = {253, 254, 255}
_TABLES = 2**32


@dataclass(frozen=True, slots=True)
class Options:
    """The plugin's own keys; table 0 is any free one."""

    name: str
    table: int = 0


def parse(config: PluginConfig, _call: Call) -> Options:
    """Read the configuration. Raises CniError."""
    fields = config.fields
    name = fields.path("vrfname")
    if not name:
        raise CniError(Code.INTERNAL, "configuration is expected to have a valid vrf name")
    return Options(name, fields.integer("table", low=0, high=_TABLES))


def looks(options: Options, call: Call) -> Look:
    """Look at all links of the container, and the addresses and routes of the one concerned."""
    _previous(call)
    has_routes = call.command != "CHECK"
    return Look(pod=(call.ifname, options.name), has_pod_links=True, has_pod_routes=has_routes)


def _previous(call: Call) -> Result:
    if call.previous is None:
        raise CniError(Code.INTERNAL, "missing prevResult from earlier plugin")
    return call.previous


def plan(options: Options, call: Call, observed: Observed) -> Plan:
    """Plan the VRF, unless it is there, and the link in it; the previous result goes through."""
    result, pod = _previous(call), checking.pod(observed, call)
    link = _free_link(result, call, pod)
    found = pod.links.get(options.name)
    idle = RemoveIdleVrf(options.name)
    if found is None:
        index, table = call.draws.index(), options.table or _free_table(pod)
        data = links.kind_data(_KIND, table)
        making = MakeLink(Place.POD, _KIND, options.name, index, Change(flags=links.UP), data)
        steps = [Step(making, idle)]
    else:
        index, table = found.index, _table(options, found)
        steps = [Step(None, idle)]
    steps += _entered(call, pod, link, index, table)
    return Plan(tuple(steps), result)


def _free_link(result: Result, call: Call, pod: View) -> Link:
    link = pod.links.get(call.ifname)
    if link is None:
        raise _failed(f"could not get link by name {call.ifname}")
    if link.master:
        master = pod.by_index(link.master)
        name = "" if master is None else master.name
        raise _failed(f"interface {call.ifname} has already a master set: {name}")
    if result.ips and call.ifname not in pod.addresses:
        raise CniError(
            Code.UNSUPPORTED_FIELD,
            f"vrf sees no address on {call.ifname}: it cannot be part of a list that is carried "
            "out in one call, list it for the runtime",
        )
    return link


def _failed(why: str) -> CniError:
    return CniError(Code.INTERNAL, f"cmdAdd failed: {why}")


def _table(options: Options, found: Link) -> int:
    if found.kind != _KIND:
        raise _failed(f"Netlink {options.name} is not a VRF")
    if options.table not in {0, found.setting}:
        raise _failed(
            f"VRF {options.name} already exist with different routing table {found.setting}"
        )
    return found.setting


def _free_table(pod: View) -> int:
    used = {each.setting for each in pod.links.values() if each.kind == _KIND}
    used |= {each.table for each in pod.routes} | _RESERVED
    return next(each for each in itertools.count(1) if each not in used)


def _entered(call: Call, pod: View, link: Link, master: int, table: int) -> Iterator[Step]:
    """Yield the steps that put the link in, with all that it has."""
    moved = [
        each
        for each in pod.routes
        if each.index == link.index and each.table == routes.MAIN
        and each.scope == routes.UNIVERSE and not _is_the_kernels(each)
    ]  # fmt: skip
    for route in moved:
        yield Step(None, ReplaceRoute(Place.POD, route, is_optional=True))
    yield Step(
        ChangeLink(Place.POD, Change(master=master), name=call.ifname),
        ChangeLink(Place.POD, Change(master=0), name=call.ifname),
    )
    kept = [
        each
        for each in pod.addresses.get(call.ifname, ())
        if each.interface.version == 6 and each.scope == addresses.GLOBAL
    ]
    for each in kept:
        is_known = bool(each.flags & addresses.NO_DAD)
        yield Step(AddAddress(Place.POD, link.index, each.interface, is_known, is_shared=True))
    if kept:
        yield Step(AwaitAddresses(Place.POD, link.index))
    for route in moved:
        yield Step(ReplaceRoute(Place.POD, replace(route, table=table)))


def _is_the_kernels(route: Route) -> bool:
    return route.protocol == _KERNEL and route.gateway is None


def check(options: Options, call: Call, observed: Observed) -> None:
    """Find the link in the VRF."""
    _previous(call)
    present = checking.pod(observed, call).links
    vrf, link = present.get(options.name), present.get(call.ifname)
    if vrf is None or vrf.kind != _KIND:
        raise checking.fail(f"VRF {options.name} is missing")
    if link is None or link.master != vrf.index:
        raise checking.fail(f"failed to find {call.ifname} associated to vrf {options.name}")


def remove(options: Options | None, call: Call, _observed: Observed) -> tuple[Operation, ...]:
    """Take the link out, and the VRF away when it was the last."""
    if options is None:
        return ()
    leaving = ChangeLink(Place.POD, Change(master=0), name=call.ifname)
    return (leaving, RemoveIdleVrf(options.name))


PLUGIN = Plugin(
    type=_KIND,
    parse=parse,
    plan=plan,
    looks=looks,
    check=check,
    remove=remove,
    versions=versions.FROM_0_3_1,
)
