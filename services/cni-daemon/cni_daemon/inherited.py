"""iptables rules that the reference plugins made for an attachment.

They name the container's address, which somebody else may get next: then published ports and
accepted traffic of the one that is gone would be the new one's. So they go with it. A pod's end
does not depend on that: what cannot be removed is logged.
"""

import ipaddress
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from bitts.core import logs
from bitts.net import iptables
from bitts.net.errors import NetlinkError

from cni_daemon.model import Call

_VERSIONS = (4, 6)
_NAME_SIZE = 28
_FORWARD = "CNI-FORWARD"


@dataclass(frozen=True, slots=True)
class Chain:
    """A chain of the nat table that is one container's, and the chains that lead to it."""

    name: str
    leading: tuple[str, ...]


def chains(plugin: str, call: Call) -> tuple[Chain, ...]:
    """Return the chains that a plugin of the reference would have made (pure)."""

    def named(prefix: str, *leading: str) -> Chain:
        return Chain((prefix + call.digest)[:_NAME_SIZE], leading)

    match plugin:
        case "bridge" | "ptp":
            return (named("CNI-", "POSTROUTING"),)
        case "portmap":
            old = named("CNI-SN-", "CNI-HOSTPORT-SNAT", "POSTROUTING")
            return (named("CNI-DN-", "CNI-HOSTPORT-DNAT", "PREROUTING", "OUTPUT"), old)
    return ()


def leading_to(chain: str, rules: Iterable[str]) -> Iterator[str]:
    """Yield the rules that lead to a chain (pure)."""
    return (each for each in rules if each.split()[-2:] in (["-j", chain], ["-g", chain]))


def about(addresses: Iterable[str], rules: Iterable[str]) -> Iterator[str]:
    """Yield the rules that accept what comes from or goes to one of some addresses (pure)."""
    wanted = {ipaddress.ip_network(each) for each in addresses}
    for rule in rules:
        words = rule.split()
        pairs = list(itertools.pairwise(words))
        named = [_network(value) for option, value in pairs if option in {"-s", "-d"}]
        if words[-2:] == ["-j", "ACCEPT"] and len(named) == 1 and named[0] in wanted:
            yield rule


def _network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    try:
        return ipaddress.ip_network(text)
    except ValueError:
        return None


def remove(plugin: str, call: Call) -> None:
    """Remove what is there. Blocks. Raises nothing."""
    try:
        for version in _VERSIONS:
            for chain in chains(plugin, call):
                _remove_chain(version, chain)
            if plugin == "firewall" and call.previous is not None:
                ips = [each.address.ip for each in call.previous.ips]
                _remove_accepting(version, [str(ip) for ip in ips if ip.version == version])
    except (NetlinkError, OSError) as error:
        logs.get("inherited").warning(
            "Cannot remove rules of another plugin", plugin=plugin, container=call.container_id,
            err=error,
        )  # fmt: skip


def _remove_chain(version: int, chain: Chain) -> None:
    if not iptables.rules(version, "nat", chain.name):
        return
    found: list[str] = []
    for each in chain.leading:
        found += leading_to(chain.name, iptables.rules(version, "nat", each))
    iptables.remove(version, "nat", found, [chain.name])
    _tell(version, [*found, chain.name])


def _remove_accepting(version: int, addresses: Sequence[str]) -> None:
    found = [*about(addresses, iptables.rules(version, "filter", _FORWARD))] if addresses else []
    if found:
        iptables.remove(version, "filter", found)
        _tell(version, found)


def _tell(version: int, removed: Sequence[str]) -> None:
    logs.get("inherited").info(
        "Removed rules of another plugin", version=version, removed="; ".join(removed)
    )
