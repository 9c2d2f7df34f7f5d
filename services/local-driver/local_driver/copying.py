"""Content copied: at once by sharing blocks where the file system can, else what is written of it.

A copy goes to a name that no record vouches for yet, so one that a crash cuts off is rubbish
and goes with the next start. All functions block; call them in a thread.
"""

import contextlib
import ctypes
import errno
import fcntl
import os
import pathlib
import subprocess
import tempfile
import time
from collections.abc import Iterator

from bitts.rpc.codes import Code, RpcError

_FICLONE = 0x40049409
_FIFREEZE, _FITHAW = 0xC0045877, 0xC0045878
_CHUNK = 16 << 20
"""Bytes copied between two looks at the clock."""

FROZEN = 30.0
"""Seconds for which a copy may keep the writers of a mounted file system waiting."""

TREE_TIMEOUT = 6 * 3600.0
"""Seconds for a folder's copy."""

_libc = ctypes.CDLL(None, use_errno=True)


def is_instant(folder: pathlib.Path) -> bool:
    """Whether files in ``folder`` can share blocks (btrfs, xfs, …)."""
    try:
        with tempfile.TemporaryFile(dir=folder) as one, tempfile.TemporaryFile(dir=folder) as two:
            one.write(bytes(4096))
            one.flush()
            fcntl.ioctl(two.fileno(), _FICLONE, one.fileno())
    except OSError:
        return False
    return True


def copy_file(
    source: pathlib.Path, target: pathlib.Path, size: int, *, deadline: float | None = None
) -> None:
    """Make ``target`` of ``size`` bytes begin with what ``source`` holds, and have it on the disk.

    Raises OSError, or RpcError FAILED_PRECONDITION when ``deadline`` (monotonic seconds) comes
    first; then nothing is left of it.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    reading = os.open(source, os.O_RDONLY | os.O_CLOEXEC)
    try:
        writing = os.open(target, flags, 0o600)
        try:
            _share_or_copy(reading, writing, deadline)
            os.ftruncate(writing, size)
            os.fsync(writing)
        except BaseException:
            target.unlink()
            raise
        finally:
            os.close(writing)
    finally:
        os.close(reading)


def _share_or_copy(reading: int, writing: int, deadline: float | None) -> None:
    try:
        fcntl.ioctl(writing, _FICLONE, reading)
    except OSError as error:
        if error.errno not in {errno.EOPNOTSUPP, errno.ENOTTY, errno.EXDEV, errno.EINVAL}:
            raise
        for start, end in _written(reading):
            _copy_range(reading, writing, start, end, deadline)


def _written(handle: int) -> Iterator[tuple[int, int]]:
    """Yield where a sparse file holds data."""
    end = 0
    while True:
        try:
            start = os.lseek(handle, end, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return
            raise
        end = os.lseek(handle, start, os.SEEK_HOLE)
        yield start, end


def _copy_range(reading: int, writing: int, start: int, end: int, deadline: float | None) -> None:
    while start < end:
        if deadline is not None and time.monotonic() > deadline:
            raise RpcError(
                Code.FAILED_PRECONDITION,
                "the volume is in use and cannot be copied in the time that its writers may be "
                "kept waiting: end its pods first, or keep it where files can share blocks",
            )
        done = os.copy_file_range(reading, writing, min(_CHUNK, end - start), start, start)
        if done == 0:
            return  # the file became shorter
        start += done


def copy_tree(source: pathlib.Path, target: pathlib.Path) -> None:
    """Copy what a folder holds into an existing one, with owners, links and attributes.

    ``cp`` does it, which shares blocks where it can; it dies with this process, so that it
    never writes into what the next one clears away. Raises OSError.
    """
    command = ["cp", "-a", "--reflink=auto", "--", f"{source}/.", str(target)]
    try:
        done = subprocess.run(
            ["setpriv", "--pdeathsig", "KILL", *command],
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=TREE_TIMEOUT,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired as error:
        raise OSError(
            errno.ETIMEDOUT, f"copy {source}: not done after {TREE_TIMEOUT:.0f} s"
        ) from error
    if done.returncode != 0:
        full = "No space left" in done.stderr or "quota exceeded" in done.stderr
        words = done.stderr.strip()[-500:]
        raise OSError(errno.ENOSPC if full else errno.EIO, f"copy {source}: {words}")
    sync_filesystem(target)


def sync_filesystem(folder: pathlib.Path) -> None:
    """Have everything in the file system of a folder on the disk; raises OSError."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if _libc.syncfs(handle) != 0:
            number = ctypes.get_errno()
            raise OSError(number, f"flush {folder}: {os.strerror(number)}")
    finally:
        os.close(handle)


@contextlib.contextmanager
def frozen(place: pathlib.Path) -> Iterator[float]:
    """Keep the file system mounted at ``place`` from changing; yields when that must end.

    What was written before is on its device then. Raises OSError.
    """
    handle = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.ioctl(handle, _FIFREEZE, 0)
        try:
            yield time.monotonic() + FROZEN
        finally:
            fcntl.ioctl(handle, _FITHAW, 0)
    finally:
        os.close(handle)


def thaw(place: pathlib.Path) -> bool:
    """End what a crash within frozen() left; whether there was anything to end."""
    try:
        handle = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.ioctl(handle, _FITHAW, 0)
    except OSError:
        return False
    finally:
        os.close(handle)
    return True


def flush_device(device: pathlib.Path) -> None:
    """Have what was written to a block device in the file behind it; raises OSError.

    A device that has just been detached has nothing left to write.
    """
    try:
        handle = os.open(device, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        if error.errno != errno.ENXIO:
            raise
        return
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
