"""Mounting, and what is mounted: mount(2), umount2(2), the mount-attribute calls, mountinfo.

A bind mount is built beside the tree (open_tree), given its attributes (mount_setattr) and
only then put in place (move_mount). So a target is either bare or mounted as asked for: no
crash leaves it writable for a moment, or for ever, where read-only was wanted. These calls
need Linux 5.12. All functions block; call them in a thread.
"""

import contextlib
import ctypes
import errno
import os
import pathlib
import re
import stat
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from local_driver import mountflags

MOUNTINFO = pathlib.Path("/proc/self/mountinfo")

_SYS_OPEN_TREE, _SYS_MOVE_MOUNT, _SYS_MOUNT_SETATTR = 428, 429, 442
_AT_FDCWD, _AT_EMPTY_PATH = -100, 0x1000
_OPEN_TREE_CLONE, _OPEN_TREE_CLOEXEC = 1, os.O_CLOEXEC
_MOVE_MOUNT_F_EMPTY_PATH = 4
_UMOUNT_NOFOLLOW = 8
_AT_SYMLINK_NOFOLLOW, _AT_NO_AUTOMOUNT = 0x100, 0x800
_STATX_SIZE, _STATX_ATTRIBUTES, _STATX_ATTR_MOUNT_ROOT = 256, slice(8, 16), 0x2000
_STOPPED = frozenset({"emergency_ro", "shutdown"})
"""Options of a file system that takes nothing more, though it was mounted writable."""

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long
_PLAIN = re.compile(r"[-\w.:@+]*", re.ASCII)
_OCTAL = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True, slots=True)
class Mount:
    """A line of mountinfo (proc(5)).

    ``device`` is "major:minor"; ``root`` the folder of the file system that appears at
    ``point``; ``options`` belong to this mount, ``super_options`` to the file system.
    """

    device: str
    root: str
    point: str
    options: frozenset[str]
    filesystem: str
    source: str
    super_options: frozenset[str]

    @property
    def is_read_only(self) -> bool:
        """Whether one cannot write here, for the mount's sake or for the file system's."""
        return "ro" in self.options or "ro" in self.super_options


class _MountAttr(ctypes.Structure):
    _fields_ = (
        ("attr_set", ctypes.c_uint64),
        ("attr_clr", ctypes.c_uint64),
        ("propagation", ctypes.c_uint64),
        ("userns_fd", ctypes.c_uint64),
    )


def parse_line(line: str) -> Mount:
    """Read one line of mountinfo; raises ValueError on anything else."""
    left, separator, right = line.partition(" - ")
    fields, tail = left.split(" "), right.rstrip("\n").split(" ")
    if not separator or len(fields) < 6 or len(tail) < 3:
        raise ValueError(f"not a line of mountinfo: {line!r}")
    return Mount(
        device=fields[2],
        root=_unescaped(fields[3]),
        point=_unescaped(fields[4]),
        options=frozenset(fields[5].split(",")),
        filesystem=tail[0],
        source=_unescaped(tail[1]),
        super_options=frozenset(tail[2].split(",")),
    )


def _unescaped(text: str) -> str:
    return _OCTAL.sub(lambda found: chr(int(found[1], 8)), text) if "\\" in text else text


@dataclass(frozen=True, slots=True)
class Table:
    """What is mounted at an instant, as raw lines: cheap to search, dear to parse.

    To have the kernel write it down costs milliseconds on a node with many pods, so a call
    takes one and looks into it several times.
    """

    lines: tuple[str, ...]

    def matching(self, text: str) -> list[Mount]:
        """Return the mounts whose line holds ``text`` (no characters that mountinfo escapes)."""
        return [parse_line(line) for line in self.lines if text in line]

    def at(self, path: pathlib.Path) -> Mount | None:
        """Return what is mounted at ``path``, the topmost if several are.

        The path must be as mountinfo has it, without symbolic links.
        """
        rough = path.name if _PLAIN.fullmatch(path.name) else ""
        found = [mount for mount in self.matching(rough) if mount.point == str(path)]
        return found[-1] if found else None


def table() -> Table:
    """Return what is mounted now."""
    return Table(tuple(MOUNTINFO.read_text(errors="surrogateescape").splitlines()))


