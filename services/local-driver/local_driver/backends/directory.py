"""Volumes as folders of the node's file system: made in no time, and without root.

A folder grows beyond its size unless the file system has project quota; then the volume says
so in its context. There are no raw volumes. Showing a volume is a bind mount, which needs root.
"""

import contextlib
import os
import pathlib
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence

from bitts.csi import v1
from bitts.rpc.codes import Code, RpcError

from local_driver import copying, filesystems, mountflags, mounts, names, quotas, steps
from local_driver.backends.backend import Finding, Site
from local_driver.creation import Offer
from local_driver.volumes import AccessType, Capability, Content, Volume

REMOVAL_TIMEOUT = 600.0
"""Seconds to remove a folder full of files in one call; the next call goes on with it."""

MODE = 0o777
"""As with a fresh volume anywhere, the user of the pod is not known yet and must be able to
write. The parent folder keeps everybody else out."""


class DirectoryBackend:
    """Backend ``directory``."""

    needs_growing = False
    stops_writers = False
    has_devices = False
    settles_late = False

    def __init__(self, site: Site) -> None:
        self.folder = site.state / "directory"
        self.folder.mkdir(mode=0o700, exist_ok=True)
        filesystem = mounts.containing(self.folder).filesystem
        self.copies_at_once = False
        self._reached = site.reached
        self.is_limiting = quotas.are_enforced(self.folder)
        self.offer = Offer(
            name="directory",
            access=frozenset({AccessType.MOUNT}),
            filesystems=(filesystem,),
            minimum={filesystem: 1},
            granularity=1,
            maximum=1 << 62,
        )

    def create(self, volume: Volume) -> None:
        """Make an empty folder."""
        path = self._make(volume.volume_id)
        path.chmod(MODE)
        if volume.is_limited:
            quotas.limit(path, volume.serial, volume.capacity)

    def settle(self, serial: int) -> None:
        """Do nothing: each folder is flushed when it is made."""

    def _make(self, content_id: str) -> pathlib.Path:
        path = self._path(content_id)
        try:
            path.mkdir()
        except FileExistsError:
            self.remove(content_id)
            path.mkdir()
        return path

    @contextlib.contextmanager
    def held_still(
        self, volume: Volume, *, with_others: bool, loose: bool
    ) -> Iterator[float | None]:
        """Refuse while somebody may write, unless that is accepted: a folder cannot be frozen."""
        del with_others
        if not loose and self.is_written(volume.volume_id):
            raise RpcError(
                Code.FAILED_PRECONDITION,
                f"volume {volume.volume_id} is in use, and a folder cannot be copied at one "
                "instant: end its pods first, use backend btrfs or image, or accept a copy made "
                f"file by file with parameter {names.IN_USE_PARAMETER}: copy",
            )
        yield None

    def copy(self, source_id: str, volume: Volume, deadline: float | None) -> None:
        """Copy the folder, sharing blocks where the file system can."""
        del deadline
        self.create(volume)
        copying.copy_tree(self._path(source_id), self._path(volume.volume_id))
        self._reached(steps.Step.COPIED)

    def keep(self, source_id: str, snapshot_id: str, deadline: float | None) -> None:
        """Copy the folder, sharing blocks where the file system can."""
        del deadline
        copying.copy_tree(self._path(source_id), self._make(snapshot_id))
        self._reached(steps.Step.COPIED)

    def is_written(self, volume_id: str) -> bool:
        """Whether there is a mount that is not read-only."""
        return not all(mount.is_read_only for mount in self.sightings(volume_id))

    def usage(self, volume: Volume, path: pathlib.Path) -> filesystems.Usage:
        """Ask the file system; with project quota it answers for the folder."""
        del volume
        return filesystems.usage(path)

    def findings(self, volume: Volume, *, on_node: bool) -> list[Finding]:
        """Miss a folder that is not there."""
        del on_node
        path = self._path(volume.volume_id)
        return [] if path.is_dir() else [missing(path)]

    def devices(self, volume_id: str) -> list[str]:
        """Return nothing: folders have no devices of their own."""
        del volume_id
        return []

    def remove(self, volume_id: str) -> None:
        """Remove the folder and all that is in it."""
        path = self._path(volume_id)
        project = quotas.project(path) if self.is_limiting else None
        try:
            path.rmdir()
        except FileNotFoundError:
            return
        except OSError:
            remove_tree(path)
        if project is not None:
            quotas.lift(self.folder, project)

    def contents(self) -> set[str]:
        """Return the IDs of all folders."""
        return set(os.listdir(self.folder))

    def sightings(self, volume_id: str, table: mounts.Table | None = None) -> list[mounts.Mount]:
        """Return the bind mounts of the folder and of folders in it, and mounts upon those."""
        tail = f"/{self.folder.name}/{volume_id}"
        return [
            mount
            for mount in (table or mounts.table()).matching(tail)
            if any(
                place.endswith(tail) or f"{tail}/" in place for place in (mount.root, mount.point)
            )
        ]

    def is_at(self, volume_id: str, path: pathlib.Path) -> bool:
        """Whether ``path`` leads to the folder itself."""
        try:
            return os.path.samestat(path.lstat(), self._path(volume_id).lstat())
        except OSError:
            return False

    def in_use(self, volume_id: str) -> str:
        """Say where the folder is mounted."""
        found = self.sightings(volume_id)
        return f"mounted at {found[0].point}" if found else ""

    def prepare(self, volume: Volume, _capability: Capability) -> Content:
        """Do nothing: a folder is ready as it is."""
        return volume.content

    def show(self, volume: Volume, path: pathlib.Path, flags: mountflags.MountFlags) -> None:
        """Bind the folder at ``path``."""
        mountflags.require_generic(flags, self.offer.name)
        mounts.bind(self._path(volume.volume_id), path, flags)

    def device(self, volume: Volume, *, read_only: bool) -> pathlib.Path:
        """Refuse: a folder is no block device."""
        del read_only
        raise RpcError(
            Code.FAILED_PRECONDITION,
            f"volume {volume.volume_id}: backend directory has no raw volumes",
        )

    def resize(self, volume: Volume) -> None:
        """Move the quota, where there is one."""
        if volume.is_limited:
            quotas.resize(self._path(volume.volume_id), volume.capacity)

    def adopt(self, volumes: Sequence[Volume]) -> Mapping[str, OSError]:
        """Set the quotas again and miss what is not there."""
        return adopted(volumes, self._adopt)

    def _adopt(self, volume: Volume) -> None:
        self._path(volume.volume_id).stat()
        self.resize(volume)

    def grow(self, volume: Volume) -> None:
        """Do nothing: a folder has no size of its own."""

    def release(self, volume_id: str) -> None:
        """Do nothing: there are no devices."""

    def _path(self, volume_id: str) -> pathlib.Path:
        return self.folder / volume_id


def missing(path: pathlib.Path) -> Finding:
    """Return the finding that content is gone."""
    return Finding(
        v1.VolumeHealthErrorType.DATA_LOSS, "ContentMissing", f"{path} is not there any more"
    )


def adopted(volumes: Sequence[Volume], adopt: Callable[[Volume], None]) -> dict[str, OSError]:
    """Call ``adopt`` for each volume and collect what is wrong, by volume ID."""
    problems: dict[str, OSError] = {}
    for volume in volumes:
        try:
            adopt(volume)
        except OSError as error:
            problems[volume.volume_id] = error
    return problems


def remove_tree(path: pathlib.Path) -> None:
    """Remove a tree of any depth; a program does it, as recursion here would find its limit."""
    try:
        done = subprocess.run(
            ["rm", "-rf", "--", str(path)],
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=REMOVAL_TIMEOUT,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired as error:
        raise OSError(f"remove {path}: not done after {REMOVAL_TIMEOUT:.0f} s") from error
    if done.returncode != 0:
        raise OSError(f"remove {path}: {done.stderr.strip()[-500:]}")
