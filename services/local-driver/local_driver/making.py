"""CreateVolume carried out: found, or made from nothing, of a snapshot, of another volume."""

import dataclasses
import errno
import functools
import time
from collections.abc import Mapping

from bitts.csi import v1
from bitts.rpc.codes import Code, RpcError

from local_driver import creation, iolimits, origins, placement, requests, volumes
from local_driver.creation import Offer
from local_driver.operations import Operations
from local_driver.options import Options
from local_driver.origins import Origin
from local_driver.shelf import Shelf
from local_driver.storage import Storage
from local_driver.volumes import Content, Source, Volume, Wish

OPERATION = "CreateVolume"
"""What a volume's making is called while it goes on."""


class Maker:
    """Makes the volumes of one node."""

    def __init__(
        self, storage: Storage, shelf: Shelf, operations: Operations, options: Options
    ) -> None:
        self._storage = storage
        self._shelf = shelf
        self._operations = operations
        self._options = options
        self._offers: Mapping[str, Offer] = {
            name: backend.offer for name, backend in storage.backends.items()
        }

    async def make(self, request: v1.CreateVolumeRequest) -> Volume:
        """Return the volume asked for; raises RpcError, OSError."""
        volume_id = volumes.volume_id(self._options.node_id, requests.require(request.name, "name"))
        wish = self._wish(volume_id, request)
        work = functools.partial(self._create, volume_id, wish)
        return await self._operations.run(volume_id, OPERATION, work)

    def _wish(self, volume_id: str, request: v1.CreateVolumeRequest) -> Wish:
        """Read the request; what it leaves open is as in its origin, or as in the volume made."""
        source = requests.source(request.volume_content_source)
        default = self._options.storage.default_backend
        if source is not None:
            existing = self._storage.catalog.get(volume_id)
            default = existing.backend if existing else self._origin(source).backend
        wish = requests.wish(
            request,
            self._offers,
            default,
            multi_node=self._options.storage.has_multi_node_access,
        )
        backend = wish.parameters.backend
        device = self._storage.backends[backend].has_devices
        limits = iolimits.parse(request.mutable_parameters, backend, has_device=device)
        return dataclasses.replace(wish, mutable=limits)

    def _origin(self, source: Source) -> Origin:
        """Return what to copy; raises RpcError NOT_FOUND."""
        if source.is_snapshot:
            return origins.of_snapshot(self._shelf.require(source.content_id))
        return origins.of_volume(self._storage.catalog.require(source.content_id))

    async def _create(self, volume_id: str, wish: Wish) -> Volume:
        offer = self._offers[wish.parameters.backend]
        existing = self._storage.catalog.get(volume_id)
        if existing is not None:
            default = existing.filesystem if wish.source else ""
            filesystem = creation.filesystem(wish, offer, default)
            self._require_match(existing, wish, filesystem)
            return existing
        if wish.source is None:
            return await self._make(volume_id, wish, None)
        origin = self._origin(wish.source)
        work = functools.partial(self._make_of, volume_id, wish)
        if origin.volume is not None:  # in use or not, it must stay as it is for the copy
            return await self._operations.run(origin.content_id, "CreateVolume of it", work)
        with self._shelf.pinned(origin.content_id):
            return await work()

    async def _make_of(self, volume_id: str, wish: Wish) -> Volume:
        assert wish.source is not None
        origin = self._origin(wish.source)
        return await self._make(volume_id, origins.inherited(wish, origin), origin)

    async def _make(self, volume_id: str, wish: Wish, origin: Origin | None) -> Volume:
        offer = self._offers[wish.parameters.backend]
        filesystem = creation.filesystem(wish, offer)
        if origin is not None:
            origins.check_filesystem(filesystem, origin)
        size = creation.size(wish.required, wish.limit, offer, filesystem)
        room = await self._storage.available(offer.name)
        place = placement.Candidate(self._options.node_id, self._options.segments, room)
        # No await between the choice and the reservation, or others could take the same room.
        placement.choose([place], wish.requirement, size)
        with self._storage.catalog.reserved(size, offer.name):
            volume = Volume(
                volume_id=volume_id,
                name=wish.name,
                serial=self._storage.catalog.take_serial(),
                node=self._options.node_id,
                backend=offer.name,
                capacity=size,
                access=wish.access,
                filesystem=filesystem,
                content=origin.content if origin else Content.BLANK,
                created=time.time(),
                is_limited=self._storage.backends[offer.name].is_limiting,
                source=wish.source_id,
                mutable=wish.mutable,
            )
            try:
                await self._storage.create(volume, origin)
            except OSError as error:
                if error.errno == errno.EROFS:  # upon which another node may be tried
                    raise RpcError(
                        Code.RESOURCE_EXHAUSTED,
                        f"required_bytes: nothing can be made here: {error}",
                    ) from error
                raise
        return volume

    def _require_match(self, existing: Volume, wish: Wish, filesystem: str) -> None:
        reason = volumes.mismatch(existing, wish, filesystem)
        if not reason and not placement.allowed(wish.requirement, self._options.segments):
            reason = "is not reachable from the requisite topologies"
        if reason:
            raise RpcError(Code.ALREADY_EXISTS, f"name: volume {wish.name} exists and {reason}")
