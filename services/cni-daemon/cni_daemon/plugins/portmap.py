"""portmap: ports of the host lead into the container (cni.dev: meta/portmap).

A published port is one entry of a map; the rules around the maps are laid once. Both of the
configuration's backends come to this. Where the reference lets two containers have the same
port, of which one never hears anything, ours refuses the second.
"""

import functools
import ipaddress
from collections.abc import Iterator
from dataclasses import dataclass

from bitts.cni import capabilities, results
from bitts.cni.capabilities import PortMapping
from bitts.cni.config import PluginConfig
from bitts.cni.errors import CniError, Code
from bitts.cni.results import Ip, Result
from bitts.net import nftables
from bitts.net.conntrack import Service
from bitts.net.nftables import Container, Element, Goto

from cni_daemon.model import Call, Look, Observed, Plan, Step
from cni_daemon.names import HAIRPIN_MARK, TABLE
from cni_daemon.operations import AddElements, Once, Operation, RemoveElements
from cni_daemon.plugins import checking, portrules
from cni_daemon.plugins.interface import Plugin
from cni_daemon.plugins.portrules import Rules
from cni_daemon.traffic import AllowLoopbackSources, ForgetFlows

_PROTOCOLS = {"tcp": 6, "udp": 17, "dccp": 33, "sctp": 132, "udplite": 136}
_BACKENDS = (None, "iptables", "nftables")
_PORTS = 1 << 16
_MARKS = 32
_REMEMBERED = 128


@dataclass(frozen=True, slots=True)
class Options:
    """The plugin's own keys, and the ports to publish."""

    mappings: tuple[PortMapping, ...] = ()
    snat: bool = True
    masquerades_all: bool = False
    rules: Rules = portrules.USUAL


@dataclass(frozen=True, slots=True)
class _Entry:
    """One published port of one address: where it is written, and the flows it stands for."""

    container: Container
    element: Element
    service: Service
    name: str


def parse(config: PluginConfig, call: Call) -> Options:
    """Read configuration and ports. Raises CniError with the reference's words."""
    rules, snat, masquerades_all = _settings(config)
    mappings = capabilities.port_mappings(call.runtime)
    for mapping in mappings:
        _check(mapping)
    return Options(mappings, snat, masquerades_all, rules)


@functools.lru_cache(_REMEMBERED)
def _settings(config: PluginConfig) -> tuple[Rules, bool, bool]:
    fields = config.fields
    bit = fields.optional_integer("markMasqBit")
    if bit is not None and fields.raw("externalSetMarkChain") is not None:
        raise _mistake("Cannot specify externalSetMarkChain and markMasqBit")
    mark = HAIRPIN_MARK if bit is None else bit
    if not 0 <= mark < _MARKS:
        raise _mistake("MasqMarkBit must be between 0 and 31")
    backend = fields.raw("backend")
    if backend not in _BACKENDS:
        raise _mistake(f'unrecognized backend "{backend}"')
    rules = Rules(
        mark,
        portrules.condition("conditionsV4", fields.texts("conditionsV4"), str(backend or "")),
        portrules.condition("conditionsV6", fields.texts("conditionsV6"), str(backend or "")),
    )
    return rules, fields.boolean("snat", default=True), fields.boolean("masqAll")


def _mistake(message: str) -> CniError:
    return CniError(Code.INTERNAL, f"failed to parse config: {message}")


def _check(mapping: PortMapping) -> None:
    if not 0 < mapping.container_port < _PORTS:
        raise _mistake(f"Invalid container port number: {mapping.container_port}")
    if not 0 < mapping.host_port < _PORTS:
        raise _mistake(f"Invalid host port number: {mapping.host_port}")
    if mapping.protocol not in _PROTOCOLS:
        known = ", ".join(_PROTOCOLS)
        raise _mistake(f"Invalid protocol {mapping.protocol!r}: one of {known} is needed")
    if mapping.host_ip:
        try:
            ipaddress.ip_address(mapping.host_ip)
        except ValueError:
            raise _mistake(f"Invalid host IP {mapping.host_ip!r}") from None


def _addresses(call: Call) -> list[Ip]:
    """Return the container's first address of each family."""
    previous = call.previous or Result()
    found: dict[int, Ip] = {}
    for ip in previous.ips:
        if ip.interface is not None and 0 <= ip.interface < len(previous.interfaces):
            interface = previous.interfaces[ip.interface]
            if interface.name != call.ifname or not interface.sandbox:
                continue
        found.setdefault(ip.address.version, ip)
    return [found[version] for version in sorted(found)]


