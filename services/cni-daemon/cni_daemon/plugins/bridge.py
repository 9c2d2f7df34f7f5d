"""bridge: the container hangs on a bridge of the host by a veth pair (cni.dev: main/bridge).

Two differences to the reference, on purpose: the bridge's MAC address is fixed when we make or
first use it, so it never changes under neighbours; and pod addresses skip duplicate address
detection unless ``enabledad`` asks for it, as they are ours alone.
"""

import functools
from dataclasses import dataclass, replace

from bitts.cni import results
from bitts.cni.config import PluginConfig
from bitts.cni.documents import SIZES
from bitts.cni.errors import CniError, Code
from bitts.cni.results import Dns, Interface, Ip, Result
from bitts.net import links
from bitts.net.links import Change, End, Link

from cni_daemon.devices import RemoveIdleGateway
from cni_daemon.model import Call, Look, Observed, Place, Plan, Step
from cni_daemon.names import ALIAS
from cni_daemon.operations import (
    ChangeLink,
    DeleteLink,
    MakeBridge,
    MakeVeth,
    Once,
    Operation,
    SetPortVlan,
    SetSysctl,
)
from cni_daemon.plugins import addressing, checking, gateways, masquerade, spoofing, vlans
from cni_daemon.plugins.interface import Plugin
from cni_daemon.plugins.macs import requested_mac

_REMEMBERED = 128
_CONTAINER = 2
"""Place of the container's interface in the result: after the bridge and the host's end."""


@dataclass(frozen=True, slots=True)
class Options:
    """The plugin's own keys."""

    bridge: str = "cni0"
    is_gateway: bool = False
    is_default_gateway: bool = False
    force_address: bool = False
    masquerades: bool = False
    masquerade_backend: str = ""
    mtu: int = 0
    hairpin: bool = False
    promiscuous: bool = False
    vlan: int = 0
    trunk: tuple[int, ...] = ()
    preserve_default_vlan: bool = False
    checks_mac: bool = False
    enables_dad: bool = False
    leaves_container_down: bool = False
    isolates_port: bool = False
    mac: str = ""
    ipam: str = ""
    dns: Dns = results.NO_DNS

    @property
    def filters_vlans(self) -> bool:
        """Whether the bridge must know VLANs."""
        return bool(self.vlan or self.trunk)

    @property
    def vlan_gateway(self) -> str:
        """The link that has the gateway's addresses where the bridge itself has not, or empty."""
        is_needed = self.vlan and self.is_gateway and self.ipam
        return gateways.vlan_link(self.bridge, self.vlan) if is_needed else ""


def parse(config: PluginConfig, call: Call) -> Options:
    """Read the configuration. Raises CniError with the reference's words."""
    options, mac = _options(config), requested_mac(config, call)
    return replace(options, mac=mac) if mac else options


@functools.lru_cache(_REMEMBERED)
def _options(config: PluginConfig) -> Options:
    """Read what depends on the configuration alone, which the pods of a network share."""
    fields = config.fields
    is_default = fields.boolean("isDefaultGateway")
    options = Options(
        bridge=fields.path("bridge") or "cni0",
        is_gateway=fields.boolean("isGateway") or is_default,
        is_default_gateway=is_default,
        force_address=fields.boolean("forceAddress"),
        masquerades=fields.boolean("ipMasq"),
        masquerade_backend=fields.text("ipMasqBackend"),
        mtu=fields.integer("mtu", low=0, high=SIZES),
        hairpin=fields.boolean("hairpinMode"),
        promiscuous=fields.boolean("promiscMode"),
        vlan=vlans.access(fields),
        trunk=vlans.trunk(fields),
        preserve_default_vlan=fields.boolean("preserveDefaultVlan"),
        checks_mac=fields.boolean("macspoofchk"),
        enables_dad=fields.boolean("enabledad"),
        leaves_container_down=fields.boolean("disableContainerInterface"),
        isolates_port=fields.boolean("portIsolation"),
        ipam=config.ipam_type,
        dns=results.decode_dns(fields.nested("dns")),
    )
    _check(options)
    return options


def _check(options: Options) -> None:
    if options.hairpin and options.promiscuous:
        raise CniError(
            Code.INTERNAL, "cannot set hairpin mode and promiscuous mode at the same time"
        )
    if options.leaves_container_down and options.ipam:
        raise CniError(Code.INTERNAL, "cannot use IPAM when DisableContainerInterface flag is set")
    if options.vlan_gateway:
        gateways.check_name(options.bridge, options.vlan)


