"""Volumes as sparse image files: ext4 or xfs over a loop device, or the raw device itself.

A volume is exactly as large as it says, on any file system below, and takes room only as it
is written. Making one is making an empty file; it is formatted when it is first staged. That
happens beside the image, which the formatted one then replaces in one step, so that a crash
leaves an image either blank or whole.
"""

import contextlib
import dataclasses
import errno
import os
import pathlib
import time
from collections.abc import Iterator, Mapping, Sequence

from bitts.core import logs
from bitts.csi import v1
from bitts.rpc.codes import Code, RpcError

from local_driver import copying, filesystems, growing, loopmounts, loops, mountflags, mounts, steps
from local_driver.backends.backend import Finding, Site
from local_driver.backends.directory import adopted, missing
from local_driver.creation import Offer
from local_driver.volumes import AccessType, Capability, Content, Volume

MIB = 1 << 20
_MINIMUM = {"ext4": 4 * MIB, "xfs": 300 * MIB, "": 4096}
_MAXIMUM = (16 << 40) - 4096
"""The largest file that ext4 holds."""

_GOING, _LOOK = 1.0, 0.005
"""Seconds in which a device without users should vanish, and between two looks at it."""

_SUFFIX = ".img"
_FORMATTING, _GROWING = ".formatting", ".growing"
"""What an image is called while it is made beside the one that it will replace."""


