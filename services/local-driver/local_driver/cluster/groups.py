"""The CSI GroupController service for several nodes: a group is of volumes of one node.

Two nodes have no instant in common, so a group that spans them is refused, with the code that
CSI has for it (CreateVolumeGroupSnapshot Errors).
"""

from bitts.csi import v1
from bitts.rpc.codes import Code, RpcError

from local_driver import announced, places
from local_driver.cluster import known
from local_driver.cluster.book import Book
from local_driver.cluster.fleet import Fleet
from local_driver.cluster.links import NodeLink


class GroupController(v1.GroupControllerBase):
    """Serves the groups of all nodes."""

    def __init__(self, fleet: Fleet, book: Book) -> None:
        self._fleet = fleet
        self._book = book

    async def group_controller_get_capabilities(
        self, request: v1.GroupControllerGetCapabilitiesRequest
    ) -> v1.GroupControllerGetCapabilitiesResponse:
        """Return what is really served."""
        del request
        return v1.GroupControllerGetCapabilitiesResponse(capabilities=announced.groups())

    async def create_volume_group_snapshot(
        self, request: v1.CreateVolumeGroupSnapshotRequest
    ) -> v1.CreateVolumeGroupSnapshotResponse:
        """Have the volumes' node take snapshots at one instant."""
        link = self._node_of(request)
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

    async def delete_volume_group_snapshot(
        self, request: v1.DeleteVolumeGroupSnapshotRequest
    ) -> v1.DeleteVolumeGroupSnapshotResponse:
        """Have the node remove a group with its snapshots."""
        link = self._fleet.owner(request.group_snapshot_id, "group_snapshot_id")
        reply = await link.call(lambda stubs: stubs.groups.delete_volume_group_snapshot, request)
        self._book.forget(link.node, request.group_snapshot_id)
        return reply

    async def get_volume_group_snapshot(
        self, request: v1.GetVolumeGroupSnapshotRequest
    ) -> v1.GetVolumeGroupSnapshotResponse:
        """Return one group, as its node has it."""
        link = self._fleet.owner(request.group_snapshot_id, "group_snapshot_id")
        return await link.call(lambda stubs: stubs.groups.get_volume_group_snapshot, request)
