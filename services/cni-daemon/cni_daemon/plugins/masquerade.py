"""ipMasq (pure): one entry of a verdict map per address, one small chain per subnet.

An address leads to its subnet's chain, which masquerades whatever leaves the subnet; so an
attachment costs one map element however many there are, and no rule of one pod depends on
another. Both of the configuration's backends come to this: what the two differ in upstream is
how the rules are written, not what they do.
"""

from collections.abc import Iterable

from bitts.cni.errors import CniError, Code
from bitts.cni.results import Ip, IpInterface
from bitts.net.nftables import Container, Element, Goto

from cni_daemon.model import Observed, Step
from cni_daemon.names import TABLE
from cni_daemon.operations import AddElements, ApplyRules, Once, RemoveElements

BACKENDS = ("", "iptables", "nftables")
_MAPS = {4: "masq4", 6: "masq6"}
_TYPES = {4: "ipv4_addr", 6: "ipv6_addr"}
_WORDS = {4: "ip", 6: "ip6"}
_MULTICAST = {4: "224.0.0.0/4", 6: "ff00::/8"}
_PRIORITY = 100


def foundation(ips: Iterable[Ip], backend: str, observed: Observed) -> tuple[Once, ...]:
    """Return the rules that are missing for these addresses. Raises CniError."""
    ips = tuple(ips)
    if ips and backend not in BACKENDS:
        raise CniError(Code.INTERNAL, f'unknown ipmasq backend "{backend}"')
    wanted = {_key(ip.address): ip.address for ip in ips}
    return tuple(
        Once(key, (ApplyRules(_script(address)),))
        for key, address in wanted.items()
        if key not in observed.settled
    )


def steps(ips: Iterable[Ip]) -> tuple[Step, ...]:
    """Return the steps that masquerade what these addresses send out of their subnets."""
    found: list[Step] = []
    for ip in ips:
        container = Container(TABLE, _MAPS[ip.address.version])
        packed = ip.address.ip.packed
        added = Element(packed, Goto(_chain(ip.address)))
        found.append(Step(AddElements(container, (added,)), RemoveElements(container, (added,))))
    return tuple(found)


def _key(address: IpInterface) -> str:
    return f"masquerade {address.network}"


def _chain(address: IpInterface) -> str:
    text = str(address.network).replace("/", "_").replace(".", "_").replace(":", "-")
    return f"masq_{text}"


def _script(address: IpInterface) -> str:
    chain, version = _chain(address), address.version
    lines = [f"add table inet {TABLE}"]
    lines += [
        f"add map inet {TABLE} {name} {{ type {_TYPES[number]} : verdict; }}"
        for number, name in _MAPS.items()
    ]
    lines += [
        f"add chain inet {TABLE} postrouting "
        f"{{ type nat hook postrouting priority {_PRIORITY}; policy accept; }}",
        f"flush chain inet {TABLE} postrouting",
        f"add rule inet {TABLE} postrouting ip saddr vmap @masq4",
        f"add rule inet {TABLE} postrouting ip6 saddr vmap @masq6",
        f"add chain inet {TABLE} {chain}",
        f"flush chain inet {TABLE} {chain}",
        f"add rule inet {TABLE} {chain} {_WORDS[version]} daddr "
        f"{{ {address.network}, {_MULTICAST[version]} }} return",
        f"add rule inet {TABLE} {chain} masquerade",
    ]
    return "\n".join(lines) + "\n"
