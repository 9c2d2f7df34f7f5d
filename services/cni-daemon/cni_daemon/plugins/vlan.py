"""vlan: the container gets one VLAN of a link of the host (cni.dev: main/vlan).

Unlike the reference, a failure leaves no link behind, and CHECK and DEL need no master that may
be gone.
"""

from dataclasses import dataclass

from bitts.cni import results
from bitts.cni.config import PluginConfig
from bitts.cni.documents import SIZES
from bitts.cni.errors import CniError, Code
from bitts.cni.results import Dns
from bitts.net import links
from bitts.net.links import Change

from cni_daemon.model import Call, Look, Observed, Place, Plan
from cni_daemon.plugins import addressing, checking, sublinks
from cni_daemon.plugins.interface import Plugin

_KIND = "vlan"
_HIGHEST = 4094


@dataclass(frozen=True, slots=True)
class Options:
    """The plugin's own keys."""

    master: str
    number: int = 0
    mtu: int = 0
    is_in_container: bool = False
    ipam: str = ""
    dns: Dns = results.NO_DNS


def parse(config: PluginConfig, _call: Call) -> Options:
    """Read the configuration. Raises CniError."""
    fields = config.fields
    options = Options(
        master=fields.path("master"),
        number=fields.integer("vlanId"),
        mtu=fields.integer("mtu", low=0, high=SIZES),
        is_in_container=fields.boolean("linkInContainer"),
        ipam=config.ipam_type,
        dns=results.decode_dns(fields.nested("dns")),
    )
    if not options.master:
        raise CniError(
            Code.INTERNAL, '"master" field is required: name the link to make the VLAN on'
        )
    if not 0 <= options.number <= _HIGHEST:
        raise CniError(
            Code.INTERNAL,
            f"invalid VLAN ID {options.number} (must be between 0 and 4095 inclusive)",
        )
    return options


def looks(options: Options, call: Call) -> Look:
    """Look at the master, and at what has the container's name."""
    return sublinks.looks(options.master, call, is_in_container=options.is_in_container)


def plan(options: Options, call: Call, observed: Observed) -> Plan:
    """Plan the link, which has its master's MAC address, and what it gets."""
    is_inside = options.is_in_container
    master = sublinks.find_master(options.master, observed, is_in_container=is_inside)
    sublinks.check_mtu(options.mtu, master)
    result = sublinks.result(call, master.mac, options.dns, is_addressed=bool(options.ipam))
    index, steps = sublinks.make(
        _KIND, call, observed, master, Change(mtu=options.mtu or None),
        links.kind_data(_KIND, options.number), is_in_container=is_inside,
    )  # fmt: skip
    if options.ipam:
        steps += addressing.configure(result, 0, index, call.ifname, skips_dad=False)
    else:
        steps.append(addressing.up(Place.POD, index))
    planned = sublinks.planned(call, _KIND, index, master.mac, options.mtu or master.mtu)
    return Plan(tuple(steps), result, planned=planned)


def check(options: Options, call: Call, observed: Observed) -> None:
    """Compare the link, its number and size, its addresses and routes with the result."""
    link = sublinks.check(call, observed, _KIND)
    if link.setting != options.number:
        raise checking.fail(
            f"VLAN ID of {call.ifname} is {link.setting}, configured is {options.number}"
        )
    if options.mtu and link.mtu != options.mtu:
        raise checking.fail(f"MTU of {call.ifname} is {link.mtu}, configured is {options.mtu}")


PLUGIN = Plugin(
    type=_KIND,
    parse=parse,
    plan=plan,
    looks=looks,
    check=check,
    remove=sublinks.remove,
    uses_ipam=lambda options: bool(options.ipam),
)
