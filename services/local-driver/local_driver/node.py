"""The CSI Node service: volumes staged, published, measured and taken away on this node."""

import asyncio
import dataclasses
import functools
import os
import pathlib
from collections.abc import Awaitable, Callable, Collection
from typing import TypeVar

from bitts.csi import v1
from bitts.rpc.codes import Code, RpcError

from local_driver import (
    announced,
    attachments,
    failures,
    health,
    mounting,
    requests,
    steps,
    volumes,
)
from local_driver.backends.backend import Backend, Finding
from local_driver.mounting import Use
from local_driver.operations import Operations
from local_driver.options import Options
from local_driver.storage import Storage
from local_driver.volumes import AccessType, Content, Volume

T = TypeVar("T")

_Unit = v1.VolumeUsageUnit


class Node(v1.NodeBase):
    """Serves the volumes of this node."""

    def __init__(
        self,
        storage: Storage,
        operations: Operations,
        options: Options,
        reached: steps.Reached = steps.unobserved,
    ) -> None:
        self._storage = storage
        self._operations = operations
        self._options = options
        self._reached = reached

    async def node_stage_volume(
        self, request: v1.NodeStageVolumeRequest
    ) -> v1.NodeStageVolumeResponse:
        """Mount the volume at its staging path; a new image is formatted first."""
        volume_id = requests.require(request.volume_id, "volume_id")
        path = requests.path(request.staging_target_path, "staging_target_path")
        find = self._find(volume_id, request.volume_capability)
        await self._alone(volume_id, "NodeStageVolume", functools.partial(self._stage, find, path))
        return v1.NodeStageVolumeResponse()

    async def _stage(self, find: Callable[[], Use], path: pathlib.Path) -> None:
        use = find()
        content = await asyncio.to_thread(self._prepare_and_stage, use, path)
        if content is not use.volume.content:
            await self._storage.record(use.volume, content)
            await asyncio.to_thread(mounting.stage, use, path, self._reached)

    def _prepare_and_stage(self, use: Use, path: pathlib.Path) -> Content:
        """Stage a volume unless something has to be recorded first; return its content."""
        content = use.backend.prepare(use.volume, use.capability)
        if content is use.volume.content:
            mounting.stage(use, path, self._reached)
        return content

    async def node_unstage_volume(
        self, request: v1.NodeUnstageVolumeRequest
    ) -> v1.NodeUnstageVolumeResponse:
        """Unmount the volume from its staging path and detach its device."""
        volume_id = requests.require(request.volume_id, "volume_id")
        path = requests.path(request.staging_target_path, "staging_target_path")
        await self._undo(volume_id, "NodeUnstageVolume", mounting.unstage, path)
        return v1.NodeUnstageVolumeResponse()

    async def node_publish_volume(
        self, request: v1.NodePublishVolumeRequest
    ) -> v1.NodePublishVolumeResponse:
        """Show the staged volume at its target."""
        volume_id = requests.require(request.volume_id, "volume_id")
        target = requests.path(request.target_path, "target_path")
        capability = request.volume_capability
        find = self._find(volume_id, capability, read_only=request.readonly)
        if not request.staging_target_path:  # a code of its own (CSI NodePublishVolume Errors)
            raise RpcError(
                Code.FAILED_PRECONDITION, "staging_target_path: required, stage the volume first"
            )
        staging = requests.path(request.staging_target_path, "staging_target_path")

        async def work() -> None:
            await asyncio.to_thread(mounting.publish, find(), staging, target, self._reached)

        await self._alone(volume_id, "NodePublishVolume", work)
        return v1.NodePublishVolumeResponse()

    async def node_unpublish_volume(
        self, request: v1.NodeUnpublishVolumeRequest
    ) -> v1.NodeUnpublishVolumeResponse:
        """Take the volume away from its target, and the target too."""
        volume_id = requests.require(request.volume_id, "volume_id")
        target = requests.path(request.target_path, "target_path")
        await self._undo(volume_id, "NodeUnpublishVolume", mounting.unpublish, target)
        return v1.NodeUnpublishVolumeResponse()

    async def node_get_volume_stats(
        self, request: v1.NodeGetVolumeStatsRequest
    ) -> v1.NodeGetVolumeStatsResponse:
        """Return how full the volume is, in bytes and inodes; of a raw one just its size."""
        volume_id = requests.require(request.volume_id, "volume_id")
        path = pathlib.Path(requests.check_path(request.volume_path, "volume_path"))
        volume = self._storage.catalog.require(volume_id)
        try:
            usage = await asyncio.to_thread(_usage, self._storage.backend(volume), volume, path)
        except OSError as error:
            raise failures.rpc_error(error, f"volume_path {path}") from error
        condition = None
        if not self._options.services.has_health_rpcs:
            condition = health.condition(await asyncio.to_thread(self._findings, volume))
        return v1.NodeGetVolumeStatsResponse(usage=usage, volume_condition=condition)

    async def node_expand_volume(
        self, request: v1.NodeExpandVolumeRequest
    ) -> v1.NodeExpandVolumeResponse:
        """Let pods see the size that the controller has given a volume."""
        volume_id = requests.require(request.volume_id, "volume_id")
        requests.require(request.volume_path, "volume_path")
        required, _limit = requests.size_range(request.capacity_range)
        self._storage.catalog.require(volume_id)
        path = requests.path(request.volume_path, "volume_path")

        async def work() -> int:
            volume = self._storage.catalog.require(volume_id)
            if required > volume.capacity:
                raise RpcError(
                    Code.OUT_OF_RANGE,
                    f"capacity_range.required_bytes: volume {volume_id} has {volume.capacity} "
                    "bytes: have the controller expand it first",
                )
            backend = self._storage.backend(volume)
            await asyncio.to_thread(_grow, backend, volume, path)
            return volume.capacity

        capacity = await self._alone(volume_id, "NodeExpandVolume", work)
        return v1.NodeExpandVolumeResponse(capacity_bytes=capacity)

    async def node_get_capabilities(
        self, request: v1.NodeGetCapabilitiesRequest
    ) -> v1.NodeGetCapabilitiesResponse:
        """Return what is really served."""
        del request
        return v1.NodeGetCapabilitiesResponse(capabilities=announced.node(self._options.services))

    async def node_get_volume_health(
        self, request: v1.NodeGetVolumeHealthRequest
    ) -> v1.NodeGetVolumeHealthResponse:
        """Say how one volume is as seen from here, in the way of CSI 1.13."""
        self._require_health()
        volume_id = requests.require(request.volume_id, "volume_id")
        found = await asyncio.to_thread(self._findings, self._storage.catalog.require(volume_id))
        return v1.NodeGetVolumeHealthResponse(volume_health=health.message(volume_id, found))

    async def node_get_storage_health(
        self, request: v1.NodeGetStorageHealthRequest
    ) -> v1.NodeGetStorageHealthResponse:
        """Say how the storage below all volumes is, in the way of CSI 1.13."""
        del request
        self._require_health()
        found = await asyncio.to_thread(health.of_storage, self._storage)
        return v1.NodeGetStorageHealthResponse(
            backend_health=[
                v1.NodeGetStorageHealthResponseStorageBackendHealth(
                    status=one.status, reason=one.reason, message=one.message
                )
                for one in found
            ]
        )

    def _findings(self, volume: Volume) -> list[Finding]:
        return health.of_volume(self._storage, volume, on_node=True)

    def _require_health(self) -> None:
        if not self._options.services.has_health_rpcs:
            raise RpcError(Code.UNIMPLEMENTED, "not announced: start the driver with --csi=1.13")

    async def node_get_info(self, request: v1.NodeGetInfoRequest) -> v1.NodeGetInfoResponse:
        """Return the node's name, its topology, and how many volumes it takes."""
        del request
        return v1.NodeGetInfoResponse(
            node_id=self._options.node_id,
            max_volumes_per_node=self._options.max_volumes,
            accessible_topology=v1.Topology(segments=dict(self._options.segments)),
        )

    def _use(
        self, volume_id: str, given: v1.VolumeCapability | None, *, read_only: bool = False
    ) -> Use:
        capability = requests.capability(
            given, multi_node=self._options.storage.has_multi_node_access
        )
        volume = self._storage.catalog.require(volume_id)
        problem = volumes.unusable(volume, capability)
        if problem:
            raise RpcError(Code.FAILED_PRECONDITION, f"volume_capability: {problem}")
        backend = self._storage.backend(volume)
        read_only = read_only or capability.mode.is_read_only
        return Use(volume, backend, capability, read_only)

    def _find(
        self, volume_id: str, given: v1.VolumeCapability | None, *, read_only: bool = False
    ) -> Callable[[], Use]:
        """Return what finds a volume for a use, and check it now: a wrong wish need not wait.

        What is true of the volume now may have changed when its turn comes, so it is done again.
        """

        def find() -> Use:
            use = self._use(volume_id, given, read_only=read_only)
            if not self._options.services.attaches:
                return use
            found = attachments.require(use.volume, self._options.node_id)
            return dataclasses.replace(use, read_only=use.read_only or found.read_only)

        find()
        return find

    async def _undo(
        self,
        volume_id: str,
        name: str,
        undo: Callable[[Collection[Backend], str, pathlib.Path, steps.Reached], None],
        path: pathlib.Path,
    ) -> None:
        """Clean up, even after a volume whose metadata is gone: its pod must be able to end.

        So it is not looked up: every backend takes away what it has there.
        """
        if not volumes.is_id(volume_id):
            return
        every = list(self._storage.backends.values())
        work = functools.partial(asyncio.to_thread, undo, every, volume_id, path, self._reached)
        await self._alone(volume_id, name, work)

    async def _alone(self, volume_id: str, name: str, work: Callable[[], Awaitable[T]]) -> T:
        try:
            return await self._operations.run(volume_id, name, work)
        except OSError as error:
            raise failures.rpc_error(error, f"volume {volume_id}") from error