def looks(options: Options, call: Call) -> Look:
    """Look at the bridge; for CHECK at everything that a result names."""
    if call.command == "CHECK":
        names = {each.name for each in checking.previous(call).interfaces if not each.sandbox}
        return Look(host=tuple({options.bridge, *names}), pod=(call.ifname,), has_pod_routes=True)
    settings: tuple[str, ...] = ()
    if options.is_gateway and call.addressing is not None:
        families = dict.fromkeys(ip.address.version for ip in call.addressing.ips)
        settings = tuple(gateways.FORWARDING[version] for version in families)
    gateway = (options.vlan_gateway,) if options.vlan_gateway else ()
    return Look(host=(options.bridge, *gateway), host_settings=settings)


def foundation(options: Options, call: Call, observed: Observed) -> tuple[Operation, ...]:
    """Return what is missing of the bridge, its addresses and forwarding, and shared rules."""
    bridge = observed.host.links.get(options.bridge)
    if bridge is None:
        return _new_bridge(options, call.draws.mac())
    if bridge.kind != "bridge":
        raise CniError(Code.INTERNAL, f'"{options.bridge}" already exists but is not a bridge')
    found: list[Operation] = [*_settled_bridge(options, bridge, observed)]
    ips = _with_gateways(options, call)
    if options.is_gateway:
        for ip in ips:
            if not options.vlan_gateway:
                found += gateways.on_bridge(bridge, ip, observed, forces=options.force_address)
            found += gateways.forwarding(ip.address.version, observed)
    if options.masquerades:
        found += masquerade.foundation(ips, options.masquerade_backend, observed)
    if options.checks_mac:
        found += spoofing.foundation(observed)
    return tuple(found)


def _new_bridge(options: Options, mac: str) -> tuple[Operation, ...]:
    return (
        MakeBridge(options.bridge, mac, options.mtu, options.filters_vlans),
        SetSysctl(Place.HOST, f"ipv6/conf/{options.bridge}/accept_ra", "0", is_optional=True),
    )


def _settled_bridge(options: Options, bridge: Link, observed: Observed) -> tuple[Operation, ...]:
    """Keep a bridge that somebody else made up, promiscuous as asked, and its MAC address."""
    found: list[Operation] = []
    flags = 0 if bridge.is_up else links.UP
    if options.promiscuous and not bridge.is_promiscuous:
        flags |= links.PROMISCUOUS
    if flags:
        found.append(ChangeLink(Place.HOST, Change(flags=flags), bridge.index))
    key = f"bridge {bridge.name} {bridge.index} has {bridge.mac}"
    if key not in observed.settled:
        pinned = ChangeLink(Place.HOST, Change(mac=bridge.mac), bridge.index)
        found.append(Once(key, (pinned,)))
    return tuple(found)


def _with_gateways(options: Options, call: Call) -> tuple[Ip, ...]:
    """Return the addresses to give, each with its gateway and its place in the result."""
    if not options.ipam:
        return ()
    given = () if call.addressing is None else call.addressing.ips
    if not given:
        raise CniError(Code.INTERNAL, "IPAM plugin returned missing IP config")
    found: list[Ip] = []
    for ip in given:
        gateway = ip.gateway
        if gateway is None and options.is_gateway:
            gateway = addressing.first_host(ip.address)
        found.append(Ip(ip.address, gateway, _CONTAINER))
    return tuple(found)


def plan(options: Options, call: Call, observed: Observed) -> Plan:
    """Plan one attachment: the pair, its port, and what the container gets."""
    bridge = observed.host.links[options.bridge]
    host = End(call.draws.link_name(), call.draws.index(), call.draws.mac())
    pod = End(call.ifname, call.draws.index(), options.mac or call.draws.mac())
    result = _result(options, call, bridge, host, pod)
    steps = [*_pair(options, call, bridge, host, pod)]
    if options.vlan_gateway:
        steps.insert(0, gateways.leaving(options.vlan_gateway, options.vlan))
    if options.checks_mac:
        steps += spoofing.steps(host.name, pod.mac)
    steps += _container(options, result, pod)
    if options.masquerades:
        steps += masquerade.steps(result.ips)
    if options.vlan_gateway:
        shared, gateway = gateways.in_vlan(
            bridge, options.vlan, result.ips, observed, call.draws,
            forces=options.force_address, preserves_default=options.preserve_default_vlan,
        )  # fmt: skip
        steps.append(shared)
        result = replace(result, interfaces=(*result.interfaces, gateway))
    carriers = () if options.leaves_container_down else (host.name,)
    planned = {
        Place.HOST: (_planned(options, host, pod.index, bridge.index),),
        Place.POD: (_planned(options, pod, host.index, 0),),
    }
    return Plan(tuple(steps), result, carriers, planned)


def _planned(options: Options, end: End, peer: int, master: int) -> Link:
    return Link(
        end.index, end.name, "veth", end.mac, options.mtu or 1500, links.UP, master=master,
        peer_index=peer,
    )  # fmt: skip


