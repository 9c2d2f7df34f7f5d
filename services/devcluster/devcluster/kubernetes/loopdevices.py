"""Loop devices that a node which has ended left bound: no other kernel object outlives it.

On a real machine they go with the power. Here they would keep a raw block volume in use after a
reboot, and for ever after the cluster's end. Two kinds are told from all others of the machine:
those of files on the node's disk, by device and inode, and those by which a kubelet locks a block
volume, which it names by paths in its own folder. All functions block.
"""

import contextlib
import errno
import fcntl
import os
import pathlib
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from devcluster.kubernetes.nodeplan import KUBELET_ROOT

_BLOCKS = pathlib.Path("/sys/block")
_CLR_FD, _GET_STATUS64 = 0x4C01, 0x4C05
_INFO = struct.Struct("=5Q4I64s64s32s2Q")  # struct loop_info64 of linux/loop.h
_DELETED = " (deleted)"


@dataclass(frozen=True, slots=True)
class Device:
    """A bound loop device; ``device`` and ``inode`` are those of the file that it shows.

    ``path`` is where the kernel says that the file is: once a mount namespace is gone, counted
    from the root of the mount. ``given`` is the name it was bound by, cut to 63 bytes.
    """

    number: int
    path: str
    given: str
    device: int = 0
    inode: int = 0

    @property
    def is_lock(self) -> bool:
        """Whether a kubelet made it, over a device, so that the device is not taken away."""
        return self.given.startswith(f"{KUBELET_ROOT}/")


def is_of(found: Device, root: pathlib.Path) -> bool:
    """Whether a device is of the node, which has ended, with this folder."""
    if found.is_lock and found.path == "/":
        return True  # of this node or of another one that is gone: the mount is nowhere any more
    inside = found.path.removeprefix(KUBELET_ROOT).removesuffix(_DELETED).lstrip("/")
    try:
        status = (root / inside).stat()
    except OSError:
        return False
    return found.is_lock or (status.st_dev, status.st_ino) == (found.device, found.inode)


def release(root: pathlib.Path) -> list[str]:
    """Free the devices of a node that has ended; return what each of them showed."""
    ours = [found for found in bound() if is_of(found, root)]
    for found in sorted(ours, key=lambda one: not one.is_lock):  # what lies on top goes first
        _detach(found)
    return [f"loop{found.number} of {found.path}" for found in ours]


def bound() -> Iterator[Device]:
    """Return every bound loop device of the machine."""
    for entry in sorted(_BLOCKS.glob("loop*/loop/backing_file")):
        with contextlib.suppress(OSError):  # freed meanwhile
            yield _read(int(entry.parent.parent.name.removeprefix("loop")), entry)


def _read(number: int, entry: pathlib.Path) -> Device:
    with _opened(number) as handle:
        fields = _INFO.unpack(fcntl.ioctl(handle, _GET_STATUS64, bytes(_INFO.size)))
    path = entry.read_text(errors="surrogateescape").removesuffix("\n")
    given = os.fsdecode(fields[9].partition(b"\0")[0])
    return Device(number, path, given, fields[0], fields[1])


def _detach(found: Device) -> None:
    """Unbind a device; one that somebody has open goes when it is closed."""
    with _opened(found.number) as handle:
        try:
            fcntl.ioctl(handle, _CLR_FD)
        except OSError as error:
            if error.errno != errno.ENXIO:  # freed meanwhile
                raise


@contextlib.contextmanager
def _opened(number: int) -> Iterator[int]:
    handle = os.open(f"/dev/loop{number}", os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield handle
    finally:
        os.close(handle)
