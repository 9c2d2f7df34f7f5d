"""Journal entries that callers of our gRPC services own, not attachments (pure).

They are entries like all others, so a crash, a reboot and a full disk mean the same to them;
their step tells them apart.
"""

from collections.abc import Iterable

from bitts.cni.attachments import Attachment

from cni_daemon.records import Entry, Key, Phase

ADDRESSES = "call"
ROUTE = "route"
NO_NETWORK = "-"
"""Where routes stand, which belong to no network."""


def addresses(network: str, owner: str, interface: str) -> Key:
    """Return the key of an allocation."""
    return Key(network, owner, interface, ADDRESSES)


def route(owner: str, destination: str, table: int) -> Key:
    """Return the key of a route."""
    return Key(NO_NETWORK, owner, destination, f"{ROUTE}#{table}")


def is_route(entry: Entry) -> bool:
    """Say whether an entry is a route that stands."""
    return entry.phase is Phase.DONE and entry.key.type == ROUTE


def attachments(entries: Iterable[Entry], network: str) -> frozenset[Attachment]:
    """Return the owners of addresses in a network: no runtime's GC may free what they have."""
    return frozenset(
        Attachment(entry.key.container_id, entry.key.ifname)
        for entry in entries
        if entry.key.step == ADDRESSES and entry.key.network == network
    )
