"""What the last run left, found again: records, content, and how they agree. Blocks."""

import asyncio
import pathlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from bitts.core import logs, process

from local_driver import (
    backends,
    catalog,
    documents,
    filesystems,
    metadata,
    pool,
    quotas,
    steps,
)
from local_driver.archive import Archive
from local_driver.backends.backend import Backend, Site
from local_driver.options import Options
from local_driver.shelf import Shelf
from local_driver.snapshots import Group, Snapshot
from local_driver.storage import Storage
from local_driver.volumes import Volume

FOLDERS = ("volumes", "snapshots", "groups")
"""Where the records lie in the state directory."""


@dataclass(frozen=True, slots=True)
class Opened:
    """Everything that is stored, ready for use; ``close`` when it is not needed any more."""

    storage: Storage
    archive: Archive
    stores: tuple["metadata.Store[Volume]", "metadata.Store[Snapshot]", "metadata.Store[Group]"]

    async def close(self) -> None:
        """Write what waits; take the driver's own file system away if nobody uses it."""
        for store in self.stores:
            await store.close()
        await self.storage.settle()
        await asyncio.to_thread(self.release)

    def release(self) -> None:
        """Do the second half of close() alone, where nothing was written. Blocks."""
        btrfs = self.storage.backends.get("btrfs")
        if btrfs is not None:
            pool.unmount(btrfs.folder)


def opened(options: Options, reached: steps.Reached) -> Opened:
    """Read the state directory; raises ExitError when it is not this node's, OSError."""
    state = pathlib.Path(options.storage.state)
    for name in FOLDERS:
        (state / name).mkdir(mode=0o700, exist_ok=True)
    volumes = metadata.Store(state / "volumes", documents.VOLUMES, reached)
    snapshots = metadata.Store(state / "snapshots", documents.SNAPSHOTS, reached)
    groups = metadata.Store(state / "groups", documents.GROUPS, reached)
    found = volumes.load()
    kept, kept_groups = snapshots.load(), groups.load()
    damaged = {**kept.damaged, **kept_groups.damaged}
    _tell_damage({**found.damaged, **damaged})
    shelf = Shelf(kept.records, kept_groups.records, damaged)
    held = {one.backend for one in found.records} | {one.backend for one in shelf.snapshots}
    nodes = {one.node for one in found.records} | {one.node for one in shelf.snapshots}
    _require_own(options, nodes)
    try:
        chosen = backends.opened(
            options.storage.backends, Site(state, options.storage.pool_size, reached)
        )
    except backends.UnavailableError as error:
        raise process.ExitError(1, f"--backends: {error}") from error
    except filesystems.FormatError as error:
        raise process.ExitError(1, f"--btrfs-size: {error}") from error
    if (options.storage.default_backend or next(iter(chosen))) not in chosen:
        raise process.ExitError(
            1, f"--default-backend {options.storage.default_backend} does not work here"
        )
    for name in sorted(held - set(chosen)):
        logs.get("storage").warning(
            "Volumes are out of service: add their backend to --backends", backend=name
        )
    known = catalog.Catalog(found.records, found.damaged)
    known.reserve(max(found.reserved, _projects(chosen, found.damaged)))
    shelf.snapshots.reserve(max(kept.reserved, kept_groups.reserved))
    shelf.groups.reserve(kept_groups.reserved)
    storage = Storage(
        chosen,
        volumes,
        known,
        limit=options.storage.capacity,
        shelf=shelf,
        reached=reached,
    )
    storage.adopt()
    archive = Archive(chosen, shelf, snapshots, groups, reached)
    return Opened(storage, archive, (volumes, snapshots, groups))


def _projects(chosen: Mapping[str, Backend], damaged: Iterable[str]) -> int:
    """Return the greatest number that is the quota project of a volume whose record is damaged.

    A new volume of that number would share the limit with it.
    """
    directory = chosen.get("directory")
    if directory is None or not directory.is_limiting:
        return 0
    return max((quotas.serial(directory.folder / volume_id) for volume_id in damaged), default=0)


def _tell_damage(damaged: dict[str, str]) -> None:
    for record_id, problem in damaged.items():
        logs.get("storage").error(
            "A record cannot be read, what it describes is out of service",
            id=record_id,
            err=problem,
        )


def _require_own(options: Options, nodes: set[str]) -> None:
    strangers = sorted(nodes - {options.node_id})
    if strangers:
        raise process.ExitError(
            1,
            f"--state-dir {options.storage.state} holds volumes of node {strangers[0]!r}, this "
            f"is {options.node_id!r}: their PersistentVolumes point there; correct --node-id",
        )
