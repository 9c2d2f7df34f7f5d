"""The unix socket that shims talk to: who may, how much, how long.

One request per connection. Everything is bounded: connections at a time, bytes, seconds until
a request is complete, seconds until it is answered. Only root (and the daemon's own user) is
answered. Plain sockets and not asyncio's transports, which cost as much as the rest of the way
from the shim to the kernel: a request is nearly always there whole when it is accepted.
"""

import asyncio
import contextlib
import os
import socket
import stat
import struct
from collections.abc import Callable

from bitts.cni import errors
from bitts.cni.errors import CniError, Code
from bitts.core import logs

from cni_daemon import protocol
from cni_daemon.answering import Answerer
from cni_daemon.protocol import FrameError

CONNECTIONS = 1024
"""Connections at a time; more are told to try again."""

RECEIVE_TIMEOUT = 10.0
"""Seconds until a request must be there, which a shim sends in one go."""

DEADLINE = 45.0
"""Seconds until a request is answered; the shim waits a little longer, kubelet two minutes."""

_SEND_TIMEOUT = 10.0
_BACKLOG = 512
_ACCEPTED_AT_ONCE = 64
_CHUNK = 1 << 16
_CREDENTIALS = struct.Struct("3i")


class Server:
    """Listens at a path until it is stopped."""

    def __init__(self, path: str, answerer: Answerer, deadline: float = DEADLINE) -> None:
        self._path = path
        self._answerer = answerer
        self._deadline = deadline
        self._listener: socket.socket | None = None
        self._open: set[_Connection] = set()
        self._log = logs.get("server")

    @property
    def connections(self) -> int:
        """How many shims are connected."""
        return len(self._open)

    async def start(self) -> None:
        """Bind, in the place of a socket that a dead daemon left. Raises OSError."""
        self._listener = await asyncio.to_thread(_bound, self._path)
        asyncio.get_running_loop().add_reader(self._listener, self._accept)

    async def stop(self, grace: float) -> None:
        """Take no more requests; give those under way ``grace`` seconds, then cut them off."""
        if self._listener is None:
            return
        asyncio.get_running_loop().remove_reader(self._listener)
        self._listener.close()
        with contextlib.suppress(OSError):
            await asyncio.to_thread(os.unlink, self._path)
        tasks = {each.task for each in self._open if each.task is not None}
        if tasks:
            await asyncio.wait(tasks, timeout=grace)
        for each in list(self._open):
            each.close()

    def _accept(self) -> None:
        assert self._listener is not None
        for _ in range(_ACCEPTED_AT_ONCE):
            try:
                accepted, _ = self._listener.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                self._log.error("Cannot accept a request", err=error)
                return
            accepted.setblocking(False)
            connection = _Connection(accepted, self._answerer, self._open.discard)
            self._open.add(connection)
            if len(self._open) > CONNECTIONS:
                connection.refuse(f"more than {CONNECTIONS} requests at a time")
            elif not _is_privileged(accepted):
                connection.refuse("only root may ask")
            else:
                connection.begin(self._deadline)


class _Connection:
    """One request and its answer."""

    def __init__(
        self,
        accepted: socket.socket,
        answerer: Answerer,
        ended: "Callable[[_Connection], None]",
    ) -> None:
        self._socket = accepted
        self._answerer = answerer
        self._ended = ended
        self._loop = asyncio.get_running_loop()
        self._buffer = bytearray()
        self._expected = protocol.HEADER.size
        self._has_header = False
        self._is_watched = False
        self._timer: asyncio.TimerHandle | None = None
        self._deadline = 0.0
        self._log = logs.get("server")
        self.task: asyncio.Task[None] | None = None

    def begin(self, deadline: float) -> None:
        """Read what is there already, and wait for the rest."""
        self._deadline = deadline
        self._read()
        if self.task is None and self._socket.fileno() >= 0:
            words = f"no complete request within {RECEIVE_TIMEOUT:g} seconds"
            self._timer = self._loop.call_later(RECEIVE_TIMEOUT, self.refuse, words)
            self._is_watched = True
            self._loop.add_reader(self._socket, self._read)

    def refuse(self, message: str, code: Code = Code.TRY_AGAIN_LATER) -> None:
        """Answer with an error and end the connection."""
        if self._socket.fileno() < 0:
            return
        with contextlib.suppress(OSError):  # it may be gone, or not read: then nobody is told
            self._socket.send(protocol.answer(1, errors.encode(CniError(code, message))))
        self.close()

    def close(self) -> None:
        """End the connection; what is being done goes on."""
        if self._timer is not None:
            self._timer.cancel()
        if self._socket.fileno() >= 0:
            self._unwatch()
            self._socket.close()
        self._ended(self)

    def _unwatch(self) -> None:
        if self._is_watched:
            self._loop.remove_reader(self._socket)
            self._is_watched = False

    def _is_heard(self) -> bool:
        """Say whether the caller still waits: it closes its end when it goes."""
        if self._socket.fileno() < 0:
            return False
        try:
            return self._socket.recv(1, socket.MSG_PEEK) != b""
        except (BlockingIOError, InterruptedError):
            return True
        except OSError:
            return False

    def _read(self) -> None:
        try:
            data = self._socket.recv(_CHUNK)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data = b""
        if not data:
            self.close()
            return
        self._buffer += data
        try:
            self._take()
        except FrameError as error:
            self.refuse(str(error), Code.IO_FAILURE)

    def _take(self) -> None:
        if not self._has_header and len(self._buffer) >= protocol.HEADER.size:
            header = bytes(self._buffer[: protocol.HEADER.size])
            self._expected = protocol.HEADER.size + protocol.length(header)
            self._has_header = True
        if not self._has_header or len(self._buffer) < self._expected:
            return
        frame = bytes(self._buffer)
        self._buffer.clear()
        self._unwatch()
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(self._deadline, self._lose_patience)
        self.task = asyncio.create_task(self._answer(frame), name="shim request")

    def _lose_patience(self) -> None:
        self.refuse(f"not done within {self._deadline:g} seconds, still at it")

    async def _answer(self, frame: bytes) -> None:
        answer = await self._answerer.answer(frame, self._is_heard)
        if self._socket.fileno() < 0:
            return
        try:
            sent = self._socket.send(answer)
            if sent < len(answer):
                async with asyncio.timeout(_SEND_TIMEOUT):
                    await self._loop.sock_sendall(self._socket, answer[sent:])
        except OSError:
            self._log.info("A caller went before it had its answer")  # a DEL will follow
        self.close()


def _is_privileged(peer: socket.socket) -> bool:
    data = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    _, user, _ = _CREDENTIALS.unpack(data)
    return user in {0, os.geteuid()}


def _bound(path: str) -> socket.socket:
    """Bind beside the path and rename: a shim finds the old socket or the new, never none."""
    os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISSOCK(os.lstat(path).st_mode):
            raise FileExistsError(17, "something else than a socket is there", path)
    temporary = f"{path}.new"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(temporary)
    listener = socket.socket(
        socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC
    )
    try:
        mask = os.umask(0o177)
        try:
            listener.bind(temporary)
        finally:
            os.umask(mask)
        os.chmod(temporary, 0o600)
        listener.listen(_BACKLOG)
        os.rename(temporary, path)
    except OSError:
        listener.close()
        raise
    return listener
