"""CreateVolumes that were sent to nodes, for as long as it is not known what became of them.

An intent is on disk before its CreateVolume is sent. It goes when that has ended; when nobody
heard the answer, as soon as the node's list has the volume, or the node says that it neither has
nor makes it. A node has so many open ones at most: beyond, it is sent none before it has spoken.
"""

import asyncio
import contextlib
import dataclasses
import pathlib
import time
from collections import Counter
from collections.abc import AsyncIterator, Container, Sequence

from bitts.rpc.codes import Code, RpcError

from local_driver import metadata, places
from local_driver.cluster import known
from local_driver.cluster.known import Intent

LATE = 300.0
"""Seconds in which a CreateVolume may still reach its node when the connection was lost: a kernel
goes on sending for a dead socket, for two minutes at most. Then the node can say what it knows."""

MOST_OPEN = 1000
"""CreateVolumes of one node that have not ended, or whose end nobody heard."""


class Intents:
    """All that are open, in memory and in ``folder``."""

    def __init__(
        self, folder: pathlib.Path, *, late: float = LATE, most_open: int = MOST_OPEN
    ) -> None:
        self._store = metadata.Store(folder, known.INTENTS)
        self._late = late
        self._most_open = most_open
        self._open: dict[str, Intent] = {}
        self._open_at: Counter[str] = Counter()
        self._being_sent: set[str] = set()
        self._ended: set[str] = set()

    def __len__(self) -> int:
        """Tell how many have not ended, or not been heard to end."""
        return len(self._open) - len(self._ended)

    def load(self) -> dict[str, str]:
        """Read what the last run left; return what is wrong, by digest. Blocks."""
        found = self._store.load()
        now = time.time()  # the last process may have sent one in the moment of its death
        for intent in found.records:
            self._set_open(dataclasses.replace(intent, since=now))
        return found.damaged

    def has_any(self, node: str) -> bool:
        """Whether some are open that were sent to a node."""
        return self._open_at[node] > 0

    def node(self, digest: str) -> str:
        """Return the node that may have, or may be making, a volume; empty for none."""
        intent = self._open.get(digest)
        return intent.node if intent is not None and digest not in self._ended else ""

    @contextlib.asynccontextmanager
    async def sending(self, digest: str, node: str) -> AsyncIterator[None]:
        """Send a CreateVolume inside the block, which begins when that is on disk.

        One at a time for a digest. Raises OSError; RpcError UNAVAILABLE for a node that has too
        many open ones.
        """
        before = self._open.get(digest)
        self._being_sent.add(digest)
        try:
            intent = Intent(digest, node, time.time())
            if before is None or before.node != node:
                self._refuse_too_many(node)
                await self._store.create(intent, metadata.nothing, ())
            self._ended.discard(digest)
            self._set_open(intent)
            yield
        finally:
            self._being_sent.discard(digest)

    def _refuse_too_many(self, node: str) -> None:
        if self._open_at[node] >= self._most_open:
            raise RpcError(
                Code.UNAVAILABLE,
                f"node {node}: what became of {self._most_open} CreateVolume calls is not known: "
                "it is being asked, try again later",
            )

    def _set_open(self, intent: Intent) -> None:
        before = self._open.get(intent.digest)
        if before is not None:
            self._open_at[before.node] -= 1
        self._open[intent.digest] = intent
        self._open_at[intent.node] += 1

    def settle(self, digest: str) -> None:
        """Note that a CreateVolume has ended: its volume is in the account, or is not there."""
        if digest in self._open:
            self._ended.add(digest)

    def settle_listed(self, node: str, volume_ids: Container[str]) -> None:
        """End those whose volume is in a node's list. That one is not there means nothing yet."""
        place = places.of_node(node)
        for intent in self._open.values():
            if intent.node == node and f"{place}-{intent.digest}" in volume_ids:
                self.settle(intent.digest)

    def doubtful(self, node: str) -> list[Intent]:
        """Return those whose outcome a node can be asked for: nothing is on its way any more."""
        youngest = time.time() - self._late
        idle = [
            one
            for one in self._open.values()
            if one.digest not in self._being_sent and one.digest not in self._ended
        ]
        return [one for one in idle if one.node == node and one.since <= youngest]

    def settle_denied(self, intent: Intent) -> None:
        """Note that a node says to know nothing of it, unless it was sent again meanwhile."""
        if self._open.get(intent.digest) is intent and intent.digest not in self._being_sent:
            self.settle(intent.digest)

    def ended(self) -> list[Intent]:
        """Return those that have ended, for drop(), once the accounts are on disk."""
        return [self._open[digest] for digest in sorted(self._ended)]

    async def drop(self, ended: Sequence[Intent]) -> None:
        """Remove what has ended; raises OSError."""
        for first in range(0, len(ended), metadata.BATCH):
            await asyncio.gather(*map(self._drop, ended[first : first + metadata.BATCH]))

    async def _drop(self, intent: Intent) -> None:
        digest = intent.digest
        is_same = self._open.get(digest) is intent and digest in self._ended
        if is_same and digest not in self._being_sent:
            self._ended.discard(digest)
            del self._open[digest]
            self._open_at[intent.node] -= 1
            try:
                await self._store.remove(digest, metadata.nothing)
            except OSError:
                if digest not in self._open:  # for another attempt
                    self._set_open(intent)
                    self._ended.add(digest)
                raise

    async def close(self) -> None:
        """End the writing."""
        await self._store.close()
