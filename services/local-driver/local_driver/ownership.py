"""A volume given to a group: what the kubelet does for fsGroup when a driver does not.

With the capability VOLUME_MOUNT_GROUP the kubelet hands over the group and leaves the rest to
the driver (CSI spec, VolumeCapability.MountVolume.volume_mount_group). None of our file systems
has a mount option for it, so owners are changed. The volume's root comes last and tells that
all below is done: a walk that a crash cut off is made again, and one that was made is not.

Pods may be at work in the volume meanwhile, so nothing is reached through a path that they
could turn elsewhere: the kernel resolves each beneath the root, without links, on this mount
(openat2(2), Linux 5.6). All functions block; call them in a thread.
"""

import contextlib
import ctypes
import errno
import os
import pathlib
import stat
from collections.abc import Iterator

_SYS_OPENAT2 = 437
_RESOLVE_NO_XDEV, _RESOLVE_NO_SYMLINKS, _RESOLVE_BENEATH = 1, 4, 8
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_ITSELF = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC

_ELSEWHERE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EXDEV)
"""Errors of what vanished or was replaced meanwhile, or is another file system's."""

_FOLDER_BITS = stat.S_ISGID | stat.S_IRWXG
_FILE_BITS = stat.S_IRGRP | stat.S_IWGRP

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


class _OpenHow(ctypes.Structure):
    _fields_ = (
        ("flags", ctypes.c_uint64),
        ("mode", ctypes.c_uint64),
        ("resolve", ctypes.c_uint64),
    )


def belongs(mode: int, owner: int, group: int) -> bool:
    """Whether a file or folder of such a mode and group needs no change. Pure."""
    return owner == group and mode & wanted(mode) == wanted(mode)


def wanted(mode: int) -> int:
    """Return the bits that the group needs: folders hand it on to what is made in them. Pure."""
    return _FOLDER_BITS if stat.S_ISDIR(mode) else _FILE_BITS


def give(root: pathlib.Path, group: int) -> bool:
    """Let a group own, read and write a mounted volume; return whether it was not so already.

    Raises OSError.
    """
    with _opened(os.open(root, _FOLDER)) as top:
        found = os.fstat(top)
        if belongs(found.st_mode, found.st_gid, group):
            return False
        _give_all_below(top, group)
        _change(top, found, group)
    return True


def _give_all_below(top: int, group: int) -> None:
    waiting = ["."]
    while waiting:
        path = waiting.pop()
        with _beneath(top, path, _FOLDER) as folder:
            if folder is not None:
                folders = [one for one in os.listdir(folder) if _give_entry(folder, one, group)]
                waiting += [f"{path}/{one}" for one in folders]


def _give_entry(folder: int, name: str, group: int) -> bool:
    """Change one entry, but never a link; return whether it is a folder."""
    with _beneath(folder, name, _ITSELF) as handle:
        if handle is None:
            return False
        found = os.fstat(handle)
        if stat.S_ISLNK(found.st_mode):
            return False
        if not belongs(found.st_mode, found.st_gid, group):
            _change(handle, found, group)
        return stat.S_ISDIR(found.st_mode)


def _change(handle: int, found: os.stat_result, group: int) -> None:
    """Change what a handle stands for, through /proc as it may be good for nothing else."""
    place = f"/proc/self/fd/{handle}"
    os.chown(place, -1, group)
    os.chmod(place, stat.S_IMODE(found.st_mode) | wanted(found.st_mode))


@contextlib.contextmanager
def _beneath(folder: int, path: str, flags: int) -> Iterator[int | None]:
    """Open what is below a folder of the volume, None if it is not, or no longer, there."""
    how = _OpenHow(flags, 0, _RESOLVE_NO_XDEV | _RESOLVE_NO_SYMLINKS | _RESOLVE_BENEATH)
    size = ctypes.c_size_t(ctypes.sizeof(how))
    name = os.fsencode(path)
    handle = _libc.syscall(ctypes.c_long(_SYS_OPENAT2), folder, name, ctypes.byref(how), size)
    number = ctypes.get_errno()
    if handle >= 0:
        with _opened(handle):
            yield handle
    elif number in _ELSEWHERE:
        yield None
    else:
        raise OSError(number, f"open {path} in the volume: {os.strerror(number)}")


@contextlib.contextmanager
def _opened(handle: int) -> Iterator[int]:
    try:
        yield handle
    finally:
        os.close(handle)
