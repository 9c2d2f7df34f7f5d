"""ipvlan: the container shares a link of the host and its MAC address (cni.dev: main/ipvlan).

Without an IPAM plugin it gives the container what an earlier plugin of the list has allocated.
Unlike the reference, a failure leaves no link behind, CHECK and DEL need no master, and the IPAM
plugin's resolver settings are kept where the configuration has none.
"""

from dataclasses import dataclass

from bitts.cni import results
from bitts.cni.config import PluginConfig
from bitts.cni.documents import SIZES
from bitts.cni.environment import Command
from bitts.cni.errors import CniError, Code
from bitts.cni.results import Dns, Result
from bitts.net import links
from bitts.net.links import Change

from cni_daemon.model import Call, Look, Observed, Plan
from cni_daemon.plugins import addressing, checking, sublinks
from cni_daemon.plugins.interface import Plugin

_KIND = "ipvlan"
_MODES = {"l2": 0, "l3": 1, "l3s": 2}


@dataclass(frozen=True, slots=True)
class Options:
    """The plugin's own keys; ``asks_ipam``: the addresses come from the IPAM plugin."""

    master: str = ""
    mode: str = "l2"
    mtu: int = 0
    is_in_container: bool = False
    asks_ipam: bool = False
    dns: Dns = results.NO_DNS


def parse(config: PluginConfig, call: Call) -> Options:
    """Read the configuration. Raises CniError."""
    fields = config.fields
    mode = fields.text("mode") or "l2"
    if mode not in _MODES:
        raise CniError(Code.INTERNAL, f'unknown ipvlan mode: "{mode}"')
    has_addresses = call.previous is not None and bool(call.previous.ips)
    return Options(
        master=fields.path("master"),
        mode=mode,
        mtu=fields.integer("mtu", low=0, high=SIZES),
        is_in_container=fields.boolean("linkInContainer"),
        asks_ipam=bool(config.ipam_type) or (call.command == Command.ADD and not has_addresses),
        dns=results.decode_dns(fields.nested("dns")),
    )


def _master(options: Options, call: Call) -> str:
    """Return the master's name: the one configured, else the one link of the earlier result."""
    if options.master or call.previous is None:
        return options.master
    names = [each.name for each in call.previous.interfaces]
    if len(names) != 1 or not names[0]:
        raise CniError(
            Code.INTERNAL,
            "chained master failure. PrevResult lacks a single named interface",
        )
    return names[0]


def looks(options: Options, call: Call) -> Look:
    """Look at the master (or for the default route), and at what has the container's name."""
    master = "" if call.command == Command.CHECK else _master(options, call)
    return sublinks.looks(master, call, is_in_container=options.is_in_container)


def plan(options: Options, call: Call, observed: Observed) -> Plan:
    """Plan the link, made under a passing name, and what it gets."""
    is_inside = options.is_in_container
    master = sublinks.find_master(_master(options, call), observed, is_in_container=is_inside)
    if not options.asks_ipam:
        call = call.addressed(call.previous or Result())
    result = sublinks.result(call, master.mac, options.dns, is_addressed=True)
    index, steps = sublinks.make(
        _KIND, call, observed, master, Change(mtu=options.mtu or None),
        links.kind_data(_KIND, _MODES[options.mode]), is_in_container=is_inside,
    )  # fmt: skip
    steps += sublinks.notify(call.ifname)
    steps += addressing.configure(result, 0, index, call.ifname, skips_dad=False)
    planned = sublinks.planned(call, _KIND, index, master.mac, options.mtu or master.mtu)
    return Plan(tuple(steps), result, planned=planned)


def check(options: Options, call: Call, observed: Observed) -> None:
    """Compare the link, its addresses and routes with the result."""
    link = sublinks.check(call, observed, _KIND)
    if link.setting != _MODES[options.mode]:
        found = next((n for n, number in _MODES.items() if number == link.setting), "unknown")
        raise checking.fail(
            f"Container IPVlan mode {found} does not match expected value: {options.mode}"
        )


PLUGIN = Plugin(
    type=_KIND,
    parse=parse,
    plan=plan,
    looks=looks,
    check=check,
    remove=sublinks.remove,
    uses_ipam=lambda options: options.asks_ipam,
)
