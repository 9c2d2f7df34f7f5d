"""Volumes as folders of the node's file system: made in no time, and without root.

A folder grows beyond its size unless the file system has project quota; then the volume says
so in its context. There are no raw volumes. Showing a volume is a bind mount, which needs root.
"""

import os
import pathlib
import subprocess

from bitts.rpc.codes import Code, RpcError

from local_driver import mountflags, mounts, quotas
from local_driver.backends.backend import Site
from local_driver.creation import Offer
from local_driver.volumes import AccessType, Capability, Content, Volume

REMOVAL_TIMEOUT = 600.0
"""Seconds to remove a folder full of files in one call; the next call goes on with it."""

_MODE = 0o777
"""As with a fresh volume anywhere, the user of the pod is not known yet and must be able to
write. The parent folder keeps everybody else out."""


class DirectoryBackend:
    """Backend ``directory``."""

    needs_growing = False

    def __init__(self, site: Site) -> None:
        self.folder = site.state / "directory"
        self.folder.mkdir(mode=0o700, exist_ok=True)
        filesystem = mounts.containing(self.folder).filesystem
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
        path = self._path(volume.volume_id)
        try:
            path.mkdir()
        except FileExistsError:
            self.remove(volume.volume_id)
            path.mkdir()
        path.chmod(_MODE)
        if volume.is_limited:
            quotas.limit(path, volume.serial, volume.capacity)

    def remove(self, volume_id: str) -> None:
        """Remove the folder and all that is in it."""
        path = self._path(volume_id)
        project = quotas.project(path) if self.is_limiting else None
        try:
            path.rmdir()
        except FileNotFoundError:
            return
        except OSError:
            _remove_tree(path)
        if project is not None:
            quotas.lift(self.folder, project)

    def contents(self) -> set[str]:
        """Return the IDs of all folders."""
        return set(os.listdir(self.folder))

    def sightings(self, volume_id: str) -> list[mounts.Mount]:
        """Return the bind mounts of the folder and of folders in it, and mounts upon those."""
        tail = f"/{self.folder.name}/{volume_id}"
        return [
            mount
            for mount in mounts.matching(tail)
            if any(
                place.endswith(tail) or f"{tail}/" in place for place in (mount.root, mount.point)
            )
        ]

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

    def grow(self, volume: Volume) -> None:
        """Do nothing: a folder has no size of its own."""

    def release(self, volume_id: str) -> None:
        """Do nothing: there are no devices."""

    def _path(self, volume_id: str) -> pathlib.Path:
        return self.folder / volume_id


def _remove_tree(path: pathlib.Path) -> None:
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
