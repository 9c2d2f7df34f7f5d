"""ptp: a routed veth pair, the host's end being the container's gateway (cni.dev: main/ptp)."""

from dataclasses import dataclass

from bitts.cni import results
from bitts.cni.config import PluginConfig
from bitts.cni.documents import SIZES
from bitts.cni.errors import CniError, Code
from bitts.cni.results import Dns, Interface, Ip, Result
from bitts.net import links, routes
from bitts.net.links import Change, End, Link

from cni_daemon.model import Call, Look, Observed, Place, Plan, Step
from cni_daemon.names import ALIAS
from cni_daemon.operations import (
    AddAddress,
    AddRoute,
    ChangeLink,
    DeleteLink,
    MakeVeth,
    Operation,
    RemoveRoute,
    SetSysctl,
)
from cni_daemon.plugins import addressing, checking, masquerade
from cni_daemon.plugins.interface import Plugin

_FORWARDING = {4: "ipv4/ip_forward", 6: "ipv6/conf/all/forwarding"}
_DHCP = "dhcp"
_CONTAINER = 1
"""Place of the container's interface in the result: after the host's end."""


@dataclass(frozen=True, slots=True)
class Options:
    """The plugin's own keys."""

    masquerades: bool = False
    masquerade_backend: str = ""
    mtu: int = 0
    dns: Dns = results.NO_DNS


def parse(config: PluginConfig, _call: Call) -> Options:
    """Read the configuration. Raises CniError."""
    fields = config.fields
    if config.ipam_type == _DHCP:
        raise CniError(
            Code.UNSUPPORTED_FIELD,
            f'ipam.type "{_DHCP}" does not go with ptp: its link leads to this node only, where no '
            'server is asked; use ipam.type "host-local" or "static", or the plugin bridge, '
            "macvlan or vlan",
        )
    return Options(
        masquerades=fields.boolean("ipMasq"),
        masquerade_backend=fields.text("ipMasqBackend"),
        mtu=fields.integer("mtu", low=0, high=SIZES),
        dns=results.decode_dns(fields.nested("dns")),
    )


def looks(_options: Options, call: Call) -> Look:
    """Look at forwarding; for CHECK at the container."""
    if call.command == "CHECK":
        return Look(pod=(call.ifname,), has_pod_routes=True)
    return Look(host_settings=tuple(_FORWARDING.values()))


def foundation(options: Options, call: Call, observed: Observed) -> tuple[Operation, ...]:
    """Return what is missing of forwarding and the shared rules."""
    ips = _ips(call)
    found: list[Operation] = [
        SetSysctl(Place.HOST, _FORWARDING[version], "1")
        for version in dict.fromkeys(ip.address.version for ip in ips)
        if observed.host.settings.get(_FORWARDING[version]) != "1"
    ]
    if options.masquerades:
        found += masquerade.foundation(ips, options.masquerade_backend, observed)
    return tuple(found)


def _ips(call: Call) -> tuple[Ip, ...]:
    given = () if call.addressing is None else call.addressing.ips
    if not given:
        raise CniError(Code.INTERNAL, "IPAM plugin returned missing IP config")
    for ip in given:
        if ip.gateway is None:
            raise CniError(Code.INTERNAL, f"ptp needs a gateway for {ip.address}: IPAM gave none")
    return tuple(Ip(ip.address, ip.gateway, _CONTAINER) for ip in given)


