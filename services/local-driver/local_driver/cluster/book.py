"""What every node holds, as far as the controller knows: in memory, and on disk for a restart.

It is asked about nodes that cannot be asked themselves. What a node says replaces what is
known of it; a change that passes through the controller meanwhile is kept. An account that is
a moment old on disk does no harm, so accounts are written a little later, many changes at once.
An intent goes after the account that holds the outcome of its CreateVolume is on disk: at no time
has a crash room to forget where a volume may have been made.
"""

import asyncio
import contextlib
import dataclasses
import itertools
import pathlib
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TypeVar

from bitts.core import logs

from local_driver import metadata, places, snapshots
from local_driver.cluster import known
from local_driver.cluster.intents import Intents
from local_driver.cluster.known import Account, KnownSnapshot, KnownVolume

T = TypeVar("T")

SAVING_INTERVAL = 0.5
"""Seconds between two rounds of writing what has changed."""

_log = logs.get("nodes")


class _Holdings:
    """What one node holds. ``changed`` numbers what passed through here during a list, by ID."""

    def __init__(self, account: Account) -> None:
        self.volumes = {one.volume_id: one for one in account.volumes}
        self.snapshots = {one.snapshot_id: one for one in account.snapshots}
        self.changed: dict[str, int] = {}

    def account(self, node: str) -> Account:
        return Account(node, tuple(self.volumes.values()), tuple(self.snapshots.values()))


