"""Volumes put at paths and taken away: the blocking half of the node service.

Nothing is remembered: where a volume is staged or published is asked of the kernel each time,
so a call after a crash or a restart finds what the earlier one left and goes on from there.
The whole list of mounts is read where something is in the way, or nothing less tells; on a node
with many pods that costs more than the mount itself.
"""

import os
import pathlib
import stat
from collections.abc import Collection
from dataclasses import dataclass

from bitts.core import logs
from bitts.rpc.codes import Code, RpcError

from local_driver import iolimits, mountflags, mounts, ownership, publishing, steps
from local_driver.backends.backend import Backend
from local_driver.volumes import AccessMode, AccessType, Capability, Volume

_BIND_ONLY = mountflags.MountFlags()


@dataclass(frozen=True, slots=True)
class Use:
    """A volume and the way it is to be used."""

    volume: Volume
    backend: Backend
    capability: Capability
    read_only: bool

    @property
    def is_block(self) -> bool:
        """Whether it is a raw device."""
        return self.capability.access is AccessType.BLOCK

    @property
    def flags(self) -> mountflags.MountFlags:
        """The mount options; raises RpcError INVALID_ARGUMENT."""
        return mountflags.parse(self.capability.mount_flags, read_only=self.read_only)


def stage(use: Use, path: pathlib.Path, reached: steps.Reached) -> None:
    """Mount a volume at its staging path, or attach its device. Doing it again is fine."""
    if use.is_block:
        use.backend.device(use.volume, read_only=use.read_only)
    else:
        flags = use.flags
        path.parent.mkdir(parents=True, exist_ok=True)
        path = _canonical(path)
        _make_target(path, "staging_target_path", is_file=False)  # mount(2) would follow a link
        if not _is_staged(use, path, flags):
            use.backend.show(use.volume, path, flags)
        reached(steps.Step.MOUNTED)
        _give_to_group(use, path)
    reached(steps.Step.STAGED)


def _is_staged(use: Use, path: pathlib.Path, flags: mountflags.MountFlags) -> bool:
    if not mounts.is_root(path):
        return False
    table = mounts.table()
    own = use.backend.sightings(use.volume.volume_id, table)
    top = table.at(path)
    if not publishing.is_staged(path, top, own, read_only=flags.is_read_only):
        return False
    if top is not None:
        publishing.require_options("staging_target_path", top, flags)
    return True


def unstage(
    backends: Collection[Backend], volume_id: str, path: pathlib.Path, reached: steps.Reached
) -> None:
    """Undo stage(), whichever backend has the volume; other mounts at the path are left alone."""
    _take_away(backends, volume_id, _canonical(path))
    for backend in backends:
        backend.release(volume_id)
    reached(steps.Step.UNSTAGED)


def publish(use: Use, staging: pathlib.Path, target: pathlib.Path, reached: steps.Reached) -> None:
    """Show a staged volume at its target. Doing it again is fine."""
    target, staging = _canonical(target), _canonical(staging)
    flags = use.flags
    if _is_published(use, staging, target, flags):
        _give_to_group(use, target)
        limit(use.backend, use.volume)
        return
    source = _source(use, staging)
    _give_to_group(use, source)
    _make_target(target, "target_path", is_file=use.is_block)
    reached(steps.Step.TARGET_MADE)
    # A device node is made read-only by its device: nobody asks the mount it is seen through.
    mounts.bind(source, target, _BIND_ONLY if use.is_block else flags)
    limit(use.backend, use.volume)
    reached(steps.Step.PUBLISHED)


def _is_published(
    use: Use, staging: pathlib.Path, target: pathlib.Path, flags: mountflags.MountFlags
) -> bool:
    mode = use.capability.mode
    if mode is not AccessMode.SINGLE_NODE_SINGLE_WRITER and not mounts.is_root(target):
        return False
    table = mounts.table()
    own = use.backend.sightings(use.volume.volume_id, table)
    top = table.at(target)
    read_only = flags.is_read_only and not use.is_block
    if not publishing.is_published(target, staging, top, own, mode, read_only=read_only):
        return False
    if top is not None and not use.is_block:
        publishing.require_options("target_path", top, flags)
    return True


