"""Snapshots taken and removed: content, records and memory in the order that storage.py keeps."""

import asyncio
import contextlib
import dataclasses
import time
from collections.abc import Mapping, Sequence

from bitts.core import logs
from bitts.rpc.codes import Code, RpcError

from local_driver import metadata, steps
from local_driver.backends.backend import Backend
from local_driver.shelf import Shelf
from local_driver.snapshots import Group, Snapshot
from local_driver.volumes import Volume

Pair = tuple[Snapshot, Volume]

COPIES = 6
"""Snapshots that are taken at a time; others wait. Each holds a thread."""


class Archive:
    """All snapshots of this node, on the disk and in memory (``shelf``)."""

    def __init__(
        self,
        backends: Mapping[str, Backend],
        shelf: Shelf,
        snapshots: metadata.Store[Snapshot],
        groups: metadata.Store[Group],
        reached: steps.Reached = steps.unobserved,
    ) -> None:
        self.shelf = shelf
        self._backends = backends
        self._snapshots = snapshots
        self._groups = groups
        self._copying = asyncio.Semaphore(COPIES)
        self._reached = reached
        self._log = logs.get("archive")

    async def take(self, draft: Snapshot, volume: Volume, *, loose: bool) -> Snapshot:
        """Take a snapshot of a volume that nobody else works on; return it with its instant.

        Raises OSError or RpcError, and nothing is left of it then.
        """
        parent = self._backends[draft.backend].folder
        try:
            async with self._copying:
                (snapshot,) = await asyncio.to_thread(self._keep, [(draft, volume)], loose=loose)
            await self._snapshots.create(snapshot, metadata.nothing, [parent])
        except Exception:
            await asyncio.to_thread(self._clear_away, [draft])
            raise
        self.shelf.snapshots.add(snapshot)
        return snapshot

    async def take_group(self, draft: Group, volumes: Sequence[Volume]) -> Group:
        """Take snapshots of volumes at one instant; as take()."""
        pairs = list(zip(draft.members, volumes, strict=True))
        parents = {self._backends[member.backend].folder for member in draft.members}
        try:
            async with self._copying:
                members = await asyncio.to_thread(self._keep, pairs, loose=False)
            group = dataclasses.replace(
                draft, members=tuple(members), created=min(member.created for member in members)
            )
            await self._groups.create(group, metadata.nothing, sorted(parents))
        except Exception:
            await asyncio.to_thread(self._clear_away, draft.members)
            raise
        self.shelf.add_group(group)
        return group

    async def remove(self, snapshot: Snapshot) -> None:
        """Remove a snapshot that is in no group; raises as take() does."""
        snapshot_id = snapshot.snapshot_id
        self.shelf.refuse_pinned(snapshot_id)
        await self._snapshots.remove(snapshot_id, metadata.nothing)
        self.shelf.snapshots.discard(snapshot_id)
        await asyncio.to_thread(self._remove_content, [snapshot])

    async def remove_group(self, group: Group) -> None:
        """Remove a group and its snapshots; raises as take() does."""
        for member in group.members:
            self.shelf.refuse_pinned(member.snapshot_id)
        await self._groups.remove(group.group_id, metadata.nothing)
        self.shelf.discard_group(group)
        await asyncio.to_thread(self._remove_content, group.members)

    def _keep(self, pairs: Sequence[Pair], *, loose: bool) -> list[Snapshot]:
        several = pairs if len(pairs) > 1 else []  # one alone shares its instant with nobody
        written = [volume for _, volume in several if self._is_written(volume)]
        with_others = len(written) > 1
        for volume in written if with_others else []:
            if not self._backends[volume.backend].stops_writers:
                raise RpcError(
                    Code.FAILED_PRECONDITION,
                    f"source_volume_ids: {volume.volume_id} and others are in use, and backend "
                    f"{volume.backend} cannot stop their writers at one instant: end their pods "
                    "first, or keep them with backend image",
                )
        with contextlib.ExitStack() as stack:
            deadlines = []
            for _, volume in pairs:
                still = self._backends[volume.backend].held_still(
                    volume, with_others=with_others, loose=loose
                )
                deadlines.append(stack.enter_context(still))
            deadline = min((one for one in deadlines if one is not None), default=None)
            now = time.time()
            for snapshot, volume in pairs:
                backend = self._backends[volume.backend]
                backend.keep(volume.volume_id, snapshot.snapshot_id, deadline)
        return [dataclasses.replace(snapshot, created=now) for snapshot, _ in pairs]

    def _is_written(self, volume: Volume) -> bool:
        return self._backends[volume.backend].is_written(volume.volume_id)

    def _remove_content(self, snapshots: Sequence[Snapshot]) -> None:
        for snapshot in snapshots:
            backend = self._backends.get(snapshot.backend)
            if backend is not None:
                backend.remove(snapshot.snapshot_id)
        self._reached(steps.Step.CONTENT_REMOVED)

    def _clear_away(self, drafts: Sequence[Snapshot]) -> None:
        for draft in drafts:
            try:
                self._backends[draft.backend].remove(draft.snapshot_id)
            except (OSError, RpcError) as error:
                self._log.warning(
                    "Rubbish stays until the next start", snapshot=draft.snapshot_id, err=error
                )
