"""Loop devices: image files as block devices, through the driver's own ioctls (loop(4)).

Which device shows which file is asked of the kernel each time, by device and inode, so there
is no table that a crash could make wrong: after a restart the devices are simply found again.
A device for a file system is attached with AUTOCLEAR and vanishes with its last user, so that
no crash between attaching and mounting leaks it. LOOP_CONFIGURE needs Linux 5.8. All
functions block; call them in a thread.
"""

import contextlib
import errno
import fcntl
import os
import pathlib
import re
import stat
import struct
from collections.abc import Iterator
from dataclasses import dataclass

_CONTROL = pathlib.Path("/dev/loop-control")
_BLOCKS = "/sys/block"
_PARTITIONS = pathlib.Path("/proc/partitions")
_NAME = re.compile(r"loop(\d+)")
_MAJOR = 7
_LOOP_CONFIGURE, _LOOP_CLR_FD, _LOOP_GET_STATUS64 = 0x4C0A, 0x4C01, 0x4C05
_LOOP_SET_CAPACITY, _LOOP_CTL_GET_FREE = 0x4C07, 0x4C82
_READ_ONLY, _AUTOCLEAR, _DIRECT_IO = 1, 4, 16

_INFO = struct.Struct("=5Q4I64s64s32s2Q")
_CONFIG = struct.Struct(f"=2I{_INFO.size}s64x")
_PAGE = 4096
"""All that a file of sysfs holds."""

_ATTEMPTS = 64
"""How often another program may snatch the free device before we give up."""


@dataclass(frozen=True, slots=True)
class Loop:
    """A bound loop device."""

    number: int
    is_read_only: bool
    is_autoclear: bool

    @property
    def path(self) -> pathlib.Path:
        """The device node."""
        return pathlib.Path(f"/dev/loop{self.number}")

    @property
    def device(self) -> int:
        """The device number, as in ``st_rdev``."""
        return os.makedev(_MAJOR, self.number)


@contextlib.contextmanager
def attached(image: pathlib.Path, *, read_only: bool, autoclear: bool) -> Iterator[Loop]:
    """Bind a free device to ``image`` and hold it open for the length of the block.

    Without ``autoclear`` the device stays bound afterwards, until detach(). Direct I/O is
    asked for, which saves a second copy in the page cache; the kernel falls back by itself.
    Raises OSError.
    """
    backing = os.open(image, (os.O_RDONLY if read_only else os.O_RDWR) | os.O_CLOEXEC)
    try:
        device, loop = _configure(image, backing, read_only=read_only, autoclear=autoclear)
    finally:
        os.close(backing)
    try:
        yield loop
    finally:
        os.close(device)


def _configure(
    image: pathlib.Path, backing: int, *, read_only: bool, autoclear: bool
) -> tuple[int, Loop]:
    flags = _DIRECT_IO | (_READ_ONLY if read_only else 0) | (_AUTOCLEAR if autoclear else 0)
    name = os.fsencode(image.name)[:63]
    info = _INFO.pack(0, 0, 0, 0, 0, 0, 0, 0, flags, name, b"", b"", 0, 0)
    for _attempt in range(_ATTEMPTS):
        number = _free_number()
        device = _open(number)
        try:
            fcntl.ioctl(device, _LOOP_CONFIGURE, _CONFIG.pack(backing, 0, info))
            return device, Loop(number, read_only, autoclear)
        except OSError as error:
            os.close(device)
            if error.errno != errno.EBUSY:
                raise OSError(error.errno, f"attach {image} to loop{number}: {error}") from error
    raise OSError(errno.EBUSY, f"attach {image}: other programs took every free loop device")


def _free_number() -> int:
    control = os.open(_CONTROL, os.O_RDWR | os.O_CLOEXEC)
    try:
        return fcntl.ioctl(control, _LOOP_CTL_GET_FREE)
    finally:
        os.close(control)


