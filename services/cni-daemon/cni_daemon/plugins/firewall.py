"""firewall: forwarding to and from a container is allowed (cni.dev: meta/firewall).

An address is one element of a set. A packet that may pass is marked before iptables sees it,
and one rule in iptables' own FORWARD chain accepts marked packets: its policy, often DROP, can
be overruled only from there. As in the reference, ``CNI-ADMIN`` comes first, for people's own
rules. Removal needs no previous result.

Where firewalld runs, or is asked for, it decides: then an address is a source of one of its
zones, and nothing else.
"""

import functools
from dataclasses import dataclass

from bitts.cni import versions
from bitts.cni.config import PluginConfig
from bitts.cni.errors import CniError, Code
from bitts.cni.results import Result
from bitts.net import nftables
from bitts.net.iptables import Rule
from bitts.net.nftables import Container, Element

from cni_daemon.model import FIREWALLD, Call, Look, Observed, Plan, Step
from cni_daemon.names import ALLOWED_MARK, SHARED_SETS, TABLE
from cni_daemon.operations import AddElements, ApplyRules, Once, Operation, RemoveElements
from cni_daemon.plugins import addressing, checking
from cni_daemon.plugins.interface import Plugin
from cni_daemon.traffic import AddSource, LayIptables, RemoveSource

