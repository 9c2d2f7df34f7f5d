"""Snapshot requests carried out, alone and in groups: found, taken, removed."""

import functools
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from bitts.csi import v1
from bitts.rpc.codes import Code, RpcError

from local_driver import requests, snapshots
from local_driver.archive import Archive
from local_driver.operations import Operations
from local_driver.snapshots import Group, Snapshot
from local_driver.storage import Storage
from local_driver.volumes import Volume

T = TypeVar("T")


class Taker:
    """Takes the snapshots of one node."""

    def __init__(
        self, storage: Storage, archive: Archive, operations: Operations, node_id: str
    ) -> None:
        self.shelf = archive.shelf
        self._storage = storage
        self._archive = archive
        self._operations = operations
        self._node_id = node_id

    async def take(self, request: v1.CreateSnapshotRequest) -> Snapshot:
        """Return the snapshot asked for; raises RpcError, OSError."""
        name = requests.name(request.name)
        source_id = requests.require(request.source_volume_id, "source_volume_id")
        loose = requests.is_loose(request.parameters)
        snapshot_id = snapshots.snapshot_id(self._node_id, name)

        async def find_or_take() -> Snapshot:
            existing = self.shelf.get(snapshot_id)
            if existing is None:
                work = functools.partial(self._take, name, source_id, loose=loose)
                return await self._operations.run(source_id, "CreateSnapshot of it", work)
            if existing.source_id != source_id:
                raise RpcError(
                    Code.ALREADY_EXISTS,
                    f"name: snapshot {name} exists and is of volume {existing.source_id}",
                )
            return existing

        return await self._operations.run(snapshot_id, "CreateSnapshot", find_or_take)

    async def _take(self, name: str, source_id: str, *, loose: bool) -> Snapshot:
        volume = self._storage.catalog.require(source_id)
        self._storage.backend(volume)
        return await self._archive.take(self._draft(name, volume), volume, loose=loose)

    async def remove(self, snapshot_id: str) -> None:
        """Remove a snapshot; an unknown one is fine. Raises RpcError, OSError."""
        if not snapshots.is_snapshot_id(snapshot_id):
            return

        async def work() -> None:
            snapshot = self.shelf.get(snapshot_id)
            if snapshot is None:
                await self._storage.sweep(snapshot_id)
            elif snapshot.group_id:
                raise requests.invalid(
                    f"snapshot_id: {snapshot_id} belongs to group snapshot {snapshot.group_id}: "
                    "delete that"
                )
            else:
                await self._archive.remove(snapshot)

        await self._operations.run(snapshot_id, "DeleteSnapshot", work)

    async def take_group(self, request: v1.CreateVolumeGroupSnapshotRequest) -> Group:
        """Return the group asked for; raises RpcError, OSError."""
        name = requests.name(request.name)
        source_ids = sorted(set(request.source_volume_ids))
        if not source_ids or "" in source_ids:
            raise requests.invalid("source_volume_ids: required")
        if requests.is_loose(request.parameters):
            raise requests.invalid("parameters: a group is of one instant")
        group_id = snapshots.group_id(self._node_id, name)

        async def find_or_take() -> Group:
            existing = self.shelf.group(group_id)
            if existing is None:
                for volume_id in source_ids:  # nobody waits for what is not there
                    self._storage.catalog.require(volume_id)
                work = functools.partial(self._take_group, name, source_ids)
                return await self._all_alone(source_ids, work)
            reason = snapshots.mismatch(existing, source_ids)
            if reason:
                raise RpcError(Code.ALREADY_EXISTS, f"name: group {name} exists and {reason}")
            return existing

        return await self._operations.run(group_id, "CreateVolumeGroupSnapshot", find_or_take)

    async def _all_alone(self, ids: Sequence[str], work: Callable[[], Awaitable[T]]) -> T:
        """Do ``work`` when nobody works on any of the volumes; all take them in one order."""
        if not ids:
            return await work()
        rest = functools.partial(self._all_alone, ids[1:], work)
        return await self._operations.run(ids[0], "CreateVolumeGroupSnapshot of it", rest)

    async def _take_group(self, name: str, source_ids: Sequence[str]) -> Group:
        found = [self._storage.catalog.require(volume_id) for volume_id in source_ids]
        for volume in found:
            self._storage.backend(volume)
        group_id = snapshots.group_id(self._node_id, name)
        members = tuple(
            self._draft(snapshots.member_name(group_id, volume.volume_id), volume, group_id)
            for volume in found
        )
        serial = self.shelf.groups.take_serial()
        draft = Group(group_id, name, serial, self._node_id, 0.0, members)
        return await self._archive.take_group(draft, found)

    async def remove_group(self, group_id: str, snapshot_ids: Sequence[str]) -> None:
        """Remove a group; an unknown one is fine. Raises RpcError, OSError."""

        async def work() -> None:
            group = self.shelf.group(group_id)
            if group is not None:
                require_members(group, snapshot_ids)
                await self._archive.remove_group(group)

        if snapshots.is_group_id(group_id):
            await self._operations.run(group_id, "DeleteVolumeGroupSnapshot", work)

    def _draft(self, name: str, volume: Volume, group_id: str = "") -> Snapshot:
        return Snapshot(
            snapshot_id=snapshots.snapshot_id(self._node_id, name),
            name=name,
            serial=self.shelf.snapshots.take_serial(),
            node=self._node_id,
            backend=volume.backend,
            source_id=volume.volume_id,
            size=volume.capacity,
            access=volume.access,
            filesystem=volume.filesystem,
            content=volume.content,
            created=0.0,
            group_id=group_id,
        )


def require_members(group: Group, snapshot_ids: Sequence[str]) -> None:
    """Refuse a list that is not the group's; raises RpcError INVALID_ARGUMENT. None is fine."""
    members = {member.snapshot_id for member in group.members}
    strangers, missing = sorted(set(snapshot_ids) - members), sorted(members - set(snapshot_ids))
    if strangers:
        raise requests.invalid(
            f"snapshot_ids: {strangers[0]} is not in group snapshot {group.group_id}"
        )
    if snapshot_ids and missing:
        raise requests.invalid(
            f"snapshot_ids: {missing[0]} is in group snapshot {group.group_id}, too"
        )
