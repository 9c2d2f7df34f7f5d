"""Put rules back that somebody has flushed: the shared ones, and what standing attachments had.

What an attachment had is in the undo half of its plan: an element that its removal would take
out is one that has to be there. Everything here blocks.
"""

from collections.abc import Iterable, Iterator, Mapping

from bitts.core import logs
from bitts.net import nftables
from bitts.net.errors import NetlinkError
from bitts.net.nftables import Container, Element

from cni_daemon import scene, sweeping
from cni_daemon.executor import Executor, OperationError
from cni_daemon.operations import Once, RemoveElements, Simple
from cni_daemon.records import Entry, Phase
from cni_daemon.scene import Scene


def has_lost_sets(entries: Iterable[Entry]) -> bool:
    """Say whether a set that attachments need is gone: one question for each table."""
    wanted = {each.container for entry in entries for each in elements(entry)}
    return bool(wanted) and not wanted <= set(sweeping.containers(scene.host_netfilter()))


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