def _give_to_group(use: Use, path: pathlib.Path) -> None:
    """Give a volume to the group it is asked for. One that is only read is left as it is."""
    group = use.capability.group
    if use.is_block or group is None or use.flags.is_read_only:
        return
    if ownership.give(path, group):
        logs.get("ownership").info("Volume given", volume=use.volume.volume_id, group=group)


def limit(backend: Backend, volume: Volume) -> None:
    """Have the kernel limit the I/O of pods that use a volume, where limits are set."""
    if volume.mutable:
        pods, groups, _ = _enforce(backend, volume, iolimits.index())
        _tell_limits(volume, pods, groups)


def renew_limits(backend: Backend, volume: Volume, found: iolimits.Index) -> None:
    """Do as limit() does where the kernel has other limits; tell only what had to be changed."""
    pods, groups, changed = _enforce(backend, volume, found)
    if changed:
        _tell_limits(volume, pods, groups)


def _enforce(backend: Backend, volume: Volume, found: iolimits.Index) -> tuple[int, int, int]:
    """Return how many pods use the volume, in how many groups limits hold, how many are new."""
    uids = iolimits.pods(mount.point for mount in backend.sightings(volume.volume_id))
    devices = backend.devices(volume.volume_id)
    groups, changed = iolimits.apply(volume.mutable, devices, uids, found)
    return len(uids), groups, changed


def _tell_limits(volume: Volume, pods: int, groups: int) -> None:
    logs.get("limits").info(
        "Limits of I/O",
        volume=volume.volume_id,
        limits=dict(volume.mutable),
        pods=pods,
        groups=groups,
    )


def _source(use: Use, staging: pathlib.Path) -> pathlib.Path:
    if use.is_block:
        return use.backend.device(use.volume, read_only=use.read_only)
    volume_id = use.volume.volume_id
    is_staged = mounts.is_root(staging) and (
        use.backend.is_at(volume_id, staging)
        or any(mount.point == str(staging) for mount in use.backend.sightings(volume_id))
    )
    if not is_staged:
        raise RpcError(
            Code.FAILED_PRECONDITION,
            f"staging_target_path: volume {volume_id} is not staged at {staging}",
        )
    return staging


def unpublish(
    backends: Collection[Backend], volume_id: str, target: pathlib.Path, reached: steps.Reached
) -> None:
    """Undo publish(), as unstage() does, and remove the target."""
    target = _canonical(target)
    _take_away(backends, volume_id, target)
    mounts.remove_target(target)
    reached(steps.Step.UNPUBLISHED)


def _take_away(backends: Collection[Backend], volume_id: str, path: pathlib.Path) -> None:
    while mounts.is_root(path) and any(one.is_at(volume_id, path) for one in backends):
        mounts.unmount(path)
    if not mounts.is_root(path):
        return
    table = mounts.table()
    for backend in backends:
        for mount in backend.sightings(volume_id, table):
            if mount.point == str(path):
                mounts.unmount(path)


def _canonical(path: pathlib.Path) -> pathlib.Path:
    """Return the path as mountinfo has it; a symbolic link at its very end is not followed."""
    return pathlib.Path(os.path.realpath(path.parent)) / path.name


def _make_target(target: pathlib.Path, field: str, *, is_file: bool) -> None:
    """Make what the mount stands upon; its parent is the caller's. Raises RpcError if taken."""
    kind = "file" if is_file else "folder"
    try:
        mode = target.lstat().st_mode
    except FileNotFoundError:
        try:
            target.touch(mode=0o600) if is_file else target.mkdir(mode=0o750)
        except FileNotFoundError:
            text = f"{field}: the folder of {target} is not there"
            raise RpcError(Code.FAILED_PRECONDITION, text) from None
        return
    if not (stat.S_ISREG(mode) if is_file else stat.S_ISDIR(mode)):
        raise RpcError(Code.FAILED_PRECONDITION, f"{field}: {target} exists and is no {kind}")
