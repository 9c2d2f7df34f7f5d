"""File systems grown to the size of their device, mounted and in use.

Their own programs do it: they know what a file system's layout allows, and do nothing where
there is nothing to do. All functions block; call them in a thread.
"""

import errno
import os
import pathlib
import struct
import subprocess

TIMEOUT = 300.0
"""Seconds for a file system to grow, which usually takes a few milliseconds."""

_SIZE = 4096
_SPARE = 8 << 20
"""Bytes that other writers leave free meanwhile, it is hoped."""

_CAP_SYS_RESOURCE = 24
_EXT4, _XFS = 1024, 0
"""Where in an image the superblock begins."""


def size(filesystem: str, head: bytes) -> int:
    """Return the bytes of a file system whose image begins with ``head`` (4 KiB). Pure.

    0 means that this is no such file system.
    """
    if filesystem == "ext4" and head[_EXT4 + 0x38 : _EXT4 + 0x3A] == b"\x53\xef":
        low, order, high = (
            int.from_bytes(head[_EXT4 + offset : _EXT4 + offset + 4], "little")
            for offset in (0x4, 0x18, 0x150)
        )
        return ((high << 32) + low) << (10 + order)
    if filesystem == "xfs" and head[:4] == b"XFSB":
        block, blocks = struct.unpack_from(">IQ", head, _XFS + 4)
        return int(block * blocks)
    return 0


def shortfall(filesystem: str, image: pathlib.Path) -> int:
    """Return the bytes of an image that its file system leaves unused; less than a block is 0."""
    with image.open("rb") as file:
        head = file.read(_SIZE)
    found = size(filesystem, head.ljust(_SIZE, b"\0"))
    unused = os.stat(image).st_size - found
    return unused if found and unused >= _SIZE else 0


def is_roomy(added: int, free: int) -> bool:
    """Whether a disk with ``free`` bytes can take what growing by ``added`` bytes writes. Pure.

    An image takes room as it is written, and a file system that meets the end of the disk amid
    its growing is damaged. Tables of inodes are most of it: a 64th of what is added.
    """
    return free >= added // 32 + _SPARE


def is_online(filesystem: str) -> bool:
    """Whether a mounted file system can be grown: ext4 asks for CAP_SYS_RESOURCE (24)."""
    if filesystem != "ext4":
        return True
    status = pathlib.Path("/proc/self/status").read_text()
    effective = next(line for line in status.splitlines() if line.startswith("CapEff:"))
    return bool(int(effective.split()[1], 16) >> _CAP_SYS_RESOURCE & 1)


def grow(filesystem: str, device: pathlib.Path, place: pathlib.Path) -> None:
    """Have the file system on ``device``, mounted at ``place``, fill it; raises OSError."""
    if not is_online(filesystem):
        raise OSError(
            errno.EACCES,
            f"grow {filesystem} on {device}: the kernel wants CAP_SYS_RESOURCE for it; "
            "without, the file system grows when its pods have ended and it is staged anew",
        )
    commands = {"xfs": ["xfs_growfs", "-d", str(place)], "ext4": ["resize2fs", str(device)]}
    _run(commands[filesystem])


def grow_idle(image: pathlib.Path) -> None:
    """Have an ext4 in an image that nobody shows fill it; raises OSError.

    What is cut off here may be beyond repair: give it a copy.
    """
    _run(["e2fsck", "-f", "-p", str(image)], fine=(0, 1))
    _run(["resize2fs", str(image)])


def _run(command: list[str], fine: tuple[int, ...] = (0,)) -> None:
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=TIMEOUT,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired as error:
        raise OSError(errno.ETIMEDOUT, f"{command[0]}: not done after {TIMEOUT:.0f} s") from error
    if done.returncode not in fine:
        words = (done.stderr or done.stdout).strip()[-500:]
        raise OSError(errno.EIO, f"{command[0]} ended with {done.returncode}: {words}")
