"""Network namespaces: opened safely, and entered by a thread for a moment.

A thread that has entered one must come back before it does anything else; one that cannot
come back is of no use and dangerous to everybody, so the process ends then.
An open descriptor holds a namespace alive: always ``opened`` in a with statement.
"""

import ctypes
import errno
import fcntl
import os
import threading

from bitts.net.errors import NamespaceError, NamespaceGone, NamespaceReplaced

_NEWNET = 0x40000000
_GET_TYPE = 0xB703  # NS_GET_NSTYPE
_libc = ctypes.CDLL(None, use_errno=True)
_libc.setns.argtypes = (ctypes.c_int, ctypes.c_int)
_GONE = {errno.ENOENT, errno.ENOTDIR, errno.ESTALE, errno.ENXIO}
_ABSURD = {errno.ELOOP, errno.ENAMETOOLONG}
_OPEN_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
_LOST = 70  # exit status: a thread is in a stranger's namespace

_home = threading.local()


def opened(path: str) -> "Opened":
    """Return what yields a descriptor of the network namespace at ``path``.

    Entering it raises NamespaceGone where nothing is there (an empty path too), NamespaceReplaced
    where something else is: a file left from a bind mount, or a namespace of another kind. Any
    other NamespaceError (no descriptors left, not allowed) says nothing about what is there.
    """
    return Opened(path)


class Opened:
    """An open namespace, for a with statement (a class, as every request passes here)."""

    __slots__ = ("_descriptor", "_path")

    def __init__(self, path: str) -> None:
        self._path = path
        self._descriptor = -1

    def __enter__(self) -> int:
        """Open it."""
        descriptor = _open(self._path)
        if not _is_network(descriptor):
            os.close(descriptor)
            raise NamespaceReplaced(f"{self._path!r} is not a network namespace")
        self._descriptor = descriptor
        return descriptor

    def __exit__(self, *_: object) -> None:
        """Close it."""
        os.close(self._descriptor)


def _open(path: str) -> int:
    if not path:
        raise NamespaceGone("no network namespace is named")
    try:
        return os.open(path, _OPEN_FLAGS)
    except (OSError, ValueError) as error:
        code = error.errno if isinstance(error, OSError) else errno.ENAMETOOLONG
        if code in _GONE:
            raise NamespaceGone(f"no such network namespace: {path!r}") from None
        kind = NamespaceReplaced if code in _ABSURD else NamespaceError
        raise kind(f"cannot open the network namespace {path!r}: {error}") from None


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
    return is_home(identity(descriptor))


def is_home(found: tuple[int, int]) -> bool:
    """Say whether an ``identity`` is that of the calling thread's namespace."""
    return found == _origin()[1]


def entered(descriptor: int) -> "Entered":
    """Run a block of the calling thread inside a namespace; nothing may be awaited in it."""
    return Entered(descriptor)


class Entered:
    """A stay in a namespace, for a with statement."""

    __slots__ = ("_descriptor", "_home")

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._home = -1

    def __enter__(self) -> None:
        """Go there. Raises NamespaceError."""
        self._home, _ = _origin()
        _enter(self._descriptor)

    def __exit__(self, *_: object) -> None:
        """Come back, or end the process."""
        try:
            _enter(self._home)
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