def _entries(options: Options, ip: Ip) -> Iterator[_Entry]:
    seen: set[tuple[Container, bytes]] = set()
    version = ip.address.version
    for mapping in options.mappings:
        address = results.parse_address(mapping.host_ip) if mapping.host_ip else None
        if address is not None and address.version != version:
            continue
        entry = _entry(options, ip, mapping, None if _is_any(address) else address)
        if (entry.container, entry.element.key) not in seen:
            seen.add((entry.container, entry.element.key))
            yield entry


def _is_any(address: results.IpAddress | None) -> bool:
    return address is None or address.is_unspecified


def _entry(
    options: Options, ip: Ip, mapping: PortMapping, address: results.IpAddress | None
) -> _Entry:
    version, protocol = ip.address.version, _PROTOCOLS[mapping.protocol]
    key = nftables.concatenated(bytes([protocol]), nftables.service(mapping.host_port))
    if address is not None:
        key = address.packed + key
    target = nftables.concatenated(ip.address.ip.packed, nftables.service(mapping.container_port))
    name = options.rules.ports(version, has_address=address is not None)
    shown = f"{mapping.host_ip}:{mapping.host_port}" if address else str(mapping.host_port)
    return _Entry(
        Container(TABLE, name),
        Element(key, target),
        Service(version, protocol, mapping.host_port, address),
        f"host port {shown}/{mapping.protocol}",
    )


def _hairpin(options: Options, ip: Ip) -> tuple[Container, Element]:
    chain = (
        portrules.EVERY_SOURCE if options.masquerades_all else portrules.subnet_chain(ip.address)
    )
    container = Container(TABLE, options.rules.hairpins(ip.address.version))
    return container, Element(ip.address.ip.packed, Goto(chain))


def looks(options: Options, call: Call) -> Look:
    """For CHECK, look for the entries."""
    if call.command != "CHECK":
        return Look()
    checking.previous(call)
    return Look(
        elements=tuple(
            (entry.container, entry.element.key)
            for ip in _addresses(call)
            for entry in _entries(options, ip)
        )
    )


def foundation(options: Options, call: Call, observed: Observed) -> tuple[Operation, ...]:
    """Return the rules that are missing."""
    if not options.mappings:
        return ()
    wanted = [portrules.base(options.rules)]
    if options.snat and not options.masquerades_all:
        wanted += [portrules.subnet(ip.address) for ip in _addresses(call)]
    return tuple(each for each in wanted if _is_missing(each, observed))


def _is_missing(once: Once, observed: Observed) -> bool:
    return once.key not in observed.settled


def plan(options: Options, call: Call, _observed: Observed) -> Plan:
    """Plan the entries; the previous result goes through."""
    assert call.previous is not None
    steps: list[Step] = []
    if options.mappings:
        for ip in _addresses(call):
            steps += _published(options, ip)
    return Plan(tuple(steps), call.previous)


def _published(options: Options, ip: Ip) -> list[Step]:
    entries = list(_entries(options, ip))
    datagrams = tuple(e.service for e in entries if e.service.protocol == _PROTOCOLS["udp"])
    steps: list[Step] = []
    if datagrams:  # on removal it comes last: when the entries are gone
        steps.append(Step(None, ForgetFlows(datagrams)))
    for entry in entries:
        own = (entry.element,)
        undo = RemoveElements(entry.container, own)
        steps.append(Step(AddElements(entry.container, own, entry.name), undo))
    if options.snat:
        container, element = _hairpin(options, ip)
        undo = RemoveElements(container, (element,))
        steps.append(Step(AddElements(container, (element,)), undo))
    if datagrams:
        steps.append(Step(ForgetFlows(datagrams)))
    if options.snat and ip.address.version == 4:
        steps.append(Step(AllowLoopbackSources(ip.address.ip)))
    return steps


def check(options: Options, call: Call, observed: Observed) -> None:
    """Find every entry, leading where it should."""
    for ip in _addresses(call):
        for entry in _entries(options, ip):
            found = observed.elements.get((entry.container, entry.element.key))
            if found is None:
                raise checking.fail(f"{entry.name} is not published")
            if found.data != entry.element.data:
                raise checking.fail(f"{entry.name} leads to another container")


def remove(options: Options | None, call: Call, _observed: Observed) -> tuple[Operation, ...]:
    """Undo what a plan for the same configuration would do; without a result nothing is known."""
    if options is None or not options.mappings:
        return ()
    steps = [step for ip in _addresses(call) for step in _published(options, ip)]
    return tuple(step.undo for step in reversed(steps) if step.undo is not None)


PLUGIN = Plugin(
    type="portmap",
    parse=parse,
    plan=plan,
    looks=looks,
    foundation=foundation,
    check=check,
    remove=remove,
    is_meta=True,
)