def _pair(options: Options, call: Call, bridge: Link, host: End, pod: End) -> list[Step]:
    steps = [
        Step(
            MakeVeth(host, pod, options.mtu, bridge.index),
            DeleteLink(Place.HOST, host.name, host.index),
        ),
        Step(ChangeLink(Place.HOST, _named(options, ALIAS + call.label), host.index)),
    ]
    changes = vlans.changes(options.vlan, options.trunk, options.preserve_default_vlan)
    steps += [Step(SetPortVlan(host.index, c.number, c.is_pvid, c.is_removed)) for c in changes]
    # The reference also sets accept_ra=0 here; a bridge's port never gets to see an
    # advertisement, the bridge does, and has it set.
    return steps


def _named(options: Options, alias: str) -> Change:
    """Return what is said of the host's end when it is a port: whose it is, and how it treats."""
    if options.hairpin or options.isolates_port:
        return Change(alias=alias, hairpin=options.hairpin, isolated=options.isolates_port)
    return Change(alias=alias)


def _container(options: Options, result: Result, pod: End) -> list[Step]:
    if not options.ipam:
        return [] if options.leaves_container_down else [addressing.up(Place.POD, pod.index)]
    dad = {"enhanced_dad": "1", "accept_dad": "1"} if options.enables_dad else {"accept_dad": "0"}
    steps = [
        addressing.setting(Place.POD, f"ipv6/conf/{pod.name}/{key}", value, is_optional=True)
        for key, value in dad.items()
    ]
    configured = addressing.configure(
        result, _CONTAINER, pod.index, pod.name, skips_dad=not options.enables_dad
    )
    settings = [each for each in configured if isinstance(each.do, SetSysctl)]
    # Not by the setting of that name: a file of a new link costs as much as all messages here.
    notify = Step(ChangeLink(Place.POD, Change(arp_notify=True), pod.index))
    return [*steps, *settings, notify, *configured[len(settings) :]]


def _result(options: Options, call: Call, bridge: Link, host: End, pod: End) -> Result:
    given = call.addressing or Result()
    ips = _with_gateways(options, call)
    routes = [*given.routes]
    if options.is_default_gateway:
        for version in dict.fromkeys(ip.address.version for ip in ips):
            gateway = next(ip.gateway for ip in ips if ip.address.version == version)
            route = addressing.default_route(version, gateway)
            if not any(each.destination == route.destination and each.gateway for each in routes):
                routes.append(route)
    return Result(
        interfaces=(
            Interface(bridge.name, bridge.mac),
            Interface(host.name, host.mac),
            Interface(pod.name, pod.mac, call.netns),
        ),
        ips=ips,
        routes=tuple(routes),
        dns=options.dns or given.dns,
    )


def check(options: Options, call: Call, observed: Observed) -> None:
    """Compare the bridge, the pair, addresses and routes with the result."""
    previous, pod = checking.previous(call), checking.pod(observed, call)
    recorded = next((i for i in previous.interfaces if i.name == options.bridge), None)
    own = addressing.of_sandbox(previous, call.ifname, call.netns)
    if recorded is None or own is None:
        raise checking.fail(f"prevResult names no bridge {options.bridge} or no {call.ifname}")
    bridge = checking.link(observed.host, recorded, kind="bridge")
    for each in previous.interfaces:
        if each.name == options.vlan_gateway:
            checking.link(observed.host, each)
    if bridge.is_promiscuous != options.promiscuous:
        raise checking.fail(f"Bridge {bridge.name} promiscuous mode is not as configured")
    inner = checking.link(pod, own, kind="veth")
    outer = observed.host.by_index(inner.peer_index)
    if outer is None or outer.master != bridge.index:
        raise checking.fail(f"the host end of {call.ifname} is no port of bridge {bridge.name}")
    position = previous.interfaces.index(own)
    checking.addresses(
        pod, call.ifname, [ip for ip in previous.ips if ip.interface in {None, position}]
    )
    checking.all_routes(pod, previous.routes)


def remove(options: Options | None, call: Call, _observed: Observed) -> tuple[Operation, ...]:
    """Remove the container's link: that is all a pair needs, and its VLAN's gateway if idle."""
    link = DeleteLink(Place.POD, call.ifname)
    if options is None or not options.vlan_gateway:
        return (link,)
    return (link, RemoveIdleGateway(options.vlan_gateway, options.vlan))


PLUGIN = Plugin(
    type="bridge",
    parse=parse,
    plan=plan,
    looks=looks,
    foundation=foundation,
    check=check,
    remove=remove,
    uses_ipam=lambda options: bool(options.ipam),
)