def _require_mounted(backend: Backend, volume: Volume, path: pathlib.Path) -> None:
    place = os.path.realpath(path)
    if not any(mount.point == place for mount in backend.sightings(volume.volume_id)):
        raise RpcError(
            Code.NOT_FOUND, f"volume_path: volume {volume.volume_id} is not mounted at {path}"
        )


def _grow(backend: Backend, volume: Volume, path: pathlib.Path) -> None:
    if AccessType.MOUNT in volume.access and path.is_dir():
        _require_mounted(backend, volume, path)
    elif not path.exists():
        raise RpcError(Code.NOT_FOUND, f"volume_path: there is nothing at {path}")
    backend.grow(volume)


def _usage(backend: Backend, volume: Volume, path: pathlib.Path) -> list[v1.VolumeUsage]:
    _require_mounted(backend, volume, path)
    if AccessType.MOUNT not in volume.access or not path.is_dir():
        return [v1.VolumeUsage(unit=_Unit.BYTES, total=volume.capacity)]
    usage = backend.usage(volume, path)
    found = [
        v1.VolumeUsage(
            unit=_Unit.BYTES,
            total=usage.total_bytes,
            used=usage.used_bytes,
            available=usage.available_bytes,
        )
    ]
    if usage.total_inodes:  # a file system without a table of inodes counts none
        inodes = v1.VolumeUsage(
            unit=_Unit.INODES,
            total=usage.total_inodes,
            used=usage.used_inodes,
            available=usage.available_inodes,
        )
        found.append(inodes)
    return found
