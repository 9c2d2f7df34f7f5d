"""dummy: a link of the container that leads nowhere, to hold addresses (cni.dev: main/dummy)."""

from dataclasses import dataclass

from bitts.cni import results
from bitts.cni.config import PluginConfig
from bitts.cni.environment import Command
from bitts.cni.errors import CniError, Code
from bitts.cni.results import Dns
from bitts.net.links import Change

from cni_daemon.model import Call, Look, Observed, Place, Plan, Step
from cni_daemon.operations import DeleteLink, MakeLink
from cni_daemon.plugins import addressing, checking, sublinks
from cni_daemon.plugins.interface import Plugin

_KIND = "dummy"
_MTU = 1500


@dataclass(frozen=True, slots=True)
class Options:
    """The plugin's own keys: none but the resolver's."""

    dns: Dns = results.NO_DNS


def parse(config: PluginConfig, call: Call) -> Options:
    """Read the configuration. Raises CniError where there is no IPAM plugin."""
    if not config.ipam_type and call.command in {Command.ADD, Command.CHECK}:
        raise CniError(Code.INTERNAL, "dummy interface requires an IPAM configuration")
    return Options(results.decode_dns(config.fields.nested("dns")))


def looks(_options: Options, call: Call) -> Look:
    """Look at what has the container's name."""
    return Look(pod=(call.ifname,), has_pod_routes=call.command == Command.CHECK)


def plan(options: Options, call: Call, observed: Observed) -> Plan:
    """Plan the link and its addresses."""
    if call.ifname in checking.pod(observed, call).links:
        raise CniError(Code.INTERNAL, f"failed to create dummy: {call.ifname}: file exists")
    index, mac = call.draws.index(), call.draws.mac()
    result = sublinks.result(call, mac, options.dns, is_addressed=True)
    making = MakeLink(Place.POD, _KIND, call.ifname, index, Change(mac=mac))
    steps = [
        Step(making, DeleteLink(Place.POD, call.ifname)),
        *addressing.configure(result, 0, index, call.ifname),
    ]
    planned = sublinks.planned(call, _KIND, index, mac, _MTU)
    return Plan(tuple(steps), result, planned=planned)


def check(_options: Options, call: Call, observed: Observed) -> None:
    """Compare the link and its addresses with the result; routes are left to others."""
    previous, pod = checking.previous(call), checking.pod(observed, call)
    own = addressing.of_sandbox(previous, call.ifname, call.netns)
    if own is None:
        raise checking.fail(f"prevResult names no {call.ifname} in {call.netns}")
    if not checking.link(pod, own, kind=_KIND).is_up:
        raise checking.fail(f"Interface {call.ifname} is down")
    checking.addresses(pod, call.ifname, previous.ips)


PLUGIN = Plugin(
    type=_KIND,
    parse=parse,
    plan=plan,
    looks=looks,
    check=check,
    remove=sublinks.remove,
    uses_ipam=lambda _options: True,
)
