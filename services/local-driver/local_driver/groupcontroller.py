"""The CSI GroupController service: snapshots of several volumes at one instant."""

from bitts.csi import v1
from bitts.rpc.codes import Code, RpcError

from local_driver import announced, failures, messages, requests, taking


class GroupController(v1.GroupControllerBase):
    """Serves the groups of one node."""

    def __init__(self, taker: taking.Taker) -> None:
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
        """Take snapshots at one instant, or find those taken by the same request before."""
        try:
            group = await self._taker.take_group(request)
        except OSError as error:
            raise failures.rpc_error(error, f"group {request.name}") from error
        return v1.CreateVolumeGroupSnapshotResponse(group_snapshot=messages.group(group))

    async def delete_volume_group_snapshot(
        self, request: v1.DeleteVolumeGroupSnapshotRequest
    ) -> v1.DeleteVolumeGroupSnapshotResponse:
        """Remove a group with its snapshots; an unknown one is fine."""
        group_id = requests.require(request.group_snapshot_id, "group_snapshot_id")
        try:
            await self._taker.remove_group(group_id, request.snapshot_ids)
        except OSError as error:
            raise failures.rpc_error(error, f"group {group_id}") from error
        return v1.DeleteVolumeGroupSnapshotResponse()

    async def get_volume_group_snapshot(
        self, request: v1.GetVolumeGroupSnapshotRequest
    ) -> v1.GetVolumeGroupSnapshotResponse:
        """Return one group."""
        group_id = requests.require(request.group_snapshot_id, "group_snapshot_id")
        group = self._taker.shelf.group(group_id)
        if group is None:
            raise RpcError(Code.NOT_FOUND, f"group_snapshot_id: there is no group {group_id!r}")
        taking.require_members(group, request.snapshot_ids)
        return v1.GetVolumeGroupSnapshotResponse(group_snapshot=messages.group(group))
