"""A btrfs of the driver's own, in an image file, for nodes whose disk has another file system.

It is mounted in the state directory when the driver starts and taken away when it ends and
nobody uses it; pods' mounts hold it otherwise, and the next driver finds it. Blocks.
"""

import os
import pathlib
import time

from local_driver import filesystems, loops, mountflags, mounts

_GOING, _LOOK = 1.0, 0.01
"""Seconds in which a device without users should vanish, and between two looks at it."""

_IMAGE, _PARTIAL = "btrfs.img", "btrfs.partial"


def mount(state: pathlib.Path, folder: pathlib.Path, size: int) -> None:
    """Have a btrfs of ``size`` bytes at ``folder``, made now if there is none; raises OSError.

    One that exists keeps its size.
    """
    if mounts.table().at(pathlib.Path(os.path.realpath(folder))) is not None:
        return
    image = state / _IMAGE
    if not image.exists():
        _make(state, image, size)
    found = loops.find(image)
    holding = (
        loops.held(found[0], image)
        if found
        else loops.attached(image, read_only=False, autoclear=True)
    )
    with holding as attached:
        loop = attached or found[0]
        mounts.mount(loop.path, folder, "btrfs", mountflags.parse(["noatime"]))


def _make(state: pathlib.Path, image: pathlib.Path, size: int) -> None:
    fresh = state / _PARTIAL
    fresh.unlink(missing_ok=True)
    handle = os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.ftruncate(handle, size)
    finally:
        os.close(handle)
    filesystems.make("btrfs", fresh)
    fresh.rename(image)
    filesystems.sync(state)


def unmount(folder: pathlib.Path) -> bool:
    """Take the file system away unless somebody uses it through this mount.

    Its device goes by itself, for which we wait a little: other mounts may well hold it.
    """
    try:
        mounts.unmount(folder)
    except OSError:
        return False
    patience = time.monotonic() + _GOING
    while loops.find(folder.parent / _IMAGE) and time.monotonic() < patience:
        time.sleep(_LOOK)
    return True
