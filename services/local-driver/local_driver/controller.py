"""The CSI Controller service: requests are read, decided on, carried out and answered."""

import functools
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from bitts.csi import v1
from bitts.rpc.codes import Code, RpcError

from local_driver import creation, failures, names, placement, requests, volumes
from local_driver.operations import Operations
from local_driver.options import Options
from local_driver.storage import Storage
from local_driver.volumes import AccessType, Capability, Content, Volume, Wish

T = TypeVar("T")

_Rpc = v1.ControllerServiceCapabilityRpcType
_SERVED = (
    _Rpc.CREATE_DELETE_VOLUME,
    _Rpc.LIST_VOLUMES,
    _Rpc.GET_CAPACITY,
    _Rpc.GET_VOLUME,
    _Rpc.EXPAND_VOLUME,
    _Rpc.SINGLE_NODE_MULTI_WRITER,
)


class Controller(v1.ControllerBase):
    """Serves the volumes of one node."""

    def __init__(self, storage: Storage, operations: Operations, options: Options) -> None:
        self._storage = storage
        self._operations = operations
        self._options = options
        self._offers = {name: backend.offer for name, backend in storage.backends.items()}

    async def create_volume(self, request: v1.CreateVolumeRequest) -> v1.CreateVolumeResponse:
        """Make a volume, or find the one made by the same request before."""
        wish = requests.wish(
            request,
            self._offers,
            self._options.storage.default_backend,
            multi_node=self._options.storage.has_multi_node_access,
        )
        volume_id = volumes.volume_id(self._options.node_id, wish.name)
        volume = await self._alone(
            volume_id, "CreateVolume", functools.partial(self._create, volume_id, wish)
        )
        return v1.CreateVolumeResponse(volume=self._message(volume))

    async def _create(self, volume_id: str, wish: Wish) -> Volume:
        offer = self._offers[wish.parameters.backend]
        filesystem = creation.filesystem(wish, offer)
        existing = self._storage.catalog.get(volume_id)
        if existing is not None:
            self._require_match(existing, wish, filesystem)
            return existing
        size = creation.size(wish.required, wish.limit, offer, filesystem)
        place = placement.Candidate(
            self._options.node_id, self._options.segments, await self._storage.available()
        )
        # No await between the choice and the reservation, or others could take the same room.
        placement.choose([place], wish.requirement, size)
        with self._storage.catalog.reserved(size):
            volume = Volume(
                volume_id=volume_id,
                name=wish.name,
                serial=self._storage.catalog.take_serial(),
                node=self._options.node_id,
                backend=offer.name,
                capacity=size,
                access=wish.access,
                filesystem=filesystem,
                content=Content.BLANK,
                created=time.time(),
                is_limited=self._storage.backends[offer.name].is_limiting,
            )
            await self._storage.create(volume)
        return volume

    def _require_match(self, existing: Volume, wish: Wish, filesystem: str) -> None:
        reason = volumes.mismatch(existing, wish, filesystem)
        if not reason and not placement.allowed(wish.requirement, self._options.segments):
            reason = "is not reachable from the requisite topologies"
        if reason:
            raise RpcError(Code.ALREADY_EXISTS, f"name: volume {wish.name} exists and {reason}")

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
            )
        )

    def _problem(self, volume: Volume, request: v1.ValidateVolumeCapabilitiesRequest) -> str:
        context = self._context(volume)
        for key, value in request.volume_context.items():
            if key in context and context[key] != value:
                return f"volume_context[{key!r}]: {value!r}, the volume has {context[key]!r}"
        try:
            capabilities = requests.capabilities(
                request.volume_capabilities,
                multi_node=self._options.storage.has_multi_node_access,
            )
            if request.parameters:
                parameters = creation.parameters(request.parameters, self._offers, volume.backend)
                if parameters.backend != volume.backend:
                    return f"parameters['backend']: the volume is kept by {volume.backend}"
        except RpcError as error:
            return error.message
        return next(filter(None, (volumes.unusable(volume, item) for item in capabilities)), "")

    async def list_volumes(self, request: v1.ListVolumesRequest) -> v1.ListVolumesResponse:
        """Return volumes in the order of their making, a page at a time."""
        if request.max_entries < 0:
            raise requests.invalid("max_entries: must not be negative")
        after = requests.token(request.starting_token)
        page, following = self._storage.catalog.page(after, request.max_entries)
        return v1.ListVolumesResponse(
            entries=[v1.ListVolumesResponseEntry(volume=self._message(volume)) for volume in page],
            next_token="" if following is None else str(following),
        )

    async def controller_get_volume(
        self, request: v1.ControllerGetVolumeRequest
    ) -> v1.ControllerGetVolumeResponse:
        """Return one volume."""
        volume_id = requests.require(request.volume_id, "volume_id")
        volume = self._storage.catalog.require(volume_id)
        return v1.ControllerGetVolumeResponse(
            volume=self._message(volume), status=v1.ControllerGetVolumeResponseVolumeStatus()
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
        room = await self._storage.available()
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
            capabilities=[
                v1.ControllerServiceCapability(rpc=v1.ControllerServiceCapabilityRpc(type=kind))
                for kind in _SERVED
            ]
        )

    def _message(self, volume: Volume) -> v1.Volume:
        return v1.Volume(
            volume_id=volume.volume_id,
            capacity_bytes=volume.capacity,
            volume_context=self._context(volume),
            accessible_topology=[v1.Topology(segments=dict(self._options.segments))],
        )

    def _context(self, volume: Volume) -> dict[str, str]:
        quota = "enforced" if volume.is_limited else "not enforced"
        return {names.BACKEND_CONTEXT: volume.backend, names.QUOTA_CONTEXT: quota}

    async def _alone(self, volume_id: str, name: str, work: Callable[[], Awaitable[T]]) -> T:
        try:
            return await self._operations.run(volume_id, name, work)
        except OSError as error:
            raise failures.rpc_error(error, f"volume {volume_id}") from error


_ANY_FILESYSTEM = Capability(AccessType.MOUNT, volumes.AccessMode.SINGLE_NODE_WRITER)