def _open(number: int, access: int = os.O_RDWR) -> int:
    path = f"/dev/loop{number}"
    try:
        return os.open(path, access | os.O_CLOEXEC)
    except FileNotFoundError:
        # A container's /dev has only the nodes that existed when it started.
        with contextlib.suppress(FileExistsError):
            os.mknod(path, 0o600 | stat.S_IFBLK, os.makedev(_MAJOR, number))
        return os.open(path, access | os.O_CLOEXEC)


def find(image: pathlib.Path) -> list[Loop]:
    """Return the devices that show ``image``, in the order of their numbers."""
    try:
        wanted = image.stat()
    except FileNotFoundError:
        return []
    candidates = [number for number, name in bound() if name == image.name]
    found = ((number, _status(number)) for number in candidates)
    return [
        Loop(number, bool(status.flags & _READ_ONLY), bool(status.flags & _AUTOCLEAR))
        for number, status in found
        if status is not None and (status.device, status.inode) == (wanted.st_dev, wanted.st_ino)
    ]


@contextlib.contextmanager
def held(loop: Loop, image: pathlib.Path) -> Iterator[None]:
    """Keep a found device from vanishing; raises OSError if it has become another's meanwhile."""
    device = _open(loop.number, os.O_RDONLY)
    try:
        if loop not in find(image):
            raise OSError(errno.EAGAIN, f"{loop.path} was being detached: try again")
        yield
    finally:
        os.close(device)


def bound() -> list[tuple[int, str]]:
    """Return the number and the backing file's name of every bound device.

    Only the name is sure: the kernel gives the path as seen from wherever it was attached.
    """
    found = []
    for number in _sized():
        with contextlib.suppress(OSError):  # one that is being detached loses the file
            path = _read(f"{_BLOCKS}/loop{number}/loop/backing_file")
            name = os.path.basename(path.rstrip("\n").removesuffix(" (deleted)"))
            found.append((number, name))
    return found


def _sized() -> list[int]:
    """Return the devices that have a size, in order: bound ones, and only those.

    A machine keeps the devices that it ever had, hundreds perhaps, most of them unbound: to ask
    each for its file would take milliseconds.
    """
    names = [line.rpartition(" ")[2] for line in _PARTITIONS.read_text().splitlines()]
    return sorted(int(found[1]) for found in map(_NAME.fullmatch, names) if found)


def of_deleted(folder: pathlib.Path) -> list[tuple[int, str]]:
    """Return the devices whose files in ``folder`` have been deleted, with the files' paths."""
    found = []
    for number, _ in bound():
        with contextlib.suppress(OSError):
            path = _read(f"{_BLOCKS}/loop{number}/loop/backing_file").rstrip("\n")
            name = path.removesuffix(" (deleted)")
            if name != path and name.startswith(f"{folder}/"):
                found.append((number, name))
    return found


def _read(path: str) -> str:
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.fsdecode(os.read(handle, _PAGE))
    finally:
        os.close(handle)


@dataclass(frozen=True, slots=True)
class _Status:
    device: int
    inode: int
    flags: int


def _status(number: int) -> _Status | None:
    try:
        device = _open(number, os.O_RDONLY)
    except OSError:
        return None
    try:
        answer = fcntl.ioctl(device, _LOOP_GET_STATUS64, bytes(_INFO.size))
    except OSError:
        return None
    finally:
        os.close(device)
    fields = _INFO.unpack(answer)
    return _Status(fields[0], fields[1], fields[8])


def detach(loop: Loop) -> None:
    """Unbind a device; one in use goes as soon as its last user does.

    A device that is not bound (any more) is fine. Raises OSError.
    """
    device = _open(loop.number, os.O_RDONLY)
    try:
        fcntl.ioctl(device, _LOOP_CLR_FD)
    except OSError as error:
        if error.errno != errno.ENXIO:
            raise OSError(error.errno, f"detach loop{loop.number}: {error}") from error
    finally:
        os.close(device)


def resize(loop: Loop) -> None:
    """Have a device take the size that its file has by now; raises OSError."""
    device = _open(loop.number, os.O_RDONLY)
    try:
        fcntl.ioctl(device, _LOOP_SET_CAPACITY)
    finally:
        os.close(device)
