"""Subvolumes of a btrfs: made, copied, limited, measured and removed by the kernel's own calls.

ioctls and not the ``btrfs`` program: starting a program costs more than the call, its errors
come as numbers and not as words, and a limit can be set in the very step that makes a
subvolume. The structures are those of linux/btrfs.h. All functions block; call them in a thread.
"""

import contextlib
import ctypes
import fcntl
import os
import pathlib
import struct
from collections.abc import Iterator

_ROOT_INODE = 256
_QUOTA_TREE = 8
_QGROUP_INFO = 242
_WRITE, _READ = 1, 2

_ARGS = struct.Struct("=q4087sx")
_ARGS_V2 = struct.Struct("=q4Q16x4040s")
_INHERIT = struct.Struct("=9Q")
_LIMIT = struct.Struct("=6Q")
_SEARCH_KEY = struct.Struct("=7Q4I4Q")
_SEARCH_HEADER = struct.Struct("=3Q2I")
_SEARCH_SIZE = 4096
_MAX_REFERENCED = 1
_READ_ONLY, _WITH_LIMITS = 2, 4
_ENABLE_QUOTA = 1

_FILLER = "trusted.bitts.filler."
_FILLERS, _FILLER_SIZE = 5, 3500
"""More in all than a node of 16 KiB takes, and each less than one of 4 KiB does."""


def _number(direction: int, number: int, size: int) -> int:
    return direction << 30 | size << 16 | 0x94 << 8 | number


_SNAP_DESTROY = _number(_WRITE, 15, _ARGS.size)
_TREE_SEARCH = _number(_READ | _WRITE, 17, _SEARCH_SIZE)
_INO_LOOKUP = _number(_READ | _WRITE, 18, 4096)
_SNAP_CREATE = _number(_WRITE, 23, _ARGS_V2.size)
_SUBVOL_CREATE = _number(_WRITE, 24, _ARGS_V2.size)
_SUBVOL_SETFLAGS = _number(_WRITE, 26, 8)
_QUOTA_CTL = _number(_READ | _WRITE, 40, 16)
_QGROUP_CREATE = _number(_WRITE, 42, 16)
_QGROUP_LIMIT = _number(_READ, 43, _LIMIT.size)


def enable_quota(folder: pathlib.Path) -> None:
    """Have the file system count what each subvolume refers to; raises OSError."""
    with _opened(folder) as handle:
        fcntl.ioctl(handle, _QUOTA_CTL, bytearray(struct.pack("=2Q", _ENABLE_QUOTA, 0)))


def create(folder: pathlib.Path, name: str, limit: int) -> None:
    """Make an empty subvolume that refers to at most ``limit`` bytes; raises OSError."""
    _make(_SUBVOL_CREATE, folder, name, 0, 0, limit)


def copy(
    source: pathlib.Path, folder: pathlib.Path, name: str, limit: int, *, read_only: bool = False
) -> None:
    """Make a subvolume that shares all content of another at this instant.

    ``limit`` 0 is none. Raises OSError.
    """
    with _opened(source) as handle:
        _make(_SNAP_CREATE, folder, name, handle, _READ_ONLY if read_only else 0, limit)


def _make(
    request: int, folder: pathlib.Path, name: str, source: int, flags: int, limit: int
) -> None:
    inherit = ctypes.create_string_buffer(
        _INHERIT.pack(1, 0, 0, 0, _MAX_REFERENCED, limit, 0, 0, 0), _INHERIT.size
    )
    size, address = (_INHERIT.size, ctypes.addressof(inherit)) if limit else (0, 0)
    wanted = flags | (_WITH_LIMITS if limit else 0)
    packed = _ARGS_V2.pack(source, 0, wanted, size, address, os.fsencode(name))
    with _opened(folder) as handle:
        try:
            fcntl.ioctl(handle, request, bytearray(packed))
        except OSError as error:
            raise OSError(error.errno, f"make subvolume {folder / name}: {error}") from error


def deepen(path: pathlib.Path) -> None:
    """Give a new subvolume's tree a second level; raises OSError.

    A snapshot takes another reference to all that the tree's root points to, and quota looks up
    every owner of each. As long as all items fit into the root, those are the files' extents,
    a hundred for 10 GiB; with fillers beside them, they are a few nodes. Attributes of this
    kind are seen by nobody without CAP_SYS_ADMIN (xattr(7)).
    """
    for number in range(_FILLERS):
        os.setxattr(path, f"{_FILLER}{number}", bytes(_FILLER_SIZE))


def limit(path: pathlib.Path, size: int) -> None:
    """Give a subvolume another limit in bytes; raises OSError."""
    with _opened(path) as handle:
        packed = _LIMIT.pack(0, _MAX_REFERENCED, size, 0, 0, 0)
        fcntl.ioctl(handle, _QGROUP_LIMIT, bytearray(packed))


def referenced(path: pathlib.Path) -> int:
    """Return the bytes that the subvolume at ``path`` refers to, as of the last commit.

    0 when nothing is counted. Raises OSError.
    """
    with _opened(path) as handle:
        number = _tree(handle)
        key = _SEARCH_KEY.pack(
            _QUOTA_TREE, 0, 0, number, number, 0, 2**64 - 1, _QGROUP_INFO, _QGROUP_INFO, 1, 0,
            0, 0, 0, 0,
        )  # fmt: skip
        buffer = bytearray(key.ljust(_SEARCH_SIZE, b"\0"))
        try:
            fcntl.ioctl(handle, _TREE_SEARCH, buffer)
        except FileNotFoundError:
            return 0  # there is no quota tree
    found = _SEARCH_KEY.unpack_from(buffer)[9]
    offset = _SEARCH_KEY.size + _SEARCH_HEADER.size
    return int.from_bytes(buffer[offset + 8 : offset + 16], "little") if found else 0


def is_one(path: pathlib.Path) -> bool:
    """Whether ``path`` is the root of a subvolume."""
    return path.lstat().st_ino == _ROOT_INODE


def remove(folder: pathlib.Path, name: str) -> None:
    """Remove a subvolume and its counting; its blocks are freed later, by the kernel.

    Raises OSError; ENOTEMPTY when it holds others.
    """
    with _opened(folder) as handle:
        with _opened(folder / name) as inner:
            number = _tree(inner)
        fcntl.ioctl(handle, _SNAP_DESTROY, bytearray(_ARGS.pack(0, os.fsencode(name))))
        # Newer kernels do it by themselves, and some only when all blocks are free.
        with contextlib.suppress(OSError):
            fcntl.ioctl(handle, _QGROUP_CREATE, bytearray(struct.pack("=2Q", 0, number)))


def make_writable(path: pathlib.Path) -> None:
    """Take a snapshot's protection away; raises OSError."""
    with _opened(path) as handle:
        fcntl.ioctl(handle, _SUBVOL_SETFLAGS, bytearray(8))


def _tree(handle: int) -> int:
    buffer = bytearray(struct.pack("=2Q", 0, _ROOT_INODE).ljust(4096, b"\0"))
    fcntl.ioctl(handle, _INO_LOOKUP, buffer)
    return int.from_bytes(buffer[:8], "little")


@contextlib.contextmanager
def _opened(folder: pathlib.Path) -> Iterator[int]:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        yield handle
    finally:
        os.close(handle)
