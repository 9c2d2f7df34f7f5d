"""Put rules back that somebody has flushed: the shared ones, and what standing attachments had.

What an attachment had is in the undo half of its plan: an element that its removal would take
out is one that has to be there. Everything here blocks.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from bitts.core import logs
from bitts.net import iptables, nftables
from bitts.net.errors import NetlinkError
from bitts.net.nftables import Container, Element
from bitts.net.sockets import Socket

from cni_daemon import scene, sweeping
from cni_daemon.executor import Executor, OperationError
from cni_daemon.names import TABLE
from cni_daemon.operations import ApplyRules, Once, RemoveElements, Simple
from cni_daemon.records import Entry, Phase
from cni_daemon.scene import Scene
from cni_daemon.sweeping import Place
from cni_daemon.traffic import LayIptables

_FAMILIES = {"inet": nftables.INET, "bridge": nftables.BRIDGE}
_RULE = re.compile(rf"^add rule ({'|'.join(_FAMILIES)}) {TABLE} (\S+)", re.MULTILINE)


def has_lost_sets(entries: Iterable[Entry]) -> bool:
    """Say whether a set that attachments need is gone: one question for each table."""
    wanted = {each.container for entry in entries for each in elements(entry)}
    return bool(wanted) and not wanted <= set(sweeping.containers(scene.host_netfilter()))


def has_lost_rules(
    foundations: Mapping[str, tuple[Simple, ...]], *, thoroughly: bool = False
) -> bool:
    """Say whether a chain has fewer rules than were laid, or iptables has lost one of ours."""
    channel = scene.host_netfilter()
    wanted = expected(foundations)
    if wanted and not wanted <= _present(channel, {family for family, _ in wanted}):
        return True
    return not all(
        iptables.is_laid(each.version, each.rules, channel, thoroughly=thoroughly)
        for operations in foundations.values()
        for each in operations
        if isinstance(each, LayIptables)
    )


def expected(foundations: Mapping[str, tuple[Simple, ...]]) -> Counter[tuple[str, str]]:
    """Return how many rules each chain of our tables must have, by family (pure).

    Every script that writes into a chain empties it first, so the last one counts.
    """
    found: dict[tuple[str, str], int] = {}
    for operations in foundations.values():
        for each in operations:
            if isinstance(each, ApplyRules):
                found |= Counter(_RULE.findall(each.script))
    return Counter(found)


def _present(channel: Socket, families: Iterable[str]) -> Counter[tuple[str, str]]:
    found: Counter[tuple[str, str]] = Counter()
    for family in families:
        try:
            replies = channel.dump(nftables.rules(TABLE, _FAMILIES[family]), "listing rules")
        except NetlinkError as error:
            if not error.is_missing:
                raise
        else:
            rules = map(nftables.decode_rule, replies)
            found.update((family, each.chain) for each in rules if each.table == TABLE)
    return found


def incomplete(entries: Iterable[Entry]) -> list[Entry]:
    """Return the standing attachments of which an element is missing."""
    channel = scene.host_netfilter()
    present = {
        (container, key)
        for container in sweeping.containers(channel)
        for key in sweeping.keys(channel, container)
    }
    return [entry for entry in entries if _is_incomplete(entry, present)]


def _is_incomplete(entry: Entry, present: set[tuple[Container, bytes]]) -> bool:
    if entry.phase is not Phase.DONE:
        return False
    return any(
        (each.container, element.key) not in present
        for each in elements(entry)
        for element in each.elements
    )


def elements(entry: Entry) -> Iterator[RemoveElements]:
    """Yield what takes out the elements that an attachment has while it stands."""
    return (each for each in entry.undo if isinstance(each, RemoveElements))


def owned(entries: Iterable[Entry]) -> set[Place]:
    """Return where attachments have their elements (pure)."""
    return {
        (each.container, element.key)
        for entry in entries
        for each in elements(entry)
        for element in each.elements
    }


def lay(executor: Executor, foundations: Mapping[str, tuple[Simple, ...]]) -> None:
    """Lay shared rules anew; what cannot be is told and left to the next ADD."""
    executor.unsettle(foundations)
    for key, operations in foundations.items():
        try:
            executor.lay([Once(key, operations)], Scene())
        except OperationError as error:
            logs.get("relaying").error("Cannot lay rules anew", rules=key, err=error)


def restore(entry: Entry) -> None:
    """Give an attachment its elements back. Raises NetlinkError for the first that cannot be."""
    channel = scene.host_netfilter()
    for each in elements(entry):
        added = [Element(element.key, element.data) for element in each.elements]
        failed = channel.transact([nftables.add(each.container, added)])
        if failed:
            raise NetlinkError(failed[0].error, f"adding to {each.container.name}", failed[0].text)
