"""macvlan: the container shares a link of the host by a MAC of its own (cni.dev: main/macvlan).

Unlike the reference, a failure leaves no link behind, CHECK and DEL need no master that may be
gone, and the IPAM plugin's resolver settings are kept where the configuration has none.
"""

from dataclasses import dataclass

from bitts.cni import results
from bitts.cni.config import PluginConfig
from bitts.cni.documents import SIZES
from bitts.cni.errors import CniError, Code
from bitts.cni.results import Dns
from bitts.net import links, wire
from bitts.net.links import Change

from cni_daemon.model import Call, Look, Observed, Place, Plan
from cni_daemon.plugins import addressing, checking, sublinks
from cni_daemon.plugins.interface import Plugin
from cni_daemon.plugins.macs import normal, requested_mac

_KIND = "macvlan"
_MODES = {"": 4, "bridge": 4, "private": 1, "vepa": 2, "passthru": 8}
_PASSTHRU = 8
_QUEUE = 7


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
    return Options(
        master=fields.path("master"),
        mode=_MODES[mode],
        mtu=fields.integer("mtu", low=0, high=SIZES),
        mac=requested_mac(config, call) or normal(fields.text("mac")),
        is_in_container=fields.boolean("linkInContainer"),
        queue=fields.integer("bcqueuelen", low=0, high=2**32),
        ipam=config.ipam_type,
        dns=results.decode_dns(fields.nested("dns")),
    )


def looks(options: Options, call: Call) -> Look:
    """Look at the master (or for the default route), and at what has the container's name."""
    return sublinks.looks(options.master, call, is_in_container=options.is_in_container)


def plan(options: Options, call: Call, observed: Observed) -> Plan:
    """Plan the link, made under a passing name, and what it gets."""
    is_inside = options.is_in_container
    master = sublinks.find_master(options.master, observed, is_in_container=is_inside)
    sublinks.check_mtu(options.mtu, master)
    mac = options.mac or (master.mac if options.mode == _PASSTHRU else call.draws.mac())
    data = links.kind_data(_KIND, options.mode)
    if options.queue:
        data += wire.u32(_QUEUE, options.queue)
    change = Change(mac=mac, mtu=options.mtu or None)
    result = sublinks.result(call, mac, options.dns, is_addressed=bool(options.ipam))
    index, steps = sublinks.make(
        _KIND, call, observed, master, change, data, is_in_container=is_inside
    )
    if options.ipam:
        steps += sublinks.notify(call.ifname)
        steps += addressing.configure(result, 0, index, call.ifname, skips_dad=False)
    else:
        steps.append(addressing.up(Place.POD, index))
    planned = sublinks.planned(call, _KIND, index, mac, options.mtu or master.mtu)
    return Plan(tuple(steps), result, planned=planned)


def check(options: Options, call: Call, observed: Observed) -> None:
    """Compare the link, its addresses and routes with the result."""
    link = sublinks.check(call, observed, _KIND)
    if link.setting != options.mode:
        raise checking.fail(f"Container macvlan mode {link.setting} does not match {options.mode}")


PLUGIN = Plugin(
    type=_KIND,
    parse=parse,
    plan=plan,
    looks=looks,
    check=check,
    remove=sublinks.remove,
    uses_ipam=lambda options: bool(options.ipam),
)
