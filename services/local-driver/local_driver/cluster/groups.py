"""The CSI GroupController service for several nodes: a group is of volumes of one node.

Two nodes have no instant in common, so a group that spans them is refused, with the code that
CSI has for it (CreateVolumeGroupSnapshot Errors).
"""

from bitts.csi import v1

from local_driver import announced
from local_driver.cluster.book import Book
from local_driver.cluster.fleet import Fleet
from local_driver.cluster.taking import Taker


class GroupController(v1.GroupControllerBase):
    """Serves the groups of all nodes."""

    def __init__(self, fleet: Fleet, book: Book, taker: Taker) -> None:
        self._fleet = fleet
        self._book = book
        self._taker = taker

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
        return await self._taker.group(request)

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
