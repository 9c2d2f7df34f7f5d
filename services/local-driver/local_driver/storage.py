"""The volumes of this node as a whole: made, removed, summed up. Both services stand on it.

Here the parts meet: backends hold the content, the store the metadata, the catalog what is
known in memory. Each change keeps their order: content, file, memory when a volume comes; file,
memory, content when it goes.
"""

import asyncio
import contextlib
import dataclasses
import functools
from collections.abc import Mapping

from bitts.core import logs
from bitts.rpc.codes import Code, RpcError

from local_driver import catalog, filesystems, metadata, placement, settling, steps
from local_driver.backends.backend import Backend
from local_driver.origins import Origin
from local_driver.shelf import Shelf
from local_driver.snapshots import is_snapshot_id
from local_driver.volumes import Content, Volume, is_id

COPIES = 6
"""Copies of volumes at a time; others wait. Each holds a thread, and mounts need some too."""


class Storage:
    """All volumes of this node. ``limit`` is the most bytes of them, None for the disk's."""

    def __init__(
        self,
        backends: Mapping[str, Backend],
        store: metadata.Store[Volume],
        volumes: catalog.Catalog,
        *,
        limit: int | None,
        shelf: Shelf | None = None,
        reached: steps.Reached = steps.unobserved,
    ) -> None:
        self.backends = backends
        self.catalog = volumes
        self.shelf = shelf if shelf is not None else Shelf()
        self._sharing = _sharing(backends)
        self._store = store
        self._limit = limit
        self._copying = asyncio.Semaphore(COPIES)
        self._settlers = {
            name: settling.Settler(name, backend.settle)
            for name, backend in backends.items()
            if backend.settles_late
        }
        self._reached = reached
        self._log = logs.get("storage")

    async def available(self, backend: str) -> int:
        """Return how many bytes a new volume of a backend may have."""
        size = free = 0
        promised = self.catalog.promised
        if self._limit is None:
            folder = self.backends[backend].folder
            usage = await asyncio.to_thread(filesystems.usage, folder)
            size, free = usage.total_bytes, usage.available_bytes
            promised = self.catalog.promised_by(self._sharing[backend])
        return placement.available(placement.Pool(self._limit, size, free, promised))

    def backend(self, volume: Volume) -> Backend:
        """Return the backend of a volume.

        Raises RpcError FAILED_PRECONDITION when the driver was started without it.
        """
        found = self.backends.get(volume.backend)
        if found is None:
            raise RpcError(
                Code.FAILED_PRECONDITION,
                f"volume {volume.volume_id} is kept by backend {volume.backend}, which is switched "
                "off: add it to --backends",
            )
        return found

    async def create(self, volume: Volume, origin: Origin | None = None) -> None:
        """Make a volume, empty or of its origin, on which nobody else works.

        Raises OSError or RpcError, and nothing is left of it then.
        """
        backend = self.backend(volume)
        settler = self._settlers.get(volume.backend)
        try:
            if origin is not None:  # a copy may take long: not in the writer's thread
                async with self._copying:
                    await asyncio.to_thread(_copy, backend, origin, volume)
                await self._store.create(volume, metadata.nothing, [backend.folder])
            elif settler is None:
                prepare = functools.partial(backend.create, volume)
                await self._store.create(volume, prepare, [backend.folder])
            else:
                with settler.making(volume.serial):
                    await self._store.create(volume, functools.partial(backend.create, volume), [])
        except Exception:
            await asyncio.to_thread(self._clear_away, backend, volume.volume_id)
            raise
        self.catalog.add(volume)

    async def settle(self) -> None:
        """Have all content on the disk, at the end."""
        for settler in self._settlers.values():
            await settler.close()

    async def record(self, volume: Volume, content: Content) -> Volume:
        """Record what a volume's image holds from now on; return the volume as it is then."""
        if content is volume.content:
            return volume
        return await self.change(dataclasses.replace(volume, content=content))

    async def change(self, changed: Volume) -> Volume:
        """Record what has changed of a volume, apart from its content; return it."""
        await self._store.replace(changed)
        self.catalog.add(changed)
        return changed

    async def expand(self, volume: Volume, capacity: int) -> Volume:
        """Give a volume ``capacity`` bytes; return it as it is then.

        The content comes first: a crash before the record leaves room that is taken back at
        the next start. Raises RpcError RESOURCE_EXHAUSTED when there is no room, OSError.
        """
        backend = self.backend(volume)
        more = capacity - volume.capacity
        room = await self.available(volume.backend)
        if more > room:  # no await from here to the reservation
            raise RpcError(
                Code.RESOURCE_EXHAUSTED,
                f"capacity_range.required_bytes: {more} more bytes are needed, "
                f"{room} are available",
            )
        changed = dataclasses.replace(volume, capacity=capacity)
        with self.catalog.reserved(more, volume.backend):
            try:
                await asyncio.to_thread(backend.resize, changed)
                self._reached(steps.Step.CONTENT_RESIZED)
                await self._store.replace(changed)
            except Exception:
                await asyncio.to_thread(self._take_back, backend, volume)
                raise
        self.catalog.add(changed)
        return changed

    def adopt(self) -> None:
        """Make content agree with what is recorded, where a crash came in between. Blocks."""
        every = self.catalog.all()
        for name, backend in self.backends.items():
            problems = backend.adopt([volume for volume in every if volume.backend == name])
            for volume_id, error in problems.items():
                self._log.error("Content is missing or broken", volume=volume_id, err=error)

    async def remove(self, volume_id: str) -> None:
        """Remove a volume, or what a crash left of one; unknown ones are fine.

        Raises RpcError FAILED_PRECONDITION while it is in use, OSError when its content cannot
        be removed: the next call goes on with that.
        """
        if not is_id(volume_id):
            return
        volume = self.catalog.get(volume_id)
        if volume is None:
            await self.sweep(volume_id)
            return
        if volume.attachments:
            raise RpcError(
                Code.FAILED_PRECONDITION,
                f"volume {volume_id} is attached to {volume.attachments[0].node_id!r}: detach it",
            )
        backend = self.backend(volume)
        await self._store.remove(volume_id, lambda: _refuse_in_use(backend, volume_id))
        self.catalog.discard(volume_id)
        await asyncio.to_thread(backend.remove, volume_id)
        self._reached(steps.Step.CONTENT_REMOVED)

    async def sweep(self, volume_id: str) -> bool:
        """Remove content that no volume has; raises as remove() does.

        In the meantime the ID may have become a volume's: then nothing is rubbish any more, and
        the answer is False.
        """
        if self._is_known(volume_id):
            return False
        await asyncio.to_thread(self._remove_leftovers, volume_id)
        return True

    def leftovers(self) -> dict[str, Backend]:
        """Return content that no volume has: a crash came between it and its metadata. Blocks.

        Content whose metadata is damaged is not rubbish.
        """
        return {
            volume_id: backend
            for backend in self.backends.values()
            for volume_id in backend.contents()
            if (is_id(volume_id) or is_snapshot_id(volume_id)) and not self._is_known(volume_id)
        }

    def _is_known(self, content_id: str) -> bool:
        if is_snapshot_id(content_id):
            return self.shelf.is_kept(content_id)
        return content_id in self.catalog.damaged or self.catalog.get(content_id) is not None

    def _remove_leftovers(self, volume_id: str) -> None:
        for backend in self.backends.values():
            _refuse_in_use(backend, volume_id)
            backend.remove(volume_id)

    def _take_back(self, backend: Backend, volume: Volume) -> None:
        """Give content its size again: what has no record must not be grown into."""
        try:
            backend.resize(volume)
        except OSError as error:
            self._log.warning(
                "Stays larger until the next start", volume=volume.volume_id, err=error
            )

    def _clear_away(self, backend: Backend, volume_id: str) -> None:
        try:
            backend.remove(volume_id)
        except (OSError, RpcError) as error:
            self._log.warning("Rubbish stays until the next start", volume=volume_id, err=error)


def _sharing(backends: Mapping[str, Backend]) -> dict[str, list[str]]:
    """Return, for each backend, those that keep their volumes on the same file system."""
    devices = {name: backend.folder.stat().st_dev for name, backend in backends.items()}
    return {
        name: [other for other, device in devices.items() if device == own]
        for name, own in devices.items()
    }


def _copy(backend: Backend, origin: Origin, volume: Volume) -> None:
    still: contextlib.AbstractContextManager[float | None] = contextlib.nullcontext()
    if origin.volume is not None:
        still = backend.held_still(origin.volume, with_others=False, loose=False)
    with still as deadline:
        backend.copy(origin.content_id, volume, deadline)


def _refuse_in_use(backend: Backend, volume_id: str) -> None:
    holder = backend.in_use(volume_id)
    if holder:
        raise RpcError(
            Code.FAILED_PRECONDITION,
            f"volume {volume_id} is {holder}: unpublish and unstage it first",
        )