def is_root(path: pathlib.Path) -> bool:
    """Whether something is mounted at ``path`` itself; raises OSError.

    One system call, where a table costs as much as there are mounts on the node.
    """
    buffer = ctypes.create_string_buffer(_STATX_SIZE)
    how = _AT_SYMLINK_NOFOLLOW | _AT_NO_AUTOMOUNT
    if _libc.statx(_AT_FDCWD, os.fsencode(path), how, 0, buffer) != 0:
        if ctypes.get_errno() in {errno.ENOENT, errno.ENOTDIR}:
            return False
        raise _error("look at", path)
    attributes = int.from_bytes(buffer.raw[_STATX_ATTRIBUTES], sys.byteorder)
    return bool(attributes & _STATX_ATTR_MOUNT_ROOT)


def containing(path: pathlib.Path) -> Mount:
    """Return the mount through which ``path`` is seen."""
    wanted = pathlib.PurePath(os.path.realpath(path))
    above = {str(wanted), *(str(parent) for parent in wanted.parents)}
    found = [mount for mount in map(parse_line, table().lines) if mount.point in above]
    return max(enumerate(found), key=lambda pair: (len(pair[1].point), pair[0]))[1]


def is_read_only(path: pathlib.Path) -> bool:
    """Whether nothing can be written to the file system that holds ``path``; raises OSError.

    An ext4 that has met errors says so in its options alone, since Linux 6.15.
    """
    if os.statvfs(path).f_flag & os.ST_RDONLY:
        return True
    device = path.stat().st_dev
    found = table().matching(f" {os.major(device)}:{os.minor(device)} ")
    return any(mount.super_options & _STOPPED for mount in found)


def mount(
    source: pathlib.Path, target: pathlib.Path, filesystem: str, flags: mountflags.MountFlags
) -> None:
    """Mount a block device; raises OSError naming both ends."""
    done = _libc.mount(
        os.fsencode(source),
        os.fsencode(target),
        filesystem.encode(),
        ctypes.c_ulong(flags.flags),
        flags.data.encode(),
    )
    if done != 0:
        raise _error(f"mount {source} as {filesystem} at", target)


def bind(source: pathlib.Path, target: pathlib.Path, flags: mountflags.MountFlags) -> None:
    """Show ``source`` (a folder or a device node) at ``target``, with attributes from the start.

    Raises OSError.
    """
    with _clone(source) as tree:
        cleared = mountflags.MOUNT_ATTR_ATIME_MASK if flags.changes_access_time else 0
        wanted = _MountAttr(flags.attributes, cleared, 0, 0)
        size = ctypes.c_size_t(ctypes.sizeof(wanted))
        if flags.attributes and _call(
            _SYS_MOUNT_SETATTR, tree, b"", _AT_EMPTY_PATH, ctypes.byref(wanted), size
        ):
            raise _error("set mount attributes for", target)
        if _call(
            _SYS_MOVE_MOUNT, tree, b"", _AT_FDCWD, os.fsencode(target), _MOVE_MOUNT_F_EMPTY_PATH
        ):
            raise _error(f"bind {source} at", target)


@contextlib.contextmanager
def _clone(source: pathlib.Path) -> Iterator[int]:
    flags = _OPEN_TREE_CLONE | _OPEN_TREE_CLOEXEC
    tree = _call(_SYS_OPEN_TREE, _AT_FDCWD, os.fsencode(source), flags)
    if tree < 0:
        raise _error("clone the mount of", source)
    try:
        yield tree
    finally:
        os.close(tree)


def unmount(target: pathlib.Path) -> None:
    """Take away the topmost mount at ``target``, never through a symbolic link.

    Raises OSError; EBUSY while a process uses it, EINVAL where nothing is mounted.
    """
    if _libc.umount2(os.fsencode(target), _UMOUNT_NOFOLLOW) != 0:
        raise _error("unmount", target)


def remove_target(target: pathlib.Path) -> None:
    """Remove the empty folder or file that stood under a mount; a missing one is fine.

    One that another mount stands upon is left alone. Raises OSError when the folder holds
    something: it is not ours to delete.
    """
    try:
        if stat.S_ISDIR(target.lstat().st_mode):
            target.rmdir()
        else:
            target.unlink()
    except FileNotFoundError:
        return
    except OSError as error:
        if error.errno != errno.EBUSY:
            raise


def _call(number: int, *arguments: object) -> int:
    result = _libc.syscall(ctypes.c_long(number), *arguments)
    assert isinstance(result, int)
    return result


def _error(doing: str, path: pathlib.Path) -> OSError:
    number = ctypes.get_errno()
    return OSError(number, f"{doing} {path}: {os.strerror(number)}")
