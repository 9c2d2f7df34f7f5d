"""Network namespaces: opened safely, and entered by a thread for a moment.

A thread that has entered one must come back before it does anything else; one that cannot
come back is of no use and dangerous to everybody, so the process ends then.
An open descriptor holds a namespace alive: always ``opened`` in a with statement.
"""

import contextlib
import ctypes
import errno
import fcntl
import os
import threading
from collections.abc import Iterator

from bitts.net.errors import NamespaceError, NamespaceGone, NamespaceReplaced

_NEWNET = 0x40000000
_GET_TYPE = 0xB703  # NS_GET_NSTYPE
_libc = ctypes.CDLL(None, use_errno=True)
_libc.setns.argtypes = (ctypes.c_int, ctypes.c_int)
_GONE = {errno.ENOENT, errno.ENOTDIR, errno.ESTALE, errno.ENXIO}
_ABSURD = {errno.ELOOP, errno.ENAMETOOLONG}
_LOST = 70  # exit status: a thread is in a stranger's namespace

_home = threading.local()


@contextlib.contextmanager
def opened(path: str) -> Iterator[int]:
    """Yield a descriptor of the network namespace at ``path``.

    Raises NamespaceGone where nothing is there (an empty path too), NamespaceReplaced where
    something else is: a file left from a bind mount, or a namespace of another kind. Any other
    NamespaceError (no descriptors left, not allowed) says nothing about what is there.
    """
    if not path:
        raise NamespaceGone("no network namespace is named")
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
    try:
        descriptor = os.open(path, flags)
    except (OSError, ValueError) as error:
        code = error.errno if isinstance(error, OSError) else errno.ENAMETOOLONG
        if code in _GONE:
            raise NamespaceGone(f"no such network namespace: {path!r}") from None
        kind = NamespaceReplaced if code in _ABSURD else NamespaceError
        raise kind(f"cannot open the network namespace {path!r}: {error}") from None
    try:
        if not _is_network(descriptor):
            raise NamespaceReplaced(f"{path!r} is not a network namespace")
        yield descriptor
    finally:
        os.close(descriptor)


def _is_network(descriptor: int) -> bool:
    try:
        return fcntl.ioctl(descriptor, _GET_TYPE) == _NEWNET
    except OSError:
        return False


def identity(descriptor: int) -> tuple[int, int]:
    """Return what tells one namespace from another for as long as it lives."""
    found = os.fstat(descriptor)
    return found.st_dev, found.st_ino


def is_own(descriptor: int) -> bool:
    """Say whether the descriptor is the namespace of the calling thread."""
    return identity(descriptor) == _origin()[1]


@contextlib.contextmanager
def entered(descriptor: int) -> Iterator[None]:
    """Run a block of the calling thread inside a namespace; nothing may be awaited in it."""
    home, _ = _origin()
    _enter(descriptor)
    try:
        yield
    finally:
        try:
            _enter(home)
        except NamespaceError:
            os._exit(_LOST)


def _origin() -> tuple[int, tuple[int, int]]:
    """Return the calling thread's own namespace, in which it always is but inside ``entered``."""
    origin: tuple[int, tuple[int, int]] | None = getattr(_home, "origin", None)
    if origin is None:
        descriptor = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        origin = _home.origin = descriptor, identity(descriptor)
    return origin


def _enter(descriptor: int) -> None:
    if _libc.setns(descriptor, _NEWNET) != 0:
        code = ctypes.get_errno()
        raise NamespaceError(f"cannot enter the network namespace: {os.strerror(code).lower()}")
