"""Making file systems and asking them how full they are.

All functions block; call them in a thread.
"""

import errno
import os
import pathlib
import shutil
import subprocess
from dataclasses import dataclass

MKFS_TIMEOUT = 120.0
"""Seconds for mkfs on a sparse file, which usually takes a few milliseconds."""

_PROGRAMS = {
    "ext4": (
        "mkfs.ext4",
        "-q",
        "-F",
        "-m0",
        "-Elazy_itable_init=1,lazy_journal_init=1,nodiscard",
    ),
    "xfs": ("mkfs.xfs", "-q", "-f", "-K"),
    "btrfs": ("mkfs.btrfs", "-q", "-f", "-K"),
}
"""The image is sparse and new, so nothing has to be zeroed or discarded, and all of it is the
user's: no blocks are reserved for root."""


class FormatError(OSError):
    """mkfs failed; the text holds its words."""


@dataclass(frozen=True, slots=True)
class Usage:
    """How full a file system is, in bytes and inodes. Available is what users may still take."""

    total_bytes: int
    used_bytes: int
    available_bytes: int
    total_inodes: int
    used_inodes: int
    available_inodes: int


def installed() -> tuple[str, ...]:
    """Return the file systems that this machine can make for a volume of backend ``image``."""
    return tuple(name for name in ("ext4", "xfs") if shutil.which(_PROGRAMS[name][0]))


def make(filesystem: str, image: pathlib.Path) -> None:
    """Format an image file and have it on the disk when it returns.

    Raises FormatError, whatever is wrong.
    """
    command = [*_PROGRAMS[filesystem], str(image)]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=MKFS_TIMEOUT,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise FormatError(errno.EIO, f"{command[0]}: {error}") from error
    if done.returncode != 0:
        words = (done.stderr or done.stdout).strip()[-500:]
        number = errno.ENOSPC if "No space left" in words else errno.EIO
        raise FormatError(number, f"{command[0]} ended with {done.returncode}: {words}")
    sync(image)


def sync(path: pathlib.Path) -> None:
    """Have a file's, or a folder's own, content on the disk; raises OSError."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def usage(path: pathlib.Path) -> Usage:
    """Ask the file system that holds ``path``; raises OSError."""
    stats = os.statvfs(path)
    size = stats.f_frsize
    return Usage(
        total_bytes=stats.f_blocks * size,
        used_bytes=(stats.f_blocks - stats.f_bfree) * size,
        available_bytes=stats.f_bavail * size,
        total_inodes=stats.f_files,
        used_inodes=stats.f_files - stats.f_ffree,
        available_inodes=stats.f_favail,
    )


def errors(filesystem: str, device: str) -> int:
    """Return how many errors a mounted file system has met, where its kind counts them."""
    try:
        text = pathlib.Path(f"/sys/fs/{filesystem}/{device}/errors_count").read_text()
    except OSError:
        return 0
    return int(text)
