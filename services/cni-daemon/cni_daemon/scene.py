"""Where operations take place: the host's sockets of a worker thread, and one container.

A thread keeps its host sockets; a container's are opened inside its namespace when first
needed and closed with the scene, because an open one keeps a dead namespace alive.
"""

import contextlib
import threading

from bitts.net import namespaces, sockets
from bitts.net.errors import NamespaceError, NamespaceGone, NamespaceReplaced
from bitts.net.sockets import Socket

from cni_daemon.model import Place

GONE = (NamespaceGone, NamespaceReplaced)
"""What says that a container's namespace is no more, and everything that was in it."""


class _Kept(threading.local):
    """The host sockets of one worker thread, opened when first used."""

    def __init__(self) -> None:
        self.route: Socket | None = None
        self.netfilter: Socket | None = None


_kept = _Kept()


def host_route() -> Socket:
    """Return this thread's rtnetlink socket on the host."""
    if _kept.route is None:
        _kept.route = Socket(sockets.ROUTE)
        _kept.route.enlarge()
    return _kept.route


def host_netfilter() -> Socket:
    """Return this thread's nfnetlink socket on the host."""
    if _kept.netfilter is None:
        _kept.netfilter = Socket(sockets.NETFILTER)
        _kept.netfilter.enlarge()
    return _kept.netfilter


def discard_sockets() -> None:
    """Drop this thread's sockets after an error that may have left answers unread."""
    for channel in (_kept.route, _kept.netfilter):
        if channel is not None:
            channel.close()
    _kept.route = _kept.netfilter = None


class Scene:
    """One container's namespace (or none: it is gone) and the host, for one worker thread."""

    def __init__(self, descriptor: int | None = None) -> None:
        self.descriptor = descriptor
        self._pod_route: Socket | None = None

    @property
    def has_pod(self) -> bool:
        """Whether there is a container to work in."""
        return self.descriptor is not None

    def inside(self, place: str) -> contextlib.AbstractContextManager[None]:
        """Run a block inside the namespace of a place. Raises NamespaceError."""
        if place == Place.HOST:
            return contextlib.nullcontext()
        if self.descriptor is None:
            raise NamespaceError("the container's network namespace is gone")
        return namespaces.entered(self.descriptor)

    def route(self, place: str) -> Socket:
        """Return an rtnetlink socket that belongs to a place."""
        if place == Place.HOST:
            return host_route()
        if self._pod_route is None:
            with self.inside(place):
                self._pod_route = Socket(sockets.ROUTE)
        return self._pod_route

    def close(self) -> None:
        """Let go of the container's namespace."""
        if self._pod_route is not None:
            self._pod_route.close()
            self._pod_route = None


def opened(path: str, *, identity: tuple[int, int] | None = None) -> "Opened":
    """Return what yields the scene of the namespace at ``path``.

    Entering it raises NamespaceGone where there is none, or another one than the ``identity``
    recorded (a path may be used again), NamespaceReplaced where something else is (both are
    ``GONE``), and NamespaceError where that cannot be told.
    """
    return Opened(path, identity)


class Opened:
    """An open namespace as a scene, for a with statement."""

    __slots__ = ("_identity", "_opened", "_path", "_scene")

    def __init__(self, path: str, identity: tuple[int, int] | None) -> None:
        self._path = path
        self._identity = identity
        self._opened = namespaces.opened(path)
        self._scene = Scene()

    def __enter__(self) -> Scene:
        """Open it."""
        descriptor = self._opened.__enter__()
        if self._identity is not None and namespaces.identity(descriptor) != self._identity:
            self._opened.__exit__()
            raise NamespaceGone(f"{self._path!r} is another network namespace by now")
        self._scene = Scene(descriptor)
        return self._scene

    def __exit__(self, *_: object) -> None:
        """Let go of it."""
        self._scene.close()
        self._opened.__exit__()
