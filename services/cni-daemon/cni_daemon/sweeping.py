"""Elements of our sets that no attachment owns: what a lost journal would leave for good.

A published port that leads to a container long gone would refuse itself to every other one,
so what the journal would not remove is removed. Sets that describe the node (bridges closed to
each other) and those that belong to rules themselves are left alone.
"""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

from bitts.core import logs
from bitts.net import nftables
from bitts.net.errors import NetlinkError
from bitts.net.nftables import Container, Element
from bitts.net.sockets import Socket

from cni_daemon.names import SHARED_SETS, TABLE

_FAMILIES = (nftables.INET, nftables.BRIDGE)
_OF_RULES = "__"
"""How nft names the sets that are written inside a rule."""

_AT_ONCE = 200
_FIELD = 4
"""Bytes of a port in what a map leads to."""

_NAME_SIZE = 16
"""Bytes of a link's name in a key."""


Place = tuple[Container, bytes]
"""Where an element is: its set, and its key there."""


@dataclass(frozen=True, slots=True)
class Kept:
    """What elements are about that stay although no entry has them: addresses, names of ports."""

    addresses: frozenset[bytes] = frozenset()
    ports: frozenset[str] = frozenset()

    def __contains__(self, element: Element) -> bool:
        """Say whether an element is about one of them: by its key, or by what it leads to."""
        port = element.key[:_NAME_SIZE].rstrip(b"\0").decode(errors="replace")
        data = element.data if isinstance(element.data, bytes) else b""
        about = {element.key, data, data[:-_FIELD]}
        return port in self.ports or not self.addresses.isdisjoint(about)


NOTHING = Kept()


def remove_stale(
    channel: Socket, owned: Callable[[], Collection[Place]], kept: Kept = NOTHING
) -> int:
    """Remove elements that nobody owns; returns how many. ``owned`` is asked after looking.

    Blocks. Raises NetlinkError, OSError.
    """
    found = [(each, elements(channel, each)) for each in containers(channel)]
    known, count = owned(), 0
    for container, present in found:
        stale = [e for e in present if (container, e.key) not in known and e not in kept]
        for start in range(0, len(stale), _AT_ONCE):
            part = [Element(each.key) for each in stale[start : start + _AT_ONCE]]
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
    return [each.key for each in elements(channel, container)]


def elements(channel: Socket, container: Container) -> list[Element]:
    """Return all elements. Raises NetlinkError."""
    replies = channel.dump(nftables.every(container), f"listing {container.name}")
    return [element for reply in replies for element in nftables.decode(reply)]
