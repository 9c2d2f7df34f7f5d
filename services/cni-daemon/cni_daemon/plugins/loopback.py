"""loopback: the container's ``lo`` is switched on (CNI specification, appendix)."""

from dataclasses import dataclass

from bitts.cni import results
from bitts.cni.config import PluginConfig
from bitts.cni.errors import CniError, Code
from bitts.cni.results import Interface, Ip, Result
from bitts.net import links
from bitts.net.links import Change

from cni_daemon.model import Call, Look, Observed, Place, Plan, Step
from cni_daemon.operations import ChangeLink, Operation
from cni_daemon.plugins import checking
from cni_daemon.plugins.interface import Plugin

_NAME = "lo"
_NO_IPV6 = "ipv6/conf/lo/disable_ipv6"
_V4, _V6 = results.parse_interface("127.0.0.1/8"), results.parse_interface("::1/128")
_DOWN = ChangeLink(Place.POD, Change(cleared=links.UP), name=_NAME)


@dataclass(frozen=True, slots=True)
class Options:
    """There is nothing to choose."""


def parse(_config: PluginConfig, _call: Call) -> Options:
    """Accept any configuration."""
    return Options()


def looks(_options: Options, _call: Call) -> Look:
    """Look at ``lo`` and at whether IPv6 is on."""
    return Look(pod=(_NAME,), pod_settings=(_NO_IPV6,))


def plan(_options: Options, call: Call, observed: Observed) -> Plan:
    """Plan ``lo`` up; a previous result goes through unchanged."""
    assert observed.pod is not None
    found = [each.interface for each in observed.pod.addresses.get(_NAME, ())]
    for address in found:
        if not address.ip.is_loopback:
            raise CniError(
                Code.INTERNAL, f"loopback interface found with non-loopback address {address.ip}"
            )
    step = Step(ChangeLink(Place.POD, Change(flags=links.UP), name=_NAME), _DOWN)
    return Plan((step,), call.previous or _result(call, observed))


def _result(call: Call, observed: Observed) -> Result:
    """Return what the kernel gives ``lo`` once it is up."""
    assert observed.pod is not None
    has_ipv6 = observed.pod.settings.get(_NO_IPV6) == "0"
    ips = [Ip(_V4, interface=0), *([Ip(_V6, interface=0)] if has_ipv6 else [])]
    return Result(interfaces=(Interface(_NAME, "00:00:00:00:00:00", call.netns),), ips=tuple(ips))


def check(_options: Options, call: Call, observed: Observed) -> None:
    """Find ``lo`` up."""
    link = checking.pod(observed, call).links.get(_NAME)
    if link is None or not link.is_up:
        raise checking.fail("loopback interface is down")


def remove(_options: object, _call: Call, _observed: Observed) -> tuple[Operation, ...]:
    """Switch ``lo`` off."""
    return (_DOWN,)


PLUGIN = Plugin(type="loopback", parse=parse, plan=plan, looks=looks, check=check, remove=remove)