def plan(options: Options, call: Call, _observed: Observed) -> Plan:
    """Plan the pair, the container's routes through its gateway, and the host's way back."""
    host = End(call.draws.link_name(), call.draws.index(), call.draws.mac())
    pod = End(call.ifname, call.draws.index(), call.draws.mac())
    given = call.addressing or Result()
    result = Result(
        interfaces=(Interface(host.name, host.mac), Interface(pod.name, pod.mac, call.netns)),
        ips=_ips(call),
        routes=given.routes,
        dns=options.dns or given.dns,
    )
    undo = DeleteLink(Place.HOST, host.name, host.index)
    steps = [
        Step(MakeVeth(host, pod, options.mtu), undo),
        Step(ChangeLink(Place.HOST, Change(alias=ALIAS + call.label), host.index)),
        addressing.setting(Place.HOST, f"ipv6/conf/{host.name}/accept_ra", "0", is_optional=True),
        *_without_dad(result, pod.name),
        *addressing.configure(result, _CONTAINER, pod.index, pod.name),
        *_through_gateway(result, pod.index),
        *_way_back(result, host.index),
    ]
    if options.masquerades:
        steps += masquerade.steps(result.ips)
    planned = {
        Place.HOST: (_planned(options, host, pod.index),),
        Place.POD: (_planned(options, pod, host.index),),
    }
    return Plan(tuple(steps), result, (host.name,), planned)


def _planned(options: Options, end: End, peer: int) -> Link:
    return Link(
        end.index, end.name, "veth", end.mac, options.mtu or 1500, links.UP, peer_index=peer
    )


def _without_dad(result: Result, ifname: str) -> list[Step]:
    if not any(ip.address.version == 6 for ip in result.ips):
        return []
    key = f"ipv6/conf/{ifname}/accept_dad"
    return [addressing.setting(Place.POD, key, "0", is_optional=True)]


def _through_gateway(result: Result, link: int) -> list[Step]:
    """Let everything of the subnet go through the gateway: nothing else is on this wire."""
    steps: list[Step] = []
    gateways: set[results.IpAddress] = set()
    for ip in result.ips:
        assert ip.gateway is not None
        network, source = ip.address.network, ip.address.ip
        connected = routes.Route(
            network, index=link, scope=_connected_scope(ip), protocol=0, source=None
        )
        steps.append(Step(RemoveRoute(Place.POD, connected)))
        if ip.gateway not in gateways:
            gateways.add(ip.gateway)
            only = addressing.host_interface(ip.gateway).network
            direct = routes.Route(only, index=link, scope=routes.LINK, source=source)
            steps.append(Step(AddRoute(Place.POD, direct)))
        through = routes.Route(network, ip.gateway, link, source=source)
        steps.append(Step(AddRoute(Place.POD, through)))
    return steps


def _connected_scope(ip: Ip) -> int:
    return routes.LINK if ip.address.version == 4 else routes.UNIVERSE


def _way_back(result: Result, link: int) -> list[Step]:
    steps: list[Step] = []
    gateways: set[results.IpAddress] = set()
    for ip in result.ips:
        assert ip.gateway is not None
        if ip.gateway not in gateways:
            gateways.add(ip.gateway)
            own = addressing.host_interface(ip.gateway)
            steps.append(Step(AddAddress(Place.HOST, link, own, skips_dad=True)))
        only = addressing.host_interface(ip.address.ip).network
        back = routes.Route(only, index=link, scope=routes.HOST, protocol=routes.OURS)
        steps.append(Step(AddRoute(Place.HOST, back, is_shared=True)))
    return steps


def check(_options: Options, call: Call, observed: Observed) -> None:
    """Compare the container's link, addresses and routes with the result."""
    previous, pod = checking.previous(call), checking.pod(observed, call)
    own = addressing.of_sandbox(previous, call.ifname, call.netns)
    if own is None:
        raise checking.fail(f"prevResult names no {call.ifname} in {call.netns}")
    checking.link(pod, own, kind="veth")
    position = previous.interfaces.index(own)
    checking.addresses(
        pod, call.ifname, [ip for ip in previous.ips if ip.interface in {None, position}]
    )
    checking.all_routes(pod, previous.routes)


def remove(_options: object, call: Call, _observed: Observed) -> tuple[Operation, ...]:
    """Remove the container's link: addresses and routes of both ends go with it."""
    return (DeleteLink(Place.POD, call.ifname),)


PLUGIN = Plugin(
    type="ptp",
    parse=parse,
    plan=plan,
    looks=looks,
    foundation=foundation,
    check=check,
    remove=remove,
    uses_ipam=lambda _options: True,
)
