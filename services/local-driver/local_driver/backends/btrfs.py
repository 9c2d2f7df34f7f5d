"""Volumes as subvolumes of a btrfs: copied in constant time, whatever their size.

They are folders in every other way. The limit counts what a volume refers to, shared with
others or not, so a copy of a full volume is full too, as its pod expects. A snapshot of a
volume in use is of one instant by itself; only several volumes have no common one. Subvolumes
reach the disk by a commit of the whole file system, for which the making of one does not wait.
"""

import contextlib
import errno
import pathlib
import stat
from collections.abc import Iterator, Mapping, Sequence

from bitts.core import logs

from local_driver import copying, filesystems, mounts, pool, settling, steps, subvolumes
from local_driver.backends import directory
from local_driver.backends.backend import Site, UnavailableError
from local_driver.creation import Offer
from local_driver.volumes import AccessType, Volume

_MINIMUM = 1 << 20
_GRANULARITY = 4096
_REMOVED = 4096
"""Removals that are remembered until a commit, before one is waited for."""

_BARE_MODE = 0o755
"""What a subvolume has from its making until it is given a mode."""


class BtrfsBackend(directory.DirectoryBackend):
    """Backend ``btrfs``."""

    settles_late = True

    def __init__(self, site: Site) -> None:
        self.folder = site.state / "btrfs"
        self.folder.mkdir(mode=0o700, exist_ok=True)
        if site.pool_size and mounts.containing(site.state).filesystem != "btrfs":
            pool.mount(site.state, self.folder, site.pool_size)
            self.folder.chmod(0o700)
        _require_counting(self.folder)
        self._mark = settling.Mark(site.state / "btrfs.settled")
        self._reached = site.reached
        self._removed: set[str] = set()
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
        """Make an empty subvolume with its limit.

        One of its name may still be on the disk: without a commit first, lost power would bring
        that back in its place.
        """
        self.remove(volume.volume_id)
        if volume.volume_id in self._removed:
            self._commit()
        subvolumes.create(self.folder, volume.volume_id, volume.capacity)
        subvolumes.deepen(self._path(volume.volume_id))
        self._path(volume.volume_id).chmod(directory.MODE)  # the last, by which adopt() goes

    def settle(self, serial: int) -> None:
        """Have the file system commit."""
        self._commit()
        self._mark.write(serial)

    def _commit(self) -> None:
        removed = set(self._removed)
        copying.sync_filesystem(self.folder)
        self._removed -= removed

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
                self._note_removed(volume_id)
                return
        except FileNotFoundError:
            return
        except OSError as error:
            if error.errno not in {errno.ENOTEMPTY, errno.EBUSY}:
                raise
            subvolumes.make_writable(path)
        directory.remove_tree(path)
        self._note_removed(volume_id)

    def _note_removed(self, volume_id: str) -> None:
        self._removed.add(volume_id)
        if len(self._removed) >= _REMOVED:
            self._commit()

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
        """Set the limits again, make anew what was lost before a commit, miss the rest."""
        settled = self._mark.read()

        def adopt(volume: Volume) -> None:
            if volume.serial > settled and not volume.source:
                self._restore(volume)
            self.resize(volume)

        problems = directory.adopted(volumes, adopt)
        newest = max((volume.serial for volume in volumes), default=0)
        self._commit()  # also what the last run removed
        if newest != settled:  # a lower one is safe, and fits the serials that are given next
            self._mark.write(newest)
        return problems

    def _restore(self, volume: Volume) -> None:
        """Finish the making of a volume that lost power may have cut off."""
        path = self._path(volume.volume_id)
        if not path.exists():
            self.create(volume)
            logs.get("storage").warning(
                "Made an empty volume anew: it was lost before anything in it was flushed",
                volume=volume.volume_id,
            )
        elif stat.S_IMODE(path.stat().st_mode) == _BARE_MODE and not any(path.iterdir()):
            path.chmod(directory.MODE)


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
