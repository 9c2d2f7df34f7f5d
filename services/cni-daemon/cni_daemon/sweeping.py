"""Elements of our sets that no attachment owns: what a lost journal would leave for good.

A published port that leads to a container long gone would refuse itself to every other one,
so what the journal would not remove is removed. Sets that describe the node (bridges closed to
each other) and those that belong to rules themselves are left alone.
"""

from collections.abc import Iterable, Iterator

from bitts.core import logs
from bitts.net import nftables
from bitts.net.errors import NetlinkError
from bitts.net.nftables import Container, Element
from bitts.net.sockets import Socket

from cni_daemon.names import SHARED_SETS, TABLE
from cni_daemon.operations import RemoveElements
from cni_daemon.records import Entry

_FAMILIES = (nftables.INET, nftables.BRIDGE)
_OF_RULES = "__"
"""How nft names the sets that are written inside a rule."""

_AT_ONCE = 200


def remove_stale(channel: Socket, entries: Iterable[Entry]) -> int:
    """Remove elements that no entry of the journal would; returns how many.

    Blocks. Raises NetlinkError, OSError.
    """
    count = 0
    owned = {
        (operation.container, element.key)
        for entry in entries
        for operation in entry.undo
        if isinstance(operation, RemoveElements)
        for element in operation.elements
    }
    for container in containers(channel):
        stale = [each for each in keys(channel, container) if (container, each) not in owned]
        for start in range(0, len(stale), _AT_ONCE):
            part = [Element(key) for key in stale[start : start + _AT_ONCE]]
            logs.get("sweeping").warning(
                "Removing elements that nobody owns", set=container.name, count=len(part)
            )
            channel.transact([nftables.remove(container, part)])
            count += len(part)
    return count


def containers(channel: Socket) -> Iterator[Container]:
    """Yield the sets and maps of our tables that attachments have elements in."""
    for family in _FAMILIES:
        try:
            replies = channel.dump(nftables.sets(TABLE, family), "listing sets")
        except NetlinkError as error:
            if not error.is_missing:
                raise
            continue
        for reply in replies:
            container = nftables.decode_set(reply)
            shared = container.name.startswith(_OF_RULES) or container.name in SHARED_SETS
            if container.table == TABLE and not shared:
                yield container


def keys(channel: Socket, container: Container) -> list[bytes]:
    """Return the keys of all elements. Raises NetlinkError."""
    replies = channel.dump(nftables.every(container), f"listing {container.name}")
    return [element.key for reply in replies for element in nftables.decode(reply)]
