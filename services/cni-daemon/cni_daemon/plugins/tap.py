"""tap: the container gets a link whose other end is a program's (cni.dev: main/tap).

Unlike the reference, the MAC address asked for is always given, whichever way the device is
made, and IPv6 addresses skip duplicate address detection: there is nobody on the wire yet.
"""

from dataclasses import dataclass

from bitts.cni import args, results
from bitts.cni.config import PluginConfig
from bitts.cni.documents import SIZES
from bitts.cni.errors import CniError, Code
from bitts.cni.results import Dns
from bitts.net import taps
from bitts.net.links import Change
from bitts.net.taps import Tap

from cni_daemon.devices import MakeTap
from cni_daemon.model import Call, Look, Observed, Place, Plan, Step
from cni_daemon.operations import ChangeLink, DeleteLink
from cni_daemon.plugins import addressing, checking, sublinks
from cni_daemon.plugins.interface import Plugin
from cni_daemon.plugins.macs import normal

_KIND = "tun"
_MTU = 1500
_IDS = 2**32


@dataclass(frozen=True, slots=True)
class Options:
    """The plugin's own keys."""

    has_queues: bool = False
    mtu: int = 0
    mac: str = ""
    owner: int | None = None
    group: int | None = None
    context: str = ""
    bridge: str = ""
    ipam: str = ""
    dns: Dns = results.NO_DNS

    @property
    def flags(self) -> int:
        """Return what the reference sets: with owner and group it makes the device itself."""
        if self.owner is None or self.group is None or self.context:
            found = taps.WITHOUT_PACKET_INFO
        elif self.has_queues:
            found = taps.VIRTIO_HEADER | taps.WITHOUT_PACKET_INFO
        else:
            found = taps.VIRTIO_HEADER
        return found | (taps.MULTI_QUEUE if self.has_queues else 0)


def parse(config: PluginConfig, call: Call) -> Options:
    """Read the configuration. Raises CniError."""
    fields = config.fields
    return Options(
        has_queues=fields.boolean("multiQueue"),
        mtu=fields.integer("mtu", low=0, high=SIZES),
        mac=_mac(config, call),
        owner=fields.optional_integer("owner", low=0, high=_IDS),
        group=fields.optional_integer("group", low=0, high=_IDS),
        context=fields.text("selinuxContext"),
        bridge=fields.path("bridge"),
        ipam=config.ipam_type,
        dns=results.decode_dns(fields.nested("dns")),
    )


def _mac(config: PluginConfig, call: Call) -> str:
    try:
        known = args.parse(call.invocation.args, {"MAC"})
    except ValueError as error:
        raise CniError(Code.INTERNAL, str(error)) from None
    return normal(call.runtime.text("mac") or known.get("MAC") or config.fields.text("mac"))


def looks(options: Options, call: Call) -> Look:
    """Look at what has the container's name, and at the bridge inside."""
    if call.command == "CHECK":
        return Look(pod=(call.ifname,), has_pod_routes=True)
    return Look(pod=(call.ifname, *([options.bridge] if options.bridge else [])))


def plan(options: Options, call: Call, observed: Observed) -> Plan:
    """Plan the device and what it gets."""
    present = checking.pod(observed, call).links
    if call.ifname in present:
        raise CniError(Code.INTERNAL, f'failed to rename tap to "{call.ifname}": file exists')
    if options.bridge and options.bridge not in present:
        raise CniError(Code.INTERNAL, f"failed to get bridge {options.bridge}: Link not found")
    index, mac = call.draws.index(), options.mac or call.draws.mac()
    result = sublinks.result(call, mac, options.dns, is_addressed=bool(options.ipam))
    master = present[options.bridge].index if options.bridge else None
    change = Change(mac=mac, mtu=options.mtu or None, master=master)
    steps = [*_device(options, call, index), Step(ChangeLink(Place.POD, change, index))]
    if options.ipam:
        notify = f"ipv4/conf/{call.ifname}/arp_notify"
        steps.append(addressing.setting(Place.POD, notify, "1", is_optional=True))
        steps += addressing.configure(result, 0, index, call.ifname)
    else:
        steps.append(addressing.up(Place.POD, index))
    planned = sublinks.planned(call, _KIND, index, mac, options.mtu or _MTU)
    return Plan(tuple(steps), result, planned=planned)


def _device(options: Options, call: Call, index: int) -> list[Step]:
    tap = Tap(call.ifname, index, options.flags, options.owner, options.group)
    undo = DeleteLink(Place.POD, call.ifname)
    if not options.context:
        return [Step(MakeTap(Place.POD, tap), undo)]
    passing = call.draws.link_name()
    return [
        Step(None, DeleteLink(Place.HOST, passing)),
        Step(MakeTap(Place.POD, tap, options.context, passing), undo),
    ]


def check(_options: Options, call: Call, observed: Observed) -> None:
    """Compare addresses and routes with the result, and that it is a tap."""
    sublinks.check(call, observed, _KIND)


PLUGIN = Plugin(
    type="tap",
    parse=parse,
    plan=plan,
    looks=looks,
    check=check,
    remove=sublinks.remove,
    uses_ipam=lambda options: bool(options.ipam),
)
