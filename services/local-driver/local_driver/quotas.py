"""Project quota: a folder that cannot grow beyond its size, on ext4 and xfs mounted with prjquota.

Every volume is a project of its own, whose number comes from the volume's serial, so there is
no table of numbers to keep. Elsewhere sizes are recorded only, and volumes say so. The calls
need Linux 5.14 and root. All functions block; call them in a thread.
"""

import contextlib
import ctypes
import fcntl
import os
import pathlib
import struct
from collections.abc import Iterator

from local_driver import mounts

_FIRST_PROJECT = 0x4200_0000
"""Far above what kubelet numbers its own projects with."""

_SYS_QUOTACTL_FD = 443
_PROJECT_QUOTA = 2
_Q_GETQUOTA, _Q_SETQUOTA = 0x800007, 0x800008
_LIMITS_VALID = 1 | 4
_BLOCK = 1024
_QUOTA = struct.Struct("=8QI4x")

_FSGETXATTR, _FSSETXATTR = 0x801C581F, 0x401C5820
_PROJECT_INHERIT = 0x200
_ATTRIBUTES = struct.Struct("=5I8x")

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


def are_enforced(folder: pathlib.Path) -> bool:
    """Whether the file system below ``folder`` stops a project at its limit."""
    mount = mounts.containing(folder)
    if mount.filesystem not in {"ext4", "xfs"} or "prjquota" not in mount.super_options:
        return False
    try:
        _control(folder, _Q_GETQUOTA, 0, bytes(_QUOTA.size))
    except OSError:
        return False
    return True


def limit(folder: pathlib.Path, serial: int, capacity: int) -> None:
    """Make ``folder`` the project of volume ``serial``, with at most ``capacity`` bytes.

    The folder must be empty: what lies in it already would not count. Raises OSError.
    """
    wanted = _FIRST_PROJECT + serial
    with _opened(folder) as handle:
        flags, extent, extents, _project, copy_extent = _attributes(handle)
        fields = (flags | _PROJECT_INHERIT, extent, extents, wanted, copy_extent)
        fcntl.ioctl(handle, _FSSETXATTR, _ATTRIBUTES.pack(*fields))
    _set(folder, wanted, capacity)


def project(folder: pathlib.Path) -> int | None:
    """Return the project that limit() made of a folder; None without a folder or limit."""
    try:
        with _opened(folder) as handle:
            found = _attributes(handle)[3]
    except FileNotFoundError:
        return None
    return found if found >= _FIRST_PROJECT else None


def serial(folder: pathlib.Path) -> int:
    """Return the number of the volume whose project a folder is; 0 for none."""
    found = project(folder)
    return found - _FIRST_PROJECT if found is not None else 0


def resize(folder: pathlib.Path, capacity: int) -> None:
    """Give the project of ``folder`` another limit in bytes; raises OSError."""
    found = project(folder)
    if found is not None:
        _set(folder, found, capacity)


def lift(parent: pathlib.Path, project: int) -> None:
    """Forget the limit of a project whose folder in ``parent`` is gone; raises OSError."""
    _set(parent, project, 0)


def _attributes(handle: int) -> tuple[int, ...]:
    return _ATTRIBUTES.unpack(fcntl.ioctl(handle, _FSGETXATTR, bytes(_ATTRIBUTES.size)))


def _set(folder: pathlib.Path, project: int, capacity: int) -> None:
    blocks = -(-capacity // _BLOCK)
    _control(folder, _Q_SETQUOTA, project, _QUOTA.pack(blocks, 0, 0, 0, 0, 0, 0, 0, _LIMITS_VALID))


def _control(folder: pathlib.Path, command: int, project: int, block: bytes) -> None:
    buffer = ctypes.create_string_buffer(block, len(block))
    with _opened(folder) as handle:
        failed = _libc.syscall(
            ctypes.c_long(_SYS_QUOTACTL_FD),
            handle,
            ctypes.c_uint(command << 8 | _PROJECT_QUOTA),
            ctypes.c_uint(project),
            buffer,
        )
    if failed:
        number = ctypes.get_errno()
        raise OSError(number, f"project quota in {folder}: {os.strerror(number)}")


@contextlib.contextmanager
def _opened(folder: pathlib.Path) -> Iterator[int]:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield handle
    finally:
        os.close(handle)
