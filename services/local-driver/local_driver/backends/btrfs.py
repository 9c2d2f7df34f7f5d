"""Volumes as subvolumes of a btrfs: copied in constant time, whatever their size.

They are folders in every other way. The limit counts what a volume refers to, shared with
others or not, so a copy of a full volume is full too, as its pod expects. A snapshot of a
volume in use is of one instant by itself; only several volumes have no common one.
"""

import contextlib
import errno
import pathlib
from collections.abc import Iterator, Mapping, Sequence

from local_driver import filesystems, mounts, pool, steps, subvolumes
from local_driver.backends import directory
from local_driver.backends.backend import Site, UnavailableError
from local_driver.creation import Offer
from local_driver.volumes import AccessType, Volume

_MINIMUM = 1 << 20
_GRANULARITY = 4096


class BtrfsBackend(directory.DirectoryBackend):
    """Backend ``btrfs``."""

    def __init__(self, site: Site) -> None:
        self.folder = site.state / "btrfs"
        self.folder.mkdir(mode=0o700, exist_ok=True)
        if site.pool_size and mounts.containing(site.state).filesystem != "btrfs":
            pool.mount(site.state, self.folder, site.pool_size)
            self.folder.chmod(0o700)
        _require_counting(self.folder)
        self._reached = site.reached
        self.is_limiting = True
        self.copies_at_once = True
        self.offer = Offer(
            name="btrfs",
            access=frozenset({AccessType.MOUNT}),
            filesystems=("btrfs",),
            minimum={"btrfs": _MINIMUM},
            granularity=_GRANULARITY,
            maximum=1 << 62,
        )

    def create(self, volume: Volume) -> None:
        """Make an empty subvolume with its limit."""
        self.remove(volume.volume_id)
        subvolumes.create(self.folder, volume.volume_id, volume.capacity)
        self._path(volume.volume_id).chmod(directory.MODE)

    @contextlib.contextmanager
    def held_still(
        self, volume: Volume, *, with_others: bool, loose: bool
    ) -> Iterator[float | None]:
        """Do nothing: a copy is of one instant."""
        del volume, with_others, loose
        yield None

    def copy(self, source_id: str, volume: Volume, deadline: float | None) -> None:
        """Share the content in a new subvolume with a limit of its own."""
        del deadline
        self.remove(volume.volume_id)
        source = self._path(source_id)
        subvolumes.copy(source, self.folder, volume.volume_id, volume.capacity)
        self._reached(steps.Step.COPIED)

    def keep(self, source_id: str, snapshot_id: str, deadline: float | None) -> None:
        """Share the content in a read-only subvolume."""
        del deadline
        self.remove(snapshot_id)
        source = self._path(source_id)
        subvolumes.copy(source, self.folder, snapshot_id, 0, read_only=True)
        self._reached(steps.Step.COPIED)

    def usage(self, volume: Volume, path: pathlib.Path) -> filesystems.Usage:
        """Say how much of its limit a volume refers to, as of the last commit."""
        used = subvolumes.referenced(self._path(volume.volume_id))
        free = filesystems.usage(path).available_bytes
        left = max(0, min(volume.capacity - used, free))
        return filesystems.Usage(volume.capacity, used, left, 0, 0, 0)

    def remove(self, volume_id: str) -> None:
        """Remove the subvolume, and such as a pod has made in it."""
        path = self._path(volume_id)
        try:
            if subvolumes.is_one(path):
                subvolumes.remove(self.folder, volume_id)
                return
        except FileNotFoundError:
            return
        except OSError as error:
            if error.errno not in {errno.ENOTEMPTY, errno.EBUSY}:
                raise
            subvolumes.make_writable(path)
        directory.remove_tree(path)

    def sightings(self, volume_id: str, table: mounts.Table | None = None) -> list[mounts.Mount]:
        """Return the mounts of the subvolume and of folders in it, and mounts upon those."""
        tail = f"/{volume_id}"
        own = f"{self.folder}{tail}"
        return [
            mount
            for mount in (table or mounts.table()).matching(tail)
            if (mount.filesystem == "btrfs" and f"{tail}/" in f"{mount.root}/")
            or f"{mount.point}/".startswith(f"{own}/")
        ]

    def resize(self, volume: Volume) -> None:
        """Move the limit."""
        subvolumes.limit(self._path(volume.volume_id), volume.capacity)

    def adopt(self, volumes: Sequence[Volume]) -> Mapping[str, OSError]:
        """Set the limits again and miss what is not there."""
        return directory.adopted(volumes, self.resize)


def _require_counting(folder: pathlib.Path) -> None:
    """Have the btrfs at ``folder`` count what subvolumes refer to.

    Raises UnavailableError, and takes away what was mounted for nothing.
    """
    filesystem = mounts.containing(folder).filesystem
    if filesystem != "btrfs":
        folder.rmdir()
        raise UnavailableError(
            f"{folder.parent} is on {filesystem}: put it on a btrfs, or have one made with "
            "--btrfs-size"
        )
    try:
        subvolumes.enable_quota(folder)
    except OSError as error:
        pool.unmount(folder)
        raise UnavailableError(f"quota of the btrfs at {folder}: {error}") from error