_OPEN, _SAME_BRIDGE, _ISOLATED = "open", "same-bridge", "isolated"
_IPTABLES, _FIREWALLD = _CHOSEN = ("iptables", "firewalld")
_SETS = {4: Container(TABLE, "allowed4"), 6: Container(TABLE, "allowed6")}
_CLOSED, _WITHIN, _APART = (Container(TABLE, name) for name in SHARED_SETS)
_NAME_SIZE = 16
_CHAIN = "CNI-FORWARD"
_REMEMBERED = 128
_BIT = 1 << ALLOWED_MARK
_MARK = f"meta mark set meta mark | {_BIT:#x}"
_SCRIPT = "\n".join(
    [
        f"add table inet {TABLE}",
        f"add set inet {TABLE} allowed4 {{ type ipv4_addr; }}",
        f"add set inet {TABLE} allowed6 {{ type ipv6_addr; }}",
        f"add set inet {TABLE} closed_bridges {{ type ifname; }}",
        f"add set inet {TABLE} within_bridges {{ type ifname . ifname; }}",
        f"add set inet {TABLE} isolated_bridges {{ type ifname . ifname; }}",
        f"add chain inet {TABLE} forward "
        "{ type filter hook forward priority -1; policy accept; }",
        f"flush chain inet {TABLE} forward",
        f"add rule inet {TABLE} forward iifname . oifname @isolated_bridges drop",
        f"add rule inet {TABLE} forward iifname @closed_bridges oifname @closed_bridges "
        "iifname . oifname != @within_bridges drop",
        *(
            f"add rule inet {TABLE} forward {rule} {_MARK}"
            for rule in (
                "ip saddr @allowed4", "ip daddr @allowed4 ct state related,established",
                "ip6 saddr @allowed6", "ip6 daddr @allowed6 ct state related,established",
            )
        ),
    ]
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Options:
    """The plugin's own keys. Whatever is no known backend leaves the choice to us."""

    policy: str = _OPEN
    admin_chain: str = "CNI-ADMIN"
    backend: str = ""
    zone: str = "trusted"

    @property
    def may_use_zone(self) -> bool:
        """Whether addresses may be sources of a zone."""
        return self.backend != _IPTABLES

    def uses_zone(self, observed: Observed) -> bool:
        """Say whether they are."""
        if self.backend == _FIREWALLD:
            return True
        return self.may_use_zone and observed.host.settings.get(FIREWALLD) == "1"


def parse(config: PluginConfig, _call: Call) -> Options:
    """Read the configuration. Raises CniError."""
    fields = config.fields
    policy = fields.text("ingressPolicy") or _OPEN
    if policy not in {_OPEN, _SAME_BRIDGE, _ISOLATED}:
        raise CniError(Code.INTERNAL, f'unknown ingress policy: "{policy}"')
    return Options(
        policy,
        fields.text("iptablesAdminChainName") or "CNI-ADMIN",
        fields.text("backend"),
        fields.text("firewalldZone") or "trusted",
    )


def _previous(call: Call) -> Result:
    if call.previous is None:
        raise CniError(Code.INTERNAL, "missing prevResult from earlier plugin")
    return call.previous


def _keys(call: Call) -> tuple[tuple[Container, bytes], ...]:
    addresses = () if call.previous is None else call.previous.ips
    return tuple((_SETS[ip.address.version], ip.address.ip.packed) for ip in addresses)


def _sources(call: Call) -> tuple[str, ...]:
    addresses = () if call.previous is None else call.previous.ips
    return tuple(str(addressing.host_interface(each.address.ip)) for each in addresses)


def looks(options: Options, call: Call) -> Look:
    """Look whether firewalld runs; for CHECK, look for the addresses."""
    if call.command != "CHECK":
        return Look(host_settings=() if options.backend in _CHOSEN else (FIREWALLD,))
    _previous(call)
    elements = () if options.backend == _FIREWALLD else _keys(call)
    return Look(elements=elements, zone=options.zone if options.may_use_zone else "")


def foundation(options: Options, call: Call, observed: Observed) -> tuple[Operation, ...]:
    """Return the rules that are missing, and what is said about the bridge."""
    wanted: list[Once] = []
    uses_zone = options.uses_zone(observed)
    if options.policy != _OPEN or not uses_zone:
        wanted.append(Once("firewall", (ApplyRules(_SCRIPT),)))
    if not uses_zone:
        families = dict.fromkeys(ip.address.version for ip in _previous(call).ips)
        wanted += [_accepting(version, options.admin_chain) for version in families]
    if options.policy != _OPEN:
        wanted.append(_closing(options.policy, _bridge(options, call)))
    return tuple(each for each in wanted if each.key not in observed.settled)


@functools.lru_cache(_REMEMBERED)
def _accepting(version: int, admin_chain: str) -> Once:
    def comment(text: str) -> tuple[str, ...]:
        return ("-m", "comment", "--comment", text)

    mark = f"{_BIT:#x}/{_BIT:#x}"
    rules = (
        Rule("FORWARD", (*comment("CNI firewall plugin rules"), "-j", _CHAIN), 1),
        Rule(_CHAIN, (*comment("CNI firewall plugin admin overrides"), "-j", admin_chain), 1),
        Rule(_CHAIN, ("-m", "mark", "--mark", mark, "-j", "ACCEPT")),
    )
    laid = LayIptables(version, (_CHAIN, admin_chain), rules)
    return Once(f"firewall {version} {admin_chain}", (laid,))


def _bridge(options: Options, call: Call) -> str:
    interfaces = _previous(call).interfaces
    if not interfaces:
        raise CniError(
            Code.INTERNAL,
            f'interface needs to be set for ingress policy "{options.policy}", '
            'make sure to chain "firewall" plugin with "bridge"',
        )
    name = interfaces[0].name
    if not name or len(name.encode()) >= _NAME_SIZE:
        raise CniError(Code.INTERNAL, f"got no bridge name but {name!r} as the first interface")
    return name


def _closing(policy: str, bridge: str) -> Once:
    """Return the elements that close a bridge to others; they stay, as other pods hang on it."""
    name = bridge.encode().ljust(_NAME_SIZE, b"\0")
    pair = Element(nftables.concatenated(name, name))
    said = [AddElements(_CLOSED, (Element(name),)), AddElements(_WITHIN, (pair,))]
    if policy == _ISOLATED:
        said.append(AddElements(_APART, (pair,)))
    return Once(f"firewall {policy} {bridge}", tuple(said))


def plan(options: Options, call: Call, observed: Observed) -> Plan:
    """Plan one element, or source, per address; the previous result goes through."""
    if options.uses_zone(observed):
        zone = options.zone
        sources = [Step(AddSource(zone, s), RemoveSource(zone, s)) for s in _sources(call)]
        return Plan(tuple(sources), _previous(call))
    steps = [
        Step(AddElements(container, (Element(key),)), RemoveElements(container, (Element(key),)))
        for container, key in _keys(call)
    ]
    return Plan(tuple(steps), _previous(call))


def check(_options: Options, call: Call, observed: Observed) -> None:
    """Find every address allowed."""
    allowed = zip(_previous(call).ips, _keys(call), _sources(call), strict=True)
    for ip, key, source in allowed:
        if key not in observed.elements and source not in observed.zone_sources:
            raise checking.fail(f"forwarding for {ip.address.ip} is not allowed any more")


def remove(options: Options | None, call: Call, _observed: Observed) -> tuple[Operation, ...]:
    """Remove the addresses of the previous result, if there is one, from wherever they may be."""
    found: list[Operation] = [RemoveElements(c, (Element(key),)) for c, key in _keys(call)]
    if options is not None and options.may_use_zone:
        found += [RemoveSource(options.zone, each, may_fail=True) for each in _sources(call)]
    return tuple(found)


PLUGIN = Plugin(
    type="firewall",
    parse=parse,
    plan=plan,
    looks=looks,
    foundation=foundation,
    check=check,
    remove=remove,
    versions=versions.FROM_0_4_0,
)
