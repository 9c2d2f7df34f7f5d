"""Kernel settings below ``/proc/sys/net``, as the calling thread's namespace shows them."""

import errno
import os

ROOT = "/proc/sys/net/"
_LIMIT = 4096
_GONE = {errno.ENOENT, errno.ENOTDIR, errno.EINVAL}


def path(key: str) -> str:
    """Return the file of a key such as ``ipv4/conf/eth0/arp_notify``; refuses to leave ROOT."""
    full = os.path.normpath(ROOT + key)
    if not full.startswith(ROOT) or "\0" in key:
        raise ValueError(f"{key!r} is no setting of the network")
    return full


def write(key: str, value: str) -> None:
    """Set a value. Raises OSError, FileNotFoundError where the kernel has no such setting."""
    set_at(path(key), value.encode())


def set_at(file: str, value: bytes) -> None:
    """Set a value by the ``path`` of its key, which was looked up before. Raises as ``write``."""
    descriptor = os.open(file, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, value)
    finally:
        os.close(descriptor)


def read(key: str) -> str | None:
    """Return a value without its newline, None where the kernel has no such setting."""
    try:
        descriptor = os.open(path(key), os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in _GONE:
            return None
        raise
    try:
        return os.read(descriptor, _LIMIT).decode().rstrip("\n")
    finally:
        os.close(descriptor)
