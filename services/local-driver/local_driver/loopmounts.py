"""Which mounts show a loop device: those of its file system, and bind mounts of its node.

All functions block; call them in a thread.
"""

import os
import pathlib
from collections.abc import Collection, Sequence

from local_driver import copying, loops, mounts


def sightings(found: Sequence[loops.Loop], table: mounts.Table | None = None) -> list[mounts.Mount]:
    """Return every mount that shows one of the devices, now or in ``table``."""
    if not found:
        return []
    mounted = (table or mounts.table()).matching("loop")
    return [mount for mount in mounted if any(shows(mount, one) for one in found)]


def shows(mount: mounts.Mount, loop: loops.Loop) -> bool:
    """Whether it is the loop's file system, or the device node bound for a raw volume."""
    return is_filesystem(mount, loop) or (
        mount.filesystem in {"devtmpfs", "tmpfs"} and mount.root == f"/loop{loop.number}"
    )


def is_filesystem(mount: mounts.Mount, loop: loops.Loop) -> bool:
    """Whether it is the loop's file system."""
    return mount.device == f"{os.major(loop.device)}:{os.minor(loop.device)}"


def filesystem(loop: loops.Loop) -> mounts.Mount | None:
    """Return a mount of the loop's file system, None where there is none."""
    return next((mount for mount in sightings([loop]) if is_filesystem(mount, loop)), None)


def thaw(images: Collection[str]) -> None:
    """End the freezing of file systems in images of these names, that a crash left."""
    bound = {number for number, name in loops.bound() if name in images}
    for mount in mounts.table().matching("/dev/loop") if bound else []:
        name = pathlib.PurePath(mount.source).name.removeprefix("loop")
        if name.isdecimal() and int(name) in bound:
            copying.thaw(pathlib.Path(mount.point))
