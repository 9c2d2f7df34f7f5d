"""macvlan: the container shares a link of the host, with a MAC address of its own (sheet, 3.3).

Unlike the reference, a failure leaves no link behind, CHECK and DEL need no master that may be
gone, and the IPAM plugin's resolver settings are kept where the configuration has none.
"""

from dataclasses import dataclass

from bitts.cni import results
from bitts.cni.config import PluginConfig
from bitts.cni.errors import CniError, Code
from bitts.cni.results import Dns, Interface, Ip, Result
from bitts.net import links, routes, wire
from bitts.net.links import Change, Link

from cni_daemon.model import Call, Look, Observed, Place, Plan, Step, View
from cni_daemon.operations import ChangeLink, DeleteLink, MakeLink, Operation
from cni_daemon.plugins import addressing, checking
from cni_daemon.plugins.interface import Plugin
from cni_daemon.plugins.macs import requested_mac

_MODES = {"": 4, "bridge": 4, "private": 1, "vepa": 2, "passthru": 8}
_PASSTHRU = 8
_MODE, _QUEUE = 1, 7
_DEFAULTS = {4: addressing.default_route(4, None), 6: addressing.default_route(6, None)}


@dataclass(frozen=True, slots=True)
class Options:
    """The plugin's own keys; an empty ``master`` is the link of the default route."""

    master: str = ""
    mode: int = 4
    mtu: int = 0
    mac: str = ""
    is_in_container: bool = False
    queue: int = 0
    ipam: str = ""
    dns: Dns = results.NO_DNS


def parse(config: PluginConfig, call: Call) -> Options:
    """Read the configuration. Raises CniError."""
    fields = config.fields
    mode = fields.text("mode")
    if mode not in _MODES:
        raise CniError(Code.INTERNAL, f'unknown macvlan mode: "{mode}"')
    options = Options(
        master=fields.text("master"),
        mode=_MODES[mode],
        mtu=fields.integer("mtu"),
        mac=requested_mac(config, call) or fields.text("mac").lower(),
        is_in_container=fields.boolean("linkInContainer"),
        queue=fields.integer("bcqueuelen", low=0, high=2**32),
        ipam=config.ipam_type,
        dns=results.decode_dns(fields.nested("dns")),
    )
    if options.is_in_container and not options.master:
        raise CniError(Code.INVALID_CONFIG, "linkInContainer needs a master: name the link")
    return options


def looks(options: Options, call: Call) -> Look:
    """Look at the master (or for the default route), and at what has the container's name."""
    if call.command == "CHECK":
        return Look(pod=(call.ifname,), has_pod_routes=True)
    if options.is_in_container:
        return Look(pod=(call.ifname, options.master))
    if options.master:
        return Look(host=(options.master,), pod=(call.ifname,))
    return Look(has_host_links=True, has_host_routes=True, pod=(call.ifname,))


def _master(options: Options, observed: Observed) -> Link:
    view = observed.pod if options.is_in_container else observed.host
    assert view is not None
    found = view.links.get(options.master) if options.master else _of_default_route(view)
    if found is None:
        raise CniError(Code.INTERNAL, f'failed to lookup master "{options.master}": no such link')
    if not 0 <= options.mtu <= found.mtu:
        raise CniError(
            Code.INTERNAL, f"invalid MTU {options.mtu}, must be [0, master MTU({found.mtu})]"
        )
    return found


def _of_default_route(view: View) -> Link | None:
    wanted = {each.destination.network for each in _DEFAULTS.values()}
    for route in view.routes:
        if route.table == routes.MAIN and route.destination in wanted:
            return view.by_index(route.index)
    raise CniError(Code.INTERNAL, "no default route interface found")


def plan(options: Options, call: Call, observed: Observed) -> Plan:
    """Plan the link, made under a passing name, and what it gets."""
    master, ifname = _master(options, observed), call.ifname
    if observed.pod is not None and ifname in observed.pod.links:
        raise CniError(Code.INTERNAL, f'failed to rename macvlan to "{ifname}": file exists')
    index = call.draws.index()
    mac = options.mac or (master.mac if options.mode == _PASSTHRU else call.draws.mac())
    result = _result(options, call, mac)
    steps = [*_link(options, call, master, index, mac)]
    if options.ipam:
        steps += [
            addressing.setting(Place.POD, key, "1", is_optional=True)
            for key in (f"ipv4/conf/{ifname}/arp_notify", f"ipv6/conf/{ifname}/ndisc_notify")
        ]
        steps += addressing.configure(result, 0, index, ifname, skips_dad=False)
    else:
        steps.append(addressing.up(Place.POD, index))
    planned = Link(index, ifname, "macvlan", mac, options.mtu or master.mtu, links.UP)
    return Plan(tuple(steps), result, planned={Place.POD: (planned,)})


def _link(options: Options, call: Call, master: Link, index: int, mac: str) -> list[Step]:
    data = wire.u32(_MODE, options.mode)
    if options.queue:
        data += wire.u32(_QUEUE, options.queue)
    passing = call.draws.link_name()
    change = Change(mac=mac, mtu=options.mtu or None)
    place = Place.POD if options.is_in_container else Place.HOST
    is_born_in_pod = not options.is_in_container
    return [
        Step(
            MakeLink(place, "macvlan", passing, index, change, data, master.index, is_born_in_pod),
            DeleteLink(Place.POD, passing),
        ),
        Step(
            ChangeLink(Place.POD, Change(name=call.ifname), index),
            DeleteLink(Place.POD, call.ifname),
        ),
    ]


def _result(options: Options, call: Call, mac: str) -> Result:
    given = call.addressing or Result()
    if options.ipam and not given.ips:
        raise CniError(Code.INTERNAL, "IPAM plugin returned missing IP config")
    return Result(
        interfaces=(Interface(call.ifname, mac, call.netns),),
        ips=tuple(Ip(ip.address, ip.gateway, 0) for ip in given.ips),
        routes=given.routes,
        dns=options.dns or given.dns,
    )


def check(options: Options, call: Call, observed: Observed) -> None:
    """Compare the link, its addresses and routes with the result."""
    previous, pod = checking.previous(call), checking.pod(observed, call)
    own = addressing.of_sandbox(previous, call.ifname, call.netns)
    if own is None:
        raise checking.fail(f"prevResult names no {call.ifname} in {call.netns}")
    link = checking.link(pod, own, kind="macvlan")
    if link.mode != options.mode:
        raise checking.fail(f"Container macvlan mode {link.mode} does not match {options.mode}")
    checking.addresses(pod, call.ifname, previous.ips)
    checking.all_routes(pod, previous.routes)


def remove(_options: Options, call: Call, _observed: Observed) -> tuple[Operation, ...]:
    """Remove the container's link."""
    return (DeleteLink(Place.POD, call.ifname),)


PLUGIN = Plugin(
    type="macvlan",
    parse=parse,
    plan=plan,
    looks=looks,
    check=check,
    remove=remove,
    uses_ipam=lambda options: bool(options.ipam),
)
