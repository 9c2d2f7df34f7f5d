"""Snapshots and groups for several nodes: a name is taken once, whichever node would do it.

A node knows its own names only. So a name is looked up among those of all nodes, and whoever asks
for the same one at the same moment waits for the first, as with volumes.
"""

import functools

from bitts.csi import v1
from bitts.rpc.codes import Code, RpcError

from local_driver import places, requests
from local_driver.cluster import known
from local_driver.cluster.book import Book
from local_driver.cluster.fleet import Fleet
from local_driver.cluster.links import NodeLink
from local_driver.operations import Operations


class Taker:
    """Has snapshots and groups taken by the node that has their volumes."""

    def __init__(self, fleet: Fleet, book: Book, operations: Operations) -> None:
        self._fleet = fleet
        self._book = book
        self._operations = operations

    async def snapshot(self, request: v1.CreateSnapshotRequest) -> v1.CreateSnapshotResponse:
        """Return the snapshot asked for; raises RpcError."""
        name = requests.name(request.name)
        field = "source_volume_id"
        link = self._fleet.owner(requests.require(request.source_volume_id, field), field)
        work = functools.partial(self._snapshot, link, request)
        return await self._operations.run(f"snapshot {name}", "CreateSnapshot", work)

    async def _snapshot(
        self, link: NodeLink, request: v1.CreateSnapshotRequest
    ) -> v1.CreateSnapshotResponse:
        found = self._book.snapshot_by_name(places.digest(request.name), self._fleet.nodes)
        if found is not None and found[0] != link.node:
            text = f"snapshot {request.name} exists and is of volume {found[1].source_id}"
            raise RpcError(Code.ALREADY_EXISTS, f"name: {text}")
        reply = await link.call(lambda stubs: stubs.controller.create_snapshot, request)
        if reply.snapshot is not None:
            self._book.learn_snapshots(link.node, [known.snapshot(reply.snapshot)])
        return reply

    async def group(
        self, request: v1.CreateVolumeGroupSnapshotRequest
    ) -> v1.CreateVolumeGroupSnapshotResponse:
        """Return the group asked for; raises RpcError."""
        name = requests.name(request.name)
        work = functools.partial(self._group, self._node_of(request), request)
        return await self._operations.run(f"group {name}", "CreateVolumeGroupSnapshot", work)

    async def _group(
        self, link: NodeLink, request: v1.CreateVolumeGroupSnapshotRequest
    ) -> v1.CreateVolumeGroupSnapshotResponse:
        holder = self._book.group_holder(places.digest(request.name), self._fleet.nodes)
        if holder and holder != link.node:
            text = f"group {request.name} exists and is of volumes of node {holder}"
            raise RpcError(Code.ALREADY_EXISTS, f"name: {text}")
        reply = await link.call(lambda stubs: stubs.groups.create_volume_group_snapshot, request)
        if reply.group_snapshot is not None:
            taken = map(known.snapshot, reply.group_snapshot.snapshots)
            self._book.learn_snapshots(link.node, taken)
        return reply

    def _node_of(self, request: v1.CreateVolumeGroupSnapshotRequest) -> NodeLink:
        field = "source_volume_ids"
        links = {self._fleet.owner(one, field) for one in request.source_volume_ids}
        if len(links) > 1:
            nodes = ", ".join(sorted(link.node for link in links))
            raise RpcError(
                Code.FAILED_PRECONDITION,
                f"{field}: the volumes are on nodes {nodes}, which have no instant in common: "
                "take a group on each",
            )
        return next(iter(links)) if links else self._fleet.any()