class ImageBackend:
    """Backend ``image``."""

    is_limiting = True
    needs_growing = True
    stops_writers = True
    has_devices = True
    settles_late = False

    def __init__(self, site: Site) -> None:
        self.folder = site.state / "image"
        self.folder.mkdir(mode=0o700, exist_ok=True)
        self._reached = site.reached
        for suffix in (_FORMATTING, _GROWING):
            for path in self.folder.glob(f"*{suffix}"):
                path.unlink()
        self.copies_at_once = copying.is_instant(self.folder)
        self.offer = Offer(
            name="image",
            access=frozenset(AccessType),
            filesystems=filesystems.installed(),
            minimum=_MINIMUM,
            granularity=4096,
            maximum=_MAXIMUM,
        )

    def create(self, volume: Volume) -> None:
        """Make an empty sparse file."""
        path = self._path(volume.volume_id)
        try:
            _make_sparse(path, volume.capacity)
        except FileExistsError:
            self.remove(volume.volume_id)
            _make_sparse(path, volume.capacity)

    def settle(self, serial: int) -> None:
        """Do nothing: each image is flushed when it is made."""

    @contextlib.contextmanager
    def held_still(
        self, volume: Volume, *, with_others: bool, loose: bool
    ) -> Iterator[float | None]:
        """Freeze a mounted file system; have a raw device's writes in the image.

        A raw device's writers cannot be stopped, so it must be copied at once, and alone.
        """
        del loose
        found = [loop for loop in loops.find(self._path(volume.volume_id)) if not loop.is_read_only]
        mounted = next(filter(None, map(loopmounts.filesystem, found)), None)
        if mounted is not None and "ro" not in mounted.super_options:
            with copying.frozen(pathlib.Path(mounted.point)) as deadline:
                self._reached(steps.Step.FROZEN)
                yield deadline
            return
        if found and mounted is None:
            in_use = any(not loop.is_autoclear for loop in found)  # others are on their way out
            if in_use and (with_others or not self.copies_at_once):
                raise RpcError(
                    Code.FAILED_PRECONDITION,
                    f"volume {volume.volume_id} is in use as a raw device, whose writers cannot "
                    "be stopped: end its pods first",
                )
            for loop in found:
                copying.flush_device(loop.path)
        yield None

    def copy(self, source_id: str, volume: Volume, deadline: float | None) -> None:
        """Copy the image into a new one of the volume's size."""
        self._copy(source_id, volume.volume_id, volume.capacity, deadline)

    def keep(self, source_id: str, snapshot_id: str, deadline: float | None) -> None:
        """Copy the image into a new one of its size."""
        size = self._path(source_id).stat().st_size
        self._copy(source_id, snapshot_id, size, deadline)

    def _copy(self, source_id: str, target_id: str, size: int, deadline: float | None) -> None:
        self.remove(target_id)
        source, target = self._path(source_id), self._path(target_id)
        copying.copy_file(source, target, size, deadline=deadline)
        self._reached(steps.Step.COPIED)

    def is_written(self, volume_id: str) -> bool:
        """Whether there is a device that is not read-only."""
        found = [loop for loop in loops.find(self._path(volume_id)) if not loop.is_read_only]
        return any(not loop.is_autoclear for loop in found) or bool(loopmounts.sightings(found))

    def usage(self, volume: Volume, path: pathlib.Path) -> filesystems.Usage:
        """Ask the volume's own file system."""
        del volume
        return filesystems.usage(path)

    def findings(self, volume: Volume, *, on_node: bool) -> list[Finding]:
        """Miss an image, or a part of it; ask the kernel for a file system's errors."""
        path = self._path(volume.volume_id)
        if not path.is_file():
            return [missing(path)]
        found, size = [], path.stat().st_size
        if size < volume.capacity:
            text = f"{path} has {size} bytes of {volume.capacity}"
            found.append(Finding(v1.VolumeHealthErrorType.DATA_LOSS, "ImageTruncated", text))
        for loop in loops.find(path) if on_node else []:
            errors = filesystems.errors(volume.filesystem, loop.path.name)
            if errors:
                text = f"{volume.filesystem} on {loop.path} has met {errors} errors: see dmesg"
                kind = v1.VolumeHealthErrorType.DEGRADED
                found.append(Finding(kind, "FilesystemErrors", text))
        return found

    def devices(self, volume_id: str) -> list[str]:
        """Return the loop devices."""
        found = loops.find(self._path(volume_id))
        return [f"{os.major(loop.device)}:{os.minor(loop.device)}" for loop in found]

    def remove(self, volume_id: str) -> None:
        """Remove the file."""
        self._path(volume_id).unlink(missing_ok=True)

    def contents(self) -> set[str]:
        """Return the IDs of all images, snapshots' included."""
        return {
            name.removesuffix(_SUFFIX) for name in os.listdir(self.folder) if name.endswith(_SUFFIX)
        }

    def sightings(self, volume_id: str, table: mounts.Table | None = None) -> list[mounts.Mount]:
        """Return the mounts of the file system, and of the device nodes, that show the image."""
        return loopmounts.sightings(loops.find(self._path(volume_id)), table)

    def is_at(self, volume_id: str, path: pathlib.Path) -> bool:
        """Say no: what a device shows, only the list of mounts tells."""
        del volume_id, path
        return False

    def in_use(self, volume_id: str) -> str:
        """Say where the image is mounted or attached."""
        found = loops.find(self._path(volume_id))
        if not found:
            return ""
        seen = loopmounts.sightings(found)
        return f"mounted at {seen[0].point}" if seen else f"attached to {found[0].path}"

    def prepare(self, volume: Volume, capability: Capability) -> Content:
        """Format an image that has never been used, where a file system is wanted."""
        if capability.access is AccessType.BLOCK:
            return Content.RAW if volume.content is Content.BLANK else volume.content
        if volume.content is Content.BLANK:
            self._format(volume)
            return Content(volume.filesystem)
        if volume.content is Content.RAW:
            raise RpcError(
                Code.FAILED_PRECONDITION,
                f"volume_capability: volume {volume.volume_id} has been used as a raw device; "
                "mounting it would mean to format what was written there",
            )
        return volume.content

    def show(self, volume: Volume, path: pathlib.Path, flags: mountflags.MountFlags) -> None:
        """Mount the image's file system at ``path``, and have it fill the image."""
        is_online = growing.is_online(volume.filesystem)
        if not flags.is_read_only and not is_online:
            self._grow_idle(volume)
        with self._loop(volume, read_only=flags.is_read_only, autoclear=True) as loop:
            self._reached(steps.Step.LOOP_ATTACHED)
            mounts.mount(loop.path, path, volume.filesystem, _told_apart(volume, flags))
            if not flags.is_read_only and is_online and self._can_grow(volume):
                growing.grow(volume.filesystem, loop.path, path)

    def _grow_idle(self, volume: Volume) -> None:
        """Grow an ext4 that nobody uses, on a copy that then replaces it.

        resize2fs moves tables about: cut off, it leaves what may be beyond repair.
        """
        path = self._path(volume.volume_id)
        if loops.find(path) or not self._can_grow(volume, is_copied=not self.copies_at_once):
            return
        fresh = path.with_suffix(_GROWING)
        fresh.unlink(missing_ok=True)
        copying.copy_file(path, fresh, volume.capacity)
        with self._replacing(path, fresh):
            growing.grow_idle(fresh)
            filesystems.sync(fresh)
            self._reached(steps.Step.FILESYSTEM_GROWN)

    def device(self, volume: Volume, *, read_only: bool) -> pathlib.Path:
        """Return the loop device, which stays attached until release()."""
        with self._loop(volume, read_only=read_only, autoclear=False) as loop:
            self._reached(steps.Step.LOOP_ATTACHED)
            return loop.path

    def resize(self, volume: Volume) -> None:
        """Give the file the volume's size; devices of it keep theirs until grow()."""
        path = self._path(volume.volume_id)
        if path.stat().st_size != volume.capacity:
            os.truncate(path, volume.capacity)
            filesystems.sync(path)

    def adopt(self, volumes: Sequence[Volume]) -> Mapping[str, OSError]:
        """Set the images' sizes again, miss what is not there, thaw what was left frozen."""
        loopmounts.thaw({f"{volume.volume_id}{_SUFFIX}" for volume in volumes})
        return adopted(volumes, self.resize)

    def grow(self, volume: Volume) -> None:
        """Resize the devices that show the image, and a mounted file system to fill its device."""
        for loop in loops.find(self._path(volume.volume_id)):
            loops.resize(loop)
            self._reached(steps.Step.DEVICE_RESIZED)
            mount = loopmounts.filesystem(loop)
            if mount is not None and self._shortfall(volume):
                if not self._can_grow(volume):
                    text = f"too little is left on the disk to grow {volume.filesystem} in"
                    raise OSError(errno.ENOSPC, text)
                growing.grow(volume.filesystem, loop.path, pathlib.Path(mount.point))
                self._reached(steps.Step.FILESYSTEM_GROWN)

    def _shortfall(self, volume: Volume) -> int:
        return growing.shortfall(volume.filesystem, self._path(volume.volume_id))

    def _can_grow(self, volume: Volume, *, is_copied: bool = False) -> bool:
        """Whether its file system is smaller than the volume, and can be grown without harm."""
        added = self._shortfall(volume)
        free = filesystems.usage(self.folder).available_bytes
        if is_copied:
            free -= self._path(volume.volume_id).stat().st_blocks * 512
        if added and not growing.is_roomy(added, free):
            logs.get("storage").warning(
                "The file system stays as it is: too little is left on the disk to grow it in",
                volume=volume.volume_id,
                free=free,
            )
            return False
        return added > 0

    def release(self, volume_id: str) -> None:
        """Detach the devices that no mount shows any longer, and see them go.

        While a container starts anywhere on the node, its copy of the mount table holds a file
        system for a moment longer. One that stays held is no reason to fail: it is detached
        with its last user, and until then the volume is not deleted.
        """
        image = self._path(volume_id)
        found = loops.find(image)
        shown = loopmounts.sightings(found)
        idle = [loop for loop in found if not any(loopmounts.shows(mount, loop) for mount in shown)]
        for loop in idle:
            if not loop.is_autoclear:
                loops.detach(loop)
        going = {loop.number for loop in idle}
        patience = time.monotonic() + _GOING
        while any(loop.number in going for loop in loops.find(image)):
            if time.monotonic() > patience:
                return
            time.sleep(_LOOK)

    @contextlib.contextmanager
    def _loop(self, volume: Volume, *, read_only: bool, autoclear: bool) -> Iterator[loops.Loop]:
        """Hold a device of the image: the one in use already, else a new one.

        Two devices of one image know nothing of each other's caches, so a file system is never
        mounted from a second one. Raw readers get a read-only device beside the writers'.
        """
        image = self._path(volume.volume_id)
        found = loops.find(image)
        for loop in found:
            if loop.is_autoclear != autoclear or (autoclear and loop.is_read_only != read_only):
                raise RpcError(
                    Code.FAILED_PRECONDITION,
                    f"volume {volume.volume_id} is in use in another way, through {loop.path}: "
                    "unpublish and unstage it first",
                )
        same = [loop for loop in found if loop.is_read_only == read_only]
        if same:
            with loops.held(same[0], image):
                yield same[0]
        else:
            with loops.attached(image, read_only=read_only, autoclear=autoclear) as loop:
                yield loop

    def _format(self, volume: Volume) -> None:
        path = self._path(volume.volume_id)
        holder = self.in_use(volume.volume_id)
        if holder:
            raise RpcError(
                Code.FAILED_PRECONDITION, f"volume {volume.volume_id} is blank, yet {holder}"
            )
        fresh = path.with_suffix(_FORMATTING)
        fresh.unlink(missing_ok=True)
        _make_sparse(fresh, volume.capacity)
        with self._replacing(path, fresh):
            filesystems.make(volume.filesystem, fresh)
            self._reached(steps.Step.FORMATTED)

    @contextlib.contextmanager
    def _replacing(self, path: pathlib.Path, fresh: pathlib.Path) -> Iterator[None]:
        """Have ``fresh`` take an image's place after the block, or go if that fails."""
        try:
            yield
            fresh.rename(path)
        except BaseException:
            fresh.unlink(missing_ok=True)
            raise
        filesystems.sync(self.folder)
        self._reached(steps.Step.IMAGE_REPLACED)

    def _path(self, volume_id: str) -> pathlib.Path:
        return self.folder / f"{volume_id}{_SUFFIX}"


def _told_apart(volume: Volume, flags: mountflags.MountFlags) -> mountflags.MountFlags:
    """Let a copy of an xfs be mounted beside its original, which has the same UUID."""
    if volume.filesystem != "xfs":
        return flags
    return dataclasses.replace(flags, data=",".join(filter(None, (flags.data, "nouuid"))))


def _make_sparse(path: pathlib.Path, size: int) -> None:
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.ftruncate(handle, size)
    except OSError:
        path.unlink()
        raise
    finally:
        os.close(handle)
