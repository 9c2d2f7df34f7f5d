"""The unix socket that shims talk to: who may, how much, how long.

One request per connection, one thread per request: whoever accepts a connection reads it,
carries the request out and answers, so that nothing is handed from thread to thread on the way
from the shim to the kernel and back. When many are at work, what is read then waits for the
next of them to be done; VERSION and STATUS never wait, for by them a node is judged. Threads
are started as they are needed. They wait at an ``epoll``, which wakes the one that was the last to
come back: what it needs is still in the processor's caches, while ``accept`` would let all take
turns. Everything is bounded: threads, requests that wait for one, bytes, seconds until a request
is complete, seconds until it is answered. Only root (and the daemon's own user) is answered.
"""

import asyncio
import collections
import contextlib
import os
import select
import socket
import stat
import struct
import threading
import time
from typing import TypeAlias

from bitts.cni import errors
from bitts.cni.errors import CniError, Code
from bitts.core import logs

from cni_daemon import protocol
from cni_daemon.answering import Answerer
from cni_daemon.protocol import FrameError

WORKERS = 32
"""Requests at a time that change or compare something."""

RESERVED = 4
"""Threads beside them, which read what comes in and answer VERSION and STATUS."""

_WAITING = 512
"""Requests read that wait for a worker."""

RECEIVE_TIMEOUT = 10.0
"""Seconds until a request must be there, which a shim sends in one go."""

DEADLINE = 45.0
"""Seconds until a request is answered; the shim waits a little longer, kubelet two minutes."""

_SEND_TIMEOUT = 10.0
_BACKLOG = 512
_ONE_COMES = select.EPOLLIN | select.EPOLLONESHOT
_CHUNK, _USUAL = 1 << 16, 1 << 13
_AT_ONCE = int(socket.MSG_DONTWAIT)
_LOOK = int(socket.MSG_DONTWAIT | socket.MSG_PEEK)
_CREDENTIALS = struct.Struct("3i")
_TRUSTED = {0, os.geteuid()}
_PAUSE = 0.1
"""Seconds between looks at the deadlines, and after a failure to accept."""


def _timeout(seconds: float) -> bytes:
    return struct.pack("@ll", int(seconds), int(seconds % 1 * 1e6))


_RECEIVE_LIMIT, _SEND_LIMIT = _timeout(RECEIVE_TIMEOUT), _timeout(_SEND_TIMEOUT)


class Server:
    """Listens at a path until it is stopped."""

    def __init__(self, path: str, answerer: Answerer, deadline: float = DEADLINE) -> None:
        self._path = path
        self._answerer = answerer
        self._deadline = deadline
        self._listener: socket.socket | None = None
        self._coming = select.epoll()
        self._mutex = threading.Lock()
        self._threads = 0
        self._idle = 0
        self._working = 0
        self._waiting: collections.deque[_Read] = collections.deque()
        self._open: set[_Connection] = set()
        self._watch: asyncio.Task[None] | None = None
        self._grace: float | None = None
        self._log = logs.get("server")

    @property
    def connections(self) -> int:
        """How many shims are connected."""
        return len(self._open)

    async def start(self) -> None:
        """Bind, in the place of a socket that a dead daemon left. Raises OSError."""
        self._listener = await asyncio.to_thread(_bound, self._path)
        self._coming.register(self._listener, _ONE_COMES)
        self._watch = asyncio.create_task(self._keep_deadlines(), name="deadlines of requests")
        self._start_thread(self._listener)

    async def stop(self, grace: float) -> None:
        """Take no more requests; give those under way ``grace`` seconds, then cut them off."""
        if self._listener is None or self._watch is None:
            return
        self._grace = time.monotonic() + grace
        with contextlib.suppress(OSError):
            await asyncio.to_thread(os.unlink, self._path)
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes who waits in accept
        await self._watch
        for each in list(self._open):
            each.cut_off()
        self._listener.close()

    def _start_thread(self, listener: socket.socket) -> None:
        self._threads += 1
        self._idle += 1
        name = f"request-{self._threads}"
        threading.Thread(target=self._serve, args=(listener,), name=name, daemon=True).start()

    def _serve(self, listener: socket.socket) -> None:
        while True:
            try:
                self._coming.poll(maxevents=1)
                accepted = _accepted(listener)
                self._coming.modify(listener, _ONE_COMES)
            except OSError as error:
                if self._grace is not None:
                    return
                self._log.error("Cannot accept a request", err=error)
                time.sleep(_PAUSE)
                continue
            if accepted is None:
                continue
            with self._mutex:
                self._idle -= 1
                if not self._idle and self._threads < WORKERS + RESERVED:
                    self._start_thread(listener)
            self._take(accepted)
            with self._mutex:
                self._idle += 1

    def _take(self, accepted: socket.socket) -> None:
        connection = _Connection(accepted, time.monotonic() + self._deadline)
        self._open.add(connection)
        frame = self._request(connection)
        if not frame:
            self._end(connection)
        elif protocol.only_asks(frame):
            self._carry_out((connection, frame))
        elif self._may_work((connection, frame)):
            self._work((connection, frame))

    def _request(self, connection: "_Connection") -> bytes:
        try:
            return connection.request()
        except Exception as error:  # noqa: BLE001 - the thread must go on serving
            self._log.error("Unexpected failure", err=error, kind=type(error).__name__)
            return b""

    def _may_work(self, request: "_Read") -> bool:
        """Say whether to go ahead; if not, the request is kept for a worker, or refused."""
        with self._mutex:
            if self._working < WORKERS:
                self._working += 1
                return True
            if len(self._waiting) < _WAITING:
                self._waiting.append(request)
                return False
        request[0].refuse(f"{_WAITING} requests wait already")
        self._end(request[0])
        return False

    def _work(self, request: "_Read") -> None:
        """Carry out a request, and then those that wait."""
        while True:
            self._carry_out(request)
            with self._mutex:
                if not self._waiting:
                    self._working -= 1
                    return
                request = self._waiting.popleft()

    def _carry_out(self, request: "_Read") -> None:
        connection, frame = request
        try:
            self._answerer.answer(frame, connection)
        except Exception as error:  # noqa: BLE001 - the thread must go on serving
            self._log.error("Unexpected failure", err=error, kind=type(error).__name__)
        finally:
            self._end(connection)

    def _end(self, connection: "_Connection") -> None:
        self._open.discard(connection)
        connection.close()

    async def _keep_deadlines(self) -> None:
        """Go round until the end, and then until nobody is served or the grace is over."""
        while self._grace is None or (self._open and time.monotonic() < self._grace):
            await asyncio.sleep(_PAUSE)
            now = time.monotonic()
            for each in list(self._open):
                if each.deadline < now:
                    each.refuse(f"not done within {self._deadline:g} seconds, still at it")


