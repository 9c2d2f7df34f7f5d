"""bandwidth: a container sends and receives no faster than it may (cni.dev: meta/bandwidth).

What the container receives is slowed where the host's end of its pair sends. What it sends is
led through a link of its own (``ifb``), since what arrives can only be slowed by sending it.
Where the reference's numbers overflow, ours are cut to the largest possible.
"""

from dataclasses import dataclass, replace

from bitts.cni import capabilities, versions
from bitts.cni.capabilities import Bandwidth
from bitts.cni.config import PluginConfig
from bitts.cni.errors import CniError, Code
from bitts.cni.results import Interface, Result
from bitts.net import links, tc
from bitts.net.links import Change, Link
from bitts.net.tc import Bucket

from cni_daemon.model import Call, Look, Observed, Place, Plan, Step
from cni_daemon.names import ALIAS
from cni_daemon.operations import DeleteLink, MakeLink, Operation
from cni_daemon.plugins import checking
from cni_daemon.plugins.interface import Plugin
from cni_daemon.traffic import CloseIngress, OpenIngress, RedirectIngress, ShapeLink

LATENCY = 0.025
"""Seconds that a packet may wait in a bucket, as in the reference."""

_KEYS = ("ingressRate", "ingressBurst", "egressRate", "egressBurst")
_BITS = 8
_BURST_LIMIT = 0xFFFFFFFF
_PREFIX, _NAME_SIZE = "bwp", 15


@dataclass(frozen=True, slots=True)
class Options:
    """Buckets as seen from the container; None for no limit."""

    ingress: Bucket | None = None
    egress: Bucket | None = None

    @property
    def limits(self) -> bool:
        """Whether there is anything to do."""
        return self.ingress is not None or self.egress is not None


def parse(config: PluginConfig, call: Call) -> Options:
    """Read the limits: the plugin's own keys, if there are any, hide the runtime's."""
    fields = config.fields
    if all(fields.raw(key) is None for key in _KEYS):
        fields = call.runtime.nested(capabilities.BANDWIDTH)
    wanted = capabilities.bandwidth(fields)
    _check(wanted.ingress_rate, wanted.ingress_burst)
    _check(wanted.egress_rate, wanted.egress_burst)
    return Options(*_buckets(wanted))


def _check(rate: int, burst: int) -> None:
    if rate and not burst:
        raise CniError(Code.INTERNAL, "if rate is set, burst must also be set")
    if burst and not rate:
        raise CniError(Code.INTERNAL, "if burst is set, rate must also be set")
    if burst // _BITS >= _BURST_LIMIT:
        raise CniError(Code.INTERNAL, "burst cannot be more than 4GB")


def _buckets(wanted: Bandwidth) -> tuple[Bucket | None, Bucket | None]:
    pairs = (
        (wanted.ingress_rate, wanted.ingress_burst), (wanted.egress_rate, wanted.egress_burst),
    )  # fmt: skip
    first, second = (
        tc.bucket(rate // _BITS, burst // _BITS, latency=LATENCY) if rate else None
        for rate, burst in pairs
    )
    return first, second


def link_name(call: Call) -> str:
    """Return the name of the link that slows what a container sends, as the reference has it."""
    return (_PREFIX + call.digest)[:_NAME_SIZE]


def looks(options: Options, call: Call) -> Look:
    """Look at both ends of the container's pair and at what slows them."""
    if not options.limits:
        return Look()
    hosts = tuple(each.name for each in _previous(call).interfaces if not each.sandbox)
    ifb = link_name(call)
    return Look(host=(*hosts, ifb), host_disciplines=(*hosts, ifb), pod=(call.ifname,))


def _previous(call: Call) -> Result:
    if call.previous is None:
        raise CniError(Code.INTERNAL, "must be called as chained plugin")
    return call.previous


def _host_link(call: Call, observed: Observed) -> Link:
    """Return the host's end of the container's pair."""
    interfaces = _previous(call).interfaces
    if not interfaces:
        raise CniError(Code.INTERNAL, "no interfaces provided")
    inner = checking.pod(observed, call).links.get(call.ifname)
    if inner is None or inner.kind != "veth" or inner.peer_index <= 0:
        raise CniError(Code.INTERNAL, f"container interface {call.ifname} has no veth peer")
    outer = observed.host.by_index(inner.peer_index)
    if outer is None or outer.name not in {each.name for each in interfaces if not each.sandbox}:
        raise CniError(Code.INTERNAL, "no veth peer of container interface found in host ns")
    return outer


def plan(options: Options, call: Call, observed: Observed) -> Plan:
    """Plan the buckets, and the link that one of them hangs on."""
    if not options.limits:
        return Plan((), call.previous or Result())
    outer = _host_link(call, observed)
    steps: list[Step] = []
    result = _previous(call)
    if options.ingress is not None:
        steps.append(Step(ShapeLink(outer.index, options.ingress)))
    if options.egress is not None:
        ifb = Interface(link_name(call), call.draws.mac())
        steps += _egress(options.egress, call, outer, ifb, observed)
        result = replace(result, interfaces=(*result.interfaces, ifb))
    return Plan(tuple(steps), result)


def _egress(
    wanted: Bucket, call: Call, outer: Link, ifb: Interface, observed: Observed
) -> list[Step]:
    if ifb.name in observed.host.links:
        raise CniError(Code.INTERNAL, f"adding link: {ifb.name} exists: file exists")
    index = call.draws.index()
    change = Change(flags=links.UP, mac=ifb.mac, mtu=outer.mtu, txqlen=0, alias=ALIAS + call.label)
    steps: list[Step] = []
    if any(d.index == outer.index and d.kind == "ingress" for d in observed.host.disciplines):
        steps.append(Step(CloseIngress(outer.index)))  # an attempt that was cut off left it
    undo = DeleteLink(Place.HOST, ifb.name, index)
    return [
        *steps,
        Step(MakeLink(Place.HOST, "ifb", ifb.name, index, change), undo),
        Step(OpenIngress(outer.index)),
        Step(RedirectIngress(outer.index, index)),
        Step(ShapeLink(index, wanted)),
    ]


def check(options: Options, call: Call, observed: Observed) -> None:
    """Compare the buckets with the limits."""
    if not options.limits:
        return
    if options.ingress is not None:
        _compare(observed, _host_link(call, observed).index, options.ingress)
    if options.egress is not None:
        ifb = observed.host.links.get(link_name(call))
        if ifb is None:
            raise checking.fail(f"get ifb device: {link_name(call)} is missing")
        _compare(observed, ifb.index, options.egress)


def _compare(observed: Observed, index: int, wanted: Bucket) -> None:
    found = next(
        (d.bucket for d in observed.host.disciplines if d.index == index and d.bucket), None
    )
    if found is None:
        raise checking.fail("Failed to find qdisc")
    for name in ("rate", "limit", "buffer"):
        if getattr(found, name) != getattr(wanted, name):
            raise checking.fail(f"{name.capitalize()} doesn't match")


def remove(_options: object, call: Call, _observed: Observed) -> tuple[Operation, ...]:
    """Remove the link; what hangs on the pair goes with the pair."""
    return (DeleteLink(Place.HOST, link_name(call)),)


PLUGIN = Plugin(
    type="bandwidth",
    parse=parse,
    plan=plan,
    looks=looks,
    check=check,
    remove=remove,
    versions=versions.FROM_0_3_0,
)
