"""The CSI Controller service: requests are read, decided on, carried out and answered."""

import asyncio
import dataclasses
import functools
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from bitts.csi import v1
from bitts.rpc.codes import Code, RpcError

from local_driver import (
    announced,
    attachments,
    creation,
    failures,
    health,
    iolimits,
    listing,
    making,
    messages,
    mounting,
    placement,
    requests,
    volumes,
)
from local_driver.making import Maker
from local_driver.operations import Operations
from local_driver.options import Options
from local_driver.snapshots import Snapshot
from local_driver.storage import Storage
from local_driver.taking import Taker
from local_driver.volumes import AccessType, Attachment, Capability, Volume, Wish

T = TypeVar("T")


class Controller(v1.ControllerBase):
    """Serves the volumes of one node."""

    def __init__(
        self, storage: Storage, taker: Taker, operations: Operations, options: Options
    ) -> None:
        self._storage = storage
        self._taker = taker
        self._maker = Maker(storage, taker.shelf, operations, options)
        self._operations = operations
        self._options = options
        self._attaching = 0
        self._offers = {name: backend.offer for name, backend in storage.backends.items()}

    async def create_volume(self, request: v1.CreateVolumeRequest) -> v1.CreateVolumeResponse:
        """Make a volume, or find the one made by the same request before."""
        volume = await self._told(self._maker.make(request), f"volume {request.name}")
        return v1.CreateVolumeResponse(volume=self._message(volume))

    async def delete_volume(self, request: v1.DeleteVolumeRequest) -> v1.DeleteVolumeResponse:
        """Remove a volume; an unknown one is fine."""
        volume_id = requests.require(request.volume_id, "volume_id")
        await self._alone(
            volume_id, "DeleteVolume", functools.partial(self._storage.remove, volume_id)
        )
        return v1.DeleteVolumeResponse()

    async def controller_expand_volume(
        self, request: v1.ControllerExpandVolumeRequest
    ) -> v1.ControllerExpandVolumeResponse:
        """Make a volume larger, in use or not."""
        volume_id = requests.require(request.volume_id, "volume_id")
        if request.capacity_range is None:
            raise requests.invalid("capacity_range: required")
        required, limit = requests.size_range(request.capacity_range)
        self._storage.catalog.require(volume_id)

        async def work() -> Volume:
            volume = self._storage.catalog.require(volume_id)
            offer = self._storage.backend(volume).offer
            capacity = creation.larger(volume.capacity, required, limit, offer)
            if capacity == volume.capacity:
                return volume
            return await self._storage.expand(volume, capacity)

        volume = await self._alone(volume_id, "ControllerExpandVolume", work)
        return v1.ControllerExpandVolumeResponse(
            capacity_bytes=volume.capacity,
            node_expansion_required=self._storage.backend(volume).needs_growing,
        )

    async def create_snapshot(self, request: v1.CreateSnapshotRequest) -> v1.CreateSnapshotResponse:
        """Take a snapshot, or find the one taken by the same request before."""
        snapshot = await self._told(self._taker.take(request), f"snapshot {request.name}")
        return v1.CreateSnapshotResponse(snapshot=messages.snapshot(snapshot))

    async def delete_snapshot(self, request: v1.DeleteSnapshotRequest) -> v1.DeleteSnapshotResponse:
        """Remove a snapshot; an unknown one is fine."""
        snapshot_id = requests.require(request.snapshot_id, "snapshot_id")
        await self._told(self._taker.remove(snapshot_id), f"snapshot {snapshot_id}")
        return v1.DeleteSnapshotResponse()

    async def list_snapshots(self, request: v1.ListSnapshotsRequest) -> v1.ListSnapshotsResponse:
        """Return snapshots in the order of their taking: all, of a volume, or one."""
        after, limit = requests.page(request.max_entries, request.starting_token)

        def wanted(snapshot: Snapshot) -> bool:
            is_it = request.snapshot_id in ("", snapshot.snapshot_id)
            return is_it and request.source_volume_id in ("", snapshot.source_id)

        page, following = self._taker.shelf.snapshots.page(after, limit, wanted)
        return v1.ListSnapshotsResponse(
            entries=[
                v1.ListSnapshotsResponseEntry(snapshot=messages.snapshot(found)) for found in page
            ],
            next_token="" if following is None else str(following),
        )

    async def get_snapshot(self, request: v1.GetSnapshotRequest) -> v1.GetSnapshotResponse:
        """Return one snapshot."""
        snapshot_id = requests.require(request.snapshot_id, "snapshot_id")
        found = self._taker.shelf.require(snapshot_id)
        return v1.GetSnapshotResponse(snapshot=messages.snapshot(found))

    async def validate_volume_capabilities(
        self, request: v1.ValidateVolumeCapabilitiesRequest
    ) -> v1.ValidateVolumeCapabilitiesResponse:
        """Confirm capabilities that the volume has; else say which it lacks."""
        volume_id = requests.require(request.volume_id, "volume_id")
        if not request.volume_capabilities:
            raise requests.invalid("volume_capabilities: required")
        volume = self._storage.catalog.require(volume_id)
        problem = self._problem(volume, request)
        if problem:
            return v1.ValidateVolumeCapabilitiesResponse(message=problem)
        return v1.ValidateVolumeCapabilitiesResponse(
            confirmed=v1.ValidateVolumeCapabilitiesResponseConfirmed(
                volume_context=request.volume_context,
                volume_capabilities=request.volume_capabilities,
                parameters=request.parameters,
                mutable_parameters=request.mutable_parameters,
            )
        )

    def _problem(self, volume: Volume, request: v1.ValidateVolumeCapabilitiesRequest) -> str:
        context = messages.context(volume)
        for key, value in request.volume_context.items():
            if key in context and context[key] != value:
                return f"volume_context[{key!r}]: {value!r}, the volume has {context[key]!r}"
        try:
            capabilities = requests.capabilities(
                request.volume_capabilities,
                multi_node=self._options.storage.has_multi_node_access,
            )
            device = self._storage.backend(volume).has_devices
            iolimits.parse(request.mutable_parameters, volume.backend, has_device=device)
            if request.parameters:
                parameters = creation.parameters(request.parameters, self._offers, volume.backend)
                if parameters.backend != volume.backend:
                    return f"parameters['backend']: the volume is kept by {volume.backend}"
        except RpcError as error:
            return error.message
        return next(filter(None, (volumes.unusable(volume, item) for item in capabilities)), "")

    async def list_volumes(self, request: v1.ListVolumesRequest) -> v1.ListVolumesResponse:
        """Return volumes in the order of their making, a page at a time."""
        after, limit = requests.page(request.max_entries, request.starting_token)
        page, following = self._storage.catalog.page(after, limit)
        conditions = await asyncio.to_thread(self._conditions, page)
        return v1.ListVolumesResponse(
            entries=[
                v1.ListVolumesResponseEntry(
                    volume=self._message(volume),
                    status=v1.ListVolumesResponseVolumeStatus(
                        published_node_ids=[one.node_id for one in volume.attachments],
                        volume_condition=condition,
                    ),
                )
                for volume, condition in zip(page, conditions, strict=True)
            ],
            next_token="" if following is None else str(following),
        )

    async def controller_get_volume(
        self, request: v1.ControllerGetVolumeRequest
    ) -> v1.ControllerGetVolumeResponse:
        """Return one volume. One that is just being made is neither there nor not."""
        volume_id = requests.require(request.volume_id, "volume_id")
        is_there = self._storage.catalog.get(volume_id) is not None
        if not is_there and self._operations.at_work(volume_id) == making.OPERATION:
            raise RpcError(Code.ABORTED, f"volume_id: {volume_id} is just being made: try again")
        volume = self._storage.catalog.require(volume_id)
        (condition,) = await asyncio.to_thread(self._conditions, [volume])
        return v1.ControllerGetVolumeResponse(
            volume=self._message(volume),
            status=v1.ControllerGetVolumeResponseVolumeStatus(
                published_node_ids=[one.node_id for one in volume.attachments],
                volume_condition=condition,
            ),
        )

    def _conditions(self, page: Sequence[Volume]) -> list[v1.VolumeCondition | None]:
        if self._options.services.has_health_rpcs:
            return [None] * len(page)
        return list(map(health.condition, health.of_volumes(self._storage, page)))

    async def controller_get_volume_health(
        self, request: v1.ControllerGetVolumeHealthRequest
    ) -> v1.ControllerGetVolumeHealthResponse:
        """Say how one volume is, in the way of CSI 1.13."""
        self._require(is_served=self._options.services.has_health_rpcs)
        volume_id = requests.require(request.volume_id, "volume_id")
        volume = self._storage.catalog.require(volume_id)
        found = await asyncio.to_thread(health.of_volume, self._storage, volume)
        return v1.ControllerGetVolumeHealthResponse(volume_health=health.message(volume_id, found))

    async def controller_list_volume_health(
        self, request: v1.ControllerListVolumeHealthRequest
    ) -> v1.ControllerListVolumeHealthResponse:
        """Return the volumes that are not well, in the way of CSI 1.13."""
        self._require(is_served=self._options.services.has_health_rpcs)
        after = listing.identity_after(request.starting_token)
        _, limit = requests.page(request.max_entries, "")
        every = await asyncio.to_thread(health.abnormal, self._storage)
        told = [(volume_id, health.message(volume_id, found)) for volume_id, found in every]
        page, following = listing.page_by_id(told, after, limit)
        return v1.ControllerListVolumeHealthResponse(
            entries=page, next_token=listing.token_after(following)
        )

    async def controller_publish_volume(
        self, request: v1.ControllerPublishVolumeRequest
    ) -> v1.ControllerPublishVolumeResponse:
        """Attach a volume to its node."""
        self._require(is_served=self._options.services.attaches)
        volume_id = requests.require(request.volume_id, "volume_id")
        node_id = requests.require(request.node_id, "node_id")
        multi_node = self._options.storage.has_multi_node_access
        capability = requests.capability(request.volume_capability, multi_node=multi_node)
        wanted = Attachment(node_id, request.readonly)

        async def work() -> None:
            volume = self._storage.catalog.require(volume_id)
            problem = volumes.unusable(volume, capability)
            if problem:
                raise requests.invalid(f"volume_capability: {problem}")
            used = sum(bool(one.attachments) for one in self._storage.catalog.all())
            used += self._attaching
            limit = self._options.max_volumes
            changed = attachments.attached(volume, wanted, used=used, limit=limit)
            if changed is not volume:
                self._attaching += 1
                try:
                    await self._storage.change(changed)
                finally:
                    self._attaching -= 1

        await self._alone(volume_id, "ControllerPublishVolume", work)
        return v1.ControllerPublishVolumeResponse(publish_context={"node": node_id})

    async def controller_unpublish_volume(
        self, request: v1.ControllerUnpublishVolumeRequest
    ) -> v1.ControllerUnpublishVolumeResponse:
        """Detach a volume; one that is not attached, or not there, is fine."""
        self._require(is_served=self._options.services.attaches)
        volume_id = requests.require(request.volume_id, "volume_id")

        async def work() -> None:
            volume = self._storage.catalog.get(volume_id)
            if volume is not None and volume.attachments:
                await self._storage.change(attachments.detached(volume, request.node_id))

        await self._alone(volume_id, "ControllerUnpublishVolume", work)
        return v1.ControllerUnpublishVolumeResponse()

    async def controller_modify_volume(
        self, request: v1.ControllerModifyVolumeRequest
    ) -> v1.ControllerModifyVolumeResponse:
        """Change the limits of a volume's I/O, in use or not."""
        volume_id = requests.require(request.volume_id, "volume_id")
        self._storage.catalog.require(volume_id)

        async def work() -> None:
            volume = self._storage.catalog.require(volume_id)
            backend = self._storage.backend(volume)
            given = iolimits.parse(
                request.mutable_parameters, volume.backend, has_device=backend.has_devices
            )
            limits = iolimits.merged(volume.mutable, given)
            if limits != volume.mutable:
                volume = await self._storage.change(dataclasses.replace(volume, mutable=limits))
            await asyncio.to_thread(mounting.limit, backend, volume)

        await self._alone(volume_id, "ControllerModifyVolume", work)
        return v1.ControllerModifyVolumeResponse()

    def _require(self, *, is_served: bool) -> None:
        if not is_served:
            raise RpcError(
                Code.UNIMPLEMENTED, "not announced: see the flags --attach and --csi of the driver"
            )

    async def get_capacity(self, request: v1.GetCapacityRequest) -> v1.GetCapacityResponse:
        """Return the room for new volumes, of which one may take all."""
        parameters = creation.parameters(
            request.parameters, self._offers, self._options.storage.default_backend
        )
        offer = self._offers[parameters.backend]
        capabilities: tuple[Capability, ...] = ()
        if request.volume_capabilities:
            capabilities = requests.capabilities(
                request.volume_capabilities,
                multi_node=self._options.storage.has_multi_node_access,
            )
        wish = Wish("", capabilities or (_ANY_FILESYSTEM,), parameters)
        least = offer.minimum[creation.filesystem(wish, offer)]
        topology = request.accessible_topology
        if topology is not None and not placement.matches(
            topology.segments, self._options.segments
        ):
            return v1.GetCapacityResponse(available_capacity=0)
        room = await self._storage.available(offer.name)
        return v1.GetCapacityResponse(
            available_capacity=room,
            maximum_volume_size=v1.Int64Value(value=min(room, offer.maximum)),
            minimum_volume_size=v1.Int64Value(value=least),
        )

    async def controller_get_capabilities(
        self, request: v1.ControllerGetCapabilitiesRequest
    ) -> v1.ControllerGetCapabilitiesResponse:
        """Return what is really served."""
        del request
        return v1.ControllerGetCapabilitiesResponse(
            capabilities=announced.controller(self._options.services)
        )

    def _message(self, volume: Volume) -> v1.Volume:
        return messages.volume(volume, self._options.segments)

    async def _alone(self, volume_id: str, name: str, work: Callable[[], Awaitable[T]]) -> T:
        return await self._told(self._operations.run(volume_id, name, work), f"volume {volume_id}")

    async def _told(self, work: Awaitable[T], subject: str) -> T:
        try:
            return await work
        except OSError as error:
            raise failures.rpc_error(error, subject) from error


_ANY_FILESYSTEM = Capability(AccessType.MOUNT, volumes.AccessMode.SINGLE_NODE_WRITER)
