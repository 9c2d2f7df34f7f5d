"""Attachments that stand although the journal does not know them: it was lost, or is damaged.

Their containers live and must go on talking, so nothing of theirs is touched: the host's end
of a container's pair goes with the container's namespace anyway, or by its DEL or GC. What
nobody can be using is removed: other links of ours, and elements of our sets that belong to
no such container. As long as strays stand that is done again and again.
"""

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from bitts.cni.attachments import Attachment
from bitts.core import logs
from bitts.net import addresses, links
from bitts.net.errors import NetlinkError
from bitts.net.links import Link
from bitts.net.sockets import Socket

from cni_daemon import relaying, scene, sweeping, vlangateways
from cni_daemon.devices import RemoveIdleGateway
from cni_daemon.model import label
from cni_daemon.names import ALIAS, CHAIN_TYPE
from cni_daemon.operations import DeleteLink
from cni_daemon.records import Entry

MAKERS = ("bridge", "ptp", CHAIN_TYPE)
"""Plugins whose attachments have a link of the host, which is found by its alias."""

Entries = Callable[[], Sequence[Entry]]


@dataclass(frozen=True, slots=True)
class Parts:
    """Links of ours that no entry would remove: those in use, and those that are not."""

    standing: tuple[Link, ...] = ()
    gateways: tuple[Link, ...] = ()
    idle: tuple[Link, ...] = ()


def parted(found: Iterable[Link], entries: Iterable[Entry]) -> Parts:
    """Tell strays from leftovers (pure): a pair's other end stands in a namespace that lives."""
    known = {
        operation.name
        for entry in entries
        for operation in entry.undo
        if isinstance(operation, DeleteLink | RemoveIdleGateway)
    }
    lost = [each for each in found if each.alias.startswith(ALIAS) and each.name not in known]
    gateways = [each for each in lost if vlangateways.vlan_of(each) is not None]
    others = [each for each in lost if each not in gateways]
    leading = {each.alias for each in others if each.kind == "veth" and each.peer_netns is not None}
    return Parts(
        tuple(each for each in others if each.alias in leading),
        tuple(gateways),
        tuple(each for each in others if each.alias not in leading),
    )


class Strays:
    """What stands, as of the last look. Its methods block."""

    def __init__(self, entries: Entries) -> None:
        self._entries = entries
        self._mutex = threading.Lock()
        self._standing: dict[str, list[Link]] = {}
        self.is_due = True
        """Whether there is something to look at again."""
        self._log = logs.get("strays")

    def __len__(self) -> int:
        """Return how many attachments that are."""
        return len(self._standing)

    def sweep(self) -> int:
        """Look at what there is, and remove what nobody can be using; returns how much.

        Raises NetlinkError, OSError where it cannot be looked at.
        """
        channel = scene.host_route()
        with self._mutex:
            # In this order: what an ADD makes meanwhile is in the journal before.
            found = [links.decode(each) for each in channel.dump(links.every())]
            parts = parted(found, self._entries())
            count = self._remove(channel, parts)
            standing = _by_label(parts.standing)
            self._tell(standing)
            self._standing, self.is_due = standing, bool(standing)
        kept = sweeping.Kept(
            frozenset(each for link in parts.standing for each in _inside(channel, link)),
            frozenset(link.name for link in parts.standing),
        )
        return count + sweeping.remove_stale(
            scene.host_netfilter(), lambda: relaying.owned(self._entries()), kept
        )

    def remove(self, network: str, attachment: Attachment) -> None:
        """Remove the host's end of one that a DEL is about. Raises NetlinkError."""
        if self._standing:
            self._forget(label(network, attachment.container_id, attachment.ifname))

    def collect(self, network: str, valid: Iterable[Attachment]) -> int:
        """Remove those of a network that are not valid; returns how many. Raises NetlinkError."""
        kept = {label(network, each.container_id, each.ifname) for each in valid}
        stale = [
            each
            for each in list(self._standing)
            if each.startswith(f"{network}/") and each not in kept
        ]
        for each in stale:
            self._forget(each)
        return len(stale)

    def _forget(self, name: str) -> None:
        with self._mutex:
            for link in self._standing.get(name, ()):
                answer = scene.host_route().attempt([links.delete(index=link.index)])[0]
                error = NetlinkError(answer.error, f"removing {link.name}", answer.text)
                if answer.error and not error.is_missing:
                    raise error
            if self._standing.pop(name, None):
                self.is_due = True  # its elements are nobody's by now

    def _remove(self, channel: Socket, parts: Parts) -> int:
        for link in parts.idle:
            self._log.warning("Removing a link that nobody owns", link=link.name, was=link.alias)
            channel.attempt([links.delete(index=link.index)])
        for link in parts.gateways:
            vlangateways.act(RemoveIdleGateway(link.name, vlangateways.vlan_of(link) or 0))
        return len(parts.idle)

    def _tell(self, standing: Iterable[str]) -> None:
        for each in standing:
            if each not in self._standing:
                self._log.warning(
                    "An attachment is not in the journal: it stays until its DEL or GC",
                    attachment=each,
                )


def _by_label(standing: Iterable[Link]) -> dict[str, list[Link]]:
    found: dict[str, list[Link]] = {}
    for link in standing:
        found.setdefault(link.alias.removeprefix(ALIAS), []).append(link)
    return found


def _inside(channel: Socket, link: Link) -> Iterable[bytes]:
    """Return the packed addresses at the other end of a pair; none if it is gone by now."""
    if link.peer_netns is None:
        return ()
    question = addresses.of_link(link.peer_index, netns=link.peer_netns)
    try:
        replies = channel.dump(question, f"looking behind {link.name}")
    except NetlinkError:
        return ()
    found = map(addresses.decode, replies)
    return [each.interface.ip.packed for each in found if each is not None]