class Book:
    """Accounts of all nodes that were ever heard of, and intents that are open."""

    def __init__(self, state: pathlib.Path, intents: Intents | None = None) -> None:
        self._accounts = metadata.Store(state / "nodes", known.ACCOUNTS)
        self.intents = intents if intents is not None else Intents(state / "intents")
        self._nodes: dict[str, _Holdings] = {}
        self._dirty: set[str] = set()
        self._changes = itertools.count(1)
        self._listings: Counter[str] = Counter()

    def load(self) -> None:
        """Read what the last run left; what cannot be read counts as never heard of. Blocks."""
        accounts, damaged_intents = self._accounts.load(), self.intents.load()
        self._nodes = {one.node: _Holdings(one) for one in accounts.records}
        for name, problem in {**accounts.damaged, **damaged_intents}.items():
            _log.error("A record cannot be read, its node has to be heard", id=name, err=problem)

    def has_heard(self, node: str) -> bool:
        """Whether the node has ever told what it holds."""
        return node in self._nodes

    def nodes(self) -> list[str]:
        """Return all nodes that have."""
        return sorted(self._nodes)

    def volumes(self, node: str) -> list[KnownVolume]:
        """Return the volumes of a node, in no order."""
        found = self._nodes.get(node)
        return list(found.volumes.values()) if found is not None else []

    def snapshots(self, node: str) -> list[KnownSnapshot]:
        """Return the snapshots of a node, in no order."""
        found = self._nodes.get(node)
        return list(found.snapshots.values()) if found is not None else []

    def volume(self, node: str, volume_id: str) -> KnownVolume | None:
        """Return a volume of a node, if it has it."""
        found = self._nodes.get(node)
        return found.volumes.get(volume_id) if found is not None else None

    def holders(self, digest: str, nodes: Iterable[str]) -> list[str]:
        """Return those of ``nodes`` that have, or were sent, a volume by the name's digest."""
        intended = self.intents.node(digest)
        return [
            node
            for node in nodes
            if node == intended or self.volume(node, f"{places.of_node(node)}-{digest}") is not None
        ]

    def snapshot_by_name(
        self, digest: str, nodes: Iterable[str]
    ) -> tuple[str, KnownSnapshot] | None:
        """Return a snapshot by its name's digest, and the node that has it."""
        for node in nodes:
            held = self._nodes.get(node)
            found = held and held.snapshots.get(f"s-{places.of_node(node)}-{digest}")
            if found:
                return node, found
        return None

    def group_holder(self, digest: str, nodes: Iterable[str]) -> str:
        """Return a node that has a group by its name's digest; empty for none."""
        for node in nodes:
            group_id = f"g-{places.of_node(node)}-{digest}"
            if any(one.group_id == group_id for one in self.snapshots(node)):
                return node
        return ""

    @contextlib.contextmanager
    def listing(self, node: str) -> Iterator[int]:
        """While a node makes its list: yields the moment for told(), which keeps later changes.

        Only for so long is it remembered which records have changed.
        """
        self._listings[node] += 1
        try:
            yield next(self._changes)
        finally:
            self._listings[node] -= 1
            if not self._listings[node]:
                del self._listings[node]
                if node in self._nodes:
                    self._nodes[node].changed.clear()

    def told(
        self,
        node: str,
        mark: int,
        volumes: Iterable[KnownVolume],
        snapshots: Iterable[KnownSnapshot],
    ) -> None:
        """Take in a node's own list, which listing() began at ``mark``."""
        old = self._nodes.get(node) or _Holdings(Account(node))
        new = _Holdings(Account(node, tuple(volumes), tuple(snapshots)))
        later = {record: number for record, number in old.changed.items() if number > mark}
        for record in later:
            _keep(old.volumes, new.volumes, record)
            _keep(old.snapshots, new.snapshots, record)
        new.changed = later
        if node not in self._nodes or new.account(node) != old.account(node):
            self._dirty.add(node)
        self._nodes[node] = new
        self.intents.settle_listed(node, new.volumes)

    def leave(self, node: str) -> None:
        """Forget a node that is served no longer, if it held nothing that could be asked for."""
        held = self._nodes.get(node)
        if held is None or held.volumes or held.snapshots or self.intents.has_any(node):
            return
        del self._nodes[node]
        self._dirty.add(node)

    def learn(self, node: str, volume: KnownVolume) -> None:
        """Note a volume that was made or changed through here."""
        held = self._touch(node, volume.volume_id)
        if held is not None:
            held.volumes[volume.volume_id] = volume

    def change(
        self,
        node: str,
        volume_id: str,
        *,
        capacity: int | None = None,
        attached: tuple[str, ...] | None = None,
    ) -> None:
        """Note what has changed of a volume; an unknown one is left to the next list."""
        volume = self.volume(node, volume_id)
        if volume is None:
            return
        if capacity is not None:
            volume = dataclasses.replace(volume, capacity=capacity)
        if attached is not None:
            volume = dataclasses.replace(volume, attached=attached)
        self.learn(node, volume)

    def learn_snapshots(self, node: str, taken: Iterable[KnownSnapshot]) -> None:
        """Note snapshots that were taken through here."""
        for snapshot in taken:
            held = self._touch(node, snapshot.snapshot_id)
            if held is not None:
                held.snapshots[snapshot.snapshot_id] = snapshot

    def forget(self, node: str, record_id: str) -> None:
        """Note that a volume, a snapshot or a whole group was removed through here."""
        held = self._touch(node, record_id)
        if held is None:
            return
        held.volumes.pop(record_id, None)
        held.snapshots.pop(record_id, None)
        if snapshots.is_group_id(record_id):
            for member in [one for one in held.snapshots.values() if one.group_id == record_id]:
                self.forget(node, member.snapshot_id)

    def _touch(self, node: str, record_id: str) -> _Holdings | None:
        held = self._nodes.get(node)
        if held is not None:
            if node in self._listings:
                held.changed[record_id] = next(self._changes)
            self._dirty.add(node)
        return held

    async def keep_saved(self) -> None:
        """Write what has changed, until cancelled."""
        while True:
            await asyncio.sleep(SAVING_INTERVAL)
            try:
                await self.save()
            except OSError as error:
                _log.error("Cannot write what nodes hold; trying again", err=error)

    async def save(self) -> None:
        """Write what has changed; raises OSError, and it is tried again by the next call."""
        ended = self.intents.ended()
        for node in sorted(self._dirty):
            self._dirty.discard(node)
            try:
                await self._save(node)
            except BaseException:
                self._dirty.add(node)
                raise
        await self.intents.drop(ended)

    async def _save(self, node: str) -> None:
        held = self._nodes.get(node)
        if held is not None:
            await self._accounts.replace(held.account(node))
        else:
            await self._accounts.remove(node, metadata.nothing)

    async def close(self) -> None:
        """Write everything and end."""
        try:
            await self.save()
        finally:
            await self._accounts.close()
            await self.intents.close()


def _keep(old: dict[str, T], new: dict[str, T], record: str) -> None:
    """Carry over one record that changed while its node made its list."""
    if record in old:
        new[record] = old[record]
    else:
        new.pop(record, None)