class _Connection:
    """One request and its answer."""

    def __init__(self, accepted: socket.socket, deadline: float) -> None:
        self.deadline = deadline
        self._socket = accepted
        self._answered = threading.Lock()
        """Taken for good by whoever answers first: the request's thread, or the deadline."""

    def request(self) -> bytes:
        """Read the request; empty where there is none, and its caller knows. Blocks."""
        if not _is_privileged(self._socket):
            self.refuse("only root may ask")
            return b""
        try:
            return self._read()
        except FrameError as error:
            self.refuse(str(error), Code.IO_FAILURE)
        except OSError:
            self.refuse(f"no complete request within {RECEIVE_TIMEOUT:g} seconds")
        return b""

    def is_there(self) -> bool:
        """Say whether the caller still waits: it closes its end when it goes."""
        if self._answered.locked():
            return False
        try:
            return bool(self._socket.recv(1, _LOOK))
        except BlockingIOError:  # it says no more, as always
            return True
        except OSError:
            return False

    def tell(self, answer: bytes) -> bool:
        """Answer; False if the caller has gone, or was told something else."""
        if not self._answered.acquire(blocking=False):
            return False
        try:
            sent = self._socket.send(answer, _AT_ONCE)
            if sent < len(answer):  # which takes hundreds of kilobytes
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _SEND_LIMIT)
                self._socket.sendall(answer[sent:])
        except OSError:
            logs.get("server").info("A caller went before it had its answer")
            return False
        return True

    def refuse(self, message: str, code: Code = Code.TRY_AGAIN_LATER) -> None:
        """Answer with an error; what is being done goes on, and is undone if it was an ADD."""
        self.tell(protocol.answer(1, errors.encode(CniError(code, message))))

    def cut_off(self) -> None:
        """Give no answer: the caller will ask the next daemon."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """End the connection."""
        self._socket.close()

    def _read(self) -> bytes:
        """Return a whole frame, empty if the caller has gone. Raises FrameError, OSError."""
        data = self._received()
        if protocol.is_whole(data):  # as nearly always
            return data
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _RECEIVE_LIMIT)
        expected, end = 0, time.monotonic() + RECEIVE_TIMEOUT
        while True:
            if len(data) >= protocol.HEADER.size and not expected:
                expected = protocol.HEADER.size + protocol.length(data[: protocol.HEADER.size])
            if expected and len(data) >= expected:
                return data
            if time.monotonic() > end:
                raise TimeoutError
            more = self._socket.recv(_CHUNK)
            if not more:
                return b""
            data += more

    def _received(self) -> bytes:
        """Return what is there already."""
        try:
            return self._socket.recv(_USUAL, _AT_ONCE)
        except BlockingIOError:
            return b""


_Read: TypeAlias = tuple[_Connection, bytes]
"""A request that was read, and who waits for its answer."""


def _accepted(listener: socket.socket) -> socket.socket | None:
    """Return a connection, None where it has been taken back. Raises OSError."""
    try:
        return listener.accept()[0]
    except BlockingIOError:
        return None


def _is_privileged(peer: socket.socket) -> bool:
    data = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    _, user, _ = _CREDENTIALS.unpack(data)
    return user in _TRUSTED


def _bound(path: str) -> socket.socket:
    """Bind beside the path and rename: a shim finds the old socket or the new, never none."""
    os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISSOCK(os.lstat(path).st_mode):
            raise FileExistsError(17, "something else than a socket is there", path)
    temporary = f"{path}.new"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(temporary)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        mask = os.umask(0o177)
        try:
            listener.bind(temporary)
        finally:
            os.umask(mask)
        os.chmod(temporary, 0o600)
        listener.listen(_BACKLOG)
        listener.setblocking(False)
        os.rename(temporary, path)
    except OSError:
        listener.close()
        raise
    return listener
