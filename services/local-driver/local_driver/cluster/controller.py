"""The CSI Controller service for several nodes: each call goes to the node that owns.

What a node answers is passed on as it is; what has changed by it is noted, for the time when
the node cannot be asked. A call for a node that is away is UNAVAILABLE, also a detach: the
node keeps the permission, and nobody else can use the volume meanwhile.
"""

from collections.abc import Awaitable, Callable

from bitts.csi import v1
from bitts.rpc.codes import Code, RpcError

from local_driver import announced, failures, placement
from local_driver.cluster.book import Book
from local_driver.cluster.creating import Creator
from local_driver.cluster.fleet import Fleet
from local_driver.cluster.links import AwayError, NodeLink
from local_driver.cluster.lists import Lists, unreachable_health
from local_driver.cluster.taking import Taker
from local_driver.options import ServiceOptions


class Controller(v1.ControllerBase):
    """Serves the volumes of all nodes."""

    def __init__(
        self,
        fleet: Fleet,
        book: Book,
        creator: Creator,
        taker: Taker,
        lists: Lists,
        services: ServiceOptions,
    ) -> None:
        self._fleet = fleet
        self._book = book
        self._creator = creator
        self._taker = taker
        self._lists = lists
        self._services = services

    async def create_volume(self, request: v1.CreateVolumeRequest) -> v1.CreateVolumeResponse:
        """Make a volume on the node that fits best, or find the one made before."""
        try:
            return await self._creator.create(request)
        except OSError as error:
            raise failures.rpc_error(error, f"volume {request.name}") from error

    async def delete_volume(self, request: v1.DeleteVolumeRequest) -> v1.DeleteVolumeResponse:
        """Have the node remove a volume."""
        link = self._fleet.owner(request.volume_id, "volume_id")
        reply = await link.call(lambda stubs: stubs.controller.delete_volume, request)
        self._book.forget(link.node, request.volume_id)
        return reply

    async def controller_expand_volume(
        self, request: v1.ControllerExpandVolumeRequest
    ) -> v1.ControllerExpandVolumeResponse:
        """Have the node make a volume larger."""
        link = self._fleet.owner(request.volume_id, "volume_id")
        reply = await link.call(lambda stubs: stubs.controller.controller_expand_volume, request)
        self._book.change(link.node, request.volume_id, capacity=reply.capacity_bytes)
        return reply

    async def controller_modify_volume(
        self, request: v1.ControllerModifyVolumeRequest
    ) -> v1.ControllerModifyVolumeResponse:
        """Have the node change the limits of a volume's I/O."""
        link = self._fleet.owner(request.volume_id, "volume_id")
        return await link.call(lambda stubs: stubs.controller.controller_modify_volume, request)

    async def validate_volume_capabilities(
        self, request: v1.ValidateVolumeCapabilitiesRequest
    ) -> v1.ValidateVolumeCapabilitiesResponse:
        """Have the node say whether a volume has the capabilities."""
        link = self._fleet.owner(request.volume_id, "volume_id")
        return await link.call(lambda stubs: stubs.controller.validate_volume_capabilities, request)

    async def controller_publish_volume(
        self, request: v1.ControllerPublishVolumeRequest
    ) -> v1.ControllerPublishVolumeResponse:
        """Have the volume's own node attach it; it refuses for any other, and beyond its limit."""
        link = self._fleet.owner(request.volume_id, "volume_id")
        reply = await link.call(lambda stubs: stubs.controller.controller_publish_volume, request)
        self._book.change(link.node, request.volume_id, attached=(request.node_id,))
        return reply

    async def controller_unpublish_volume(
        self, request: v1.ControllerUnpublishVolumeRequest
    ) -> v1.ControllerUnpublishVolumeResponse:
        """Have the node detach a volume."""
        link = self._fleet.owner(request.volume_id, "volume_id")
        reply = await link.call(lambda stubs: stubs.controller.controller_unpublish_volume, request)
        if request.node_id in ("", link.node):
            self._book.change(link.node, request.volume_id, attached=())
        return reply

    async def create_snapshot(self, request: v1.CreateSnapshotRequest) -> v1.CreateSnapshotResponse:
        """Have the volume's node take a snapshot."""
        return await self._taker.snapshot(request)

    async def delete_snapshot(self, request: v1.DeleteSnapshotRequest) -> v1.DeleteSnapshotResponse:
        """Have the node remove a snapshot."""
        link = self._fleet.owner(request.snapshot_id, "snapshot_id")
        reply = await link.call(lambda stubs: stubs.controller.delete_snapshot, request)
        self._book.forget(link.node, request.snapshot_id)
        return reply

    async def get_snapshot(self, request: v1.GetSnapshotRequest) -> v1.GetSnapshotResponse:
        """Return one snapshot, as its node has it."""
        link = self._fleet.owner(request.snapshot_id, "snapshot_id")
        return await link.call(lambda stubs: stubs.controller.get_snapshot, request)

    async def list_volumes(self, request: v1.ListVolumesRequest) -> v1.ListVolumesResponse:
        """Return the volumes of all nodes, also of those that are away."""
        return await self._lists.volumes(request)

    async def list_snapshots(self, request: v1.ListSnapshotsRequest) -> v1.ListSnapshotsResponse:
        """Return the snapshots of all nodes, also of those that are away."""
        return await self._lists.snapshots(request)

    async def controller_get_volume(
        self, request: v1.ControllerGetVolumeRequest
    ) -> v1.ControllerGetVolumeResponse:
        """Return one volume; of a node that is away what is known, as unreachable."""
        link = self._fleet.owner(request.volume_id, "volume_id")
        try:
            return await link.call(lambda stubs: stubs.controller.controller_get_volume, request)
        except AwayError as error:
            volume = self._book.volume(link.node, request.volume_id)
            if volume is None:
                raise
            return self._lists.unreachable(link, volume, error)

    async def controller_get_volume_health(
        self, request: v1.ControllerGetVolumeHealthRequest
    ) -> v1.ControllerGetVolumeHealthResponse:
        """Say how one volume is, in the way of CSI 1.13."""
        self._require_health()
        link = self._fleet.owner(request.volume_id, "volume_id")
        try:
            return await link.call(
                lambda stubs: stubs.controller.controller_get_volume_health, request
            )
        except AwayError as error:
            if self._book.volume(link.node, request.volume_id) is None:
                raise
            health = unreachable_health(request.volume_id, error)
            return v1.ControllerGetVolumeHealthResponse(volume_health=health)

    async def controller_list_volume_health(
        self, request: v1.ControllerListVolumeHealthRequest
    ) -> v1.ControllerListVolumeHealthResponse:
        """Return the volumes that are not well; those of nodes that are away are among them."""
        self._require_health()
        return await self._lists.health(request)

    def _require_health(self) -> None:
        if not self._services.has_health_rpcs:
            raise RpcError(Code.UNIMPLEMENTED, "not announced: start the driver with --csi=1.13")

    async def get_capacity(self, request: v1.GetCapacityRequest) -> v1.GetCapacityResponse:
        """Return the room on the nodes of a topology; without one, that on all that are here.

        UNAVAILABLE for a node that is not listed: it may have joined a moment ago, and a client
        that hears of no room does not ask again soon.
        """
        topology = request.accessible_topology
        links = [
            link
            for link in self._fleet.links
            if topology is None
            or placement.matches(topology.segments, self._fleet.segments(link.node))
        ]
        if not links:
            self._fleet.require_listed(topology.segments if topology is not None else {})
            return v1.GetCapacityResponse(available_capacity=0)
        answers = await self._fleet.each(links, _asking(request))
        told = [one for one in answers.values() if not isinstance(one, RpcError)]
        if not told:
            raise next(one for one in answers.values() if isinstance(one, RpcError))
        return _together(told)

    async def controller_get_capabilities(
        self, request: v1.ControllerGetCapabilitiesRequest
    ) -> v1.ControllerGetCapabilitiesResponse:
        """Return what is served, if the nodes have the same --attach and --csi."""
        del request
        capabilities = announced.controller(self._services)
        return v1.ControllerGetCapabilitiesResponse(capabilities=capabilities)


def _asking(
    request: v1.GetCapacityRequest,
) -> Callable[[NodeLink], Awaitable[v1.GetCapacityResponse]]:
    async def ask(link: NodeLink) -> v1.GetCapacityResponse:
        return await link.call(lambda stubs: stubs.controller.get_capacity, request)

    return ask


def _together(told: list[v1.GetCapacityResponse]) -> v1.GetCapacityResponse:
    """Return the room of several nodes: the sum, and the largest volume that one of them takes."""
    largest = [one.maximum_volume_size.value for one in told if one.maximum_volume_size is not None]
    least = [one.minimum_volume_size.value for one in told if one.minimum_volume_size is not None]
    return v1.GetCapacityResponse(
        available_capacity=sum(one.available_capacity for one in told),
        maximum_volume_size=v1.Int64Value(value=max(largest)) if largest else None,
        minimum_volume_size=v1.Int64Value(value=min(least)) if least else None,
    )
