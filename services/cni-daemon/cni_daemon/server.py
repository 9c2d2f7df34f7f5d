"""The unix socket that shims talk to: who may, how much, how long.

One request per connection. Everything is bounded: connections at a time, bytes, and seconds
until a request is complete. Only root (and the daemon's own user) is answered.
"""

import asyncio
import contextlib
import os
import socket
import stat
import struct

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

_BACKLOG = 512
_CREDENTIALS = struct.Struct("3i")


class Server:
    """Listens at a path until it is closed."""

    def __init__(self, path: str, answerer: Answerer) -> None:
        self._path = path
        self._answerer = answerer
        self._server: asyncio.Server | None = None
        self._open: set[_Connection] = set()
        self._log = logs.get("server")

    async def start(self) -> None:
        """Bind, in the place of a socket that a dead daemon left. Raises OSError."""
        listener = await asyncio.to_thread(_bound, self._path)
        loop = asyncio.get_running_loop()
        self._server = await loop.create_unix_server(
            lambda: _Connection(self, self._answerer), sock=listener, backlog=_BACKLOG
        )

    async def stop(self, grace: float) -> None:
        """Take no more requests; give those under way ``grace`` seconds, then cut them off."""
        if self._server is None:
            return
        self._server.close()
        with contextlib.suppress(OSError):
            await asyncio.to_thread(os.unlink, self._path)
        tasks = {each.task for each in self._open if each.task is not None}
        if tasks:
            await asyncio.wait(tasks, timeout=grace)
        for each in list(self._open):
            each.abort()

    def admit(self, connection: "_Connection") -> bool:
        """Count a connection; False where there are too many."""
        self._open.add(connection)
        return len(self._open) <= CONNECTIONS

    def dismiss(self, connection: "_Connection") -> None:
        """Forget a connection."""
        self._open.discard(connection)


class _Connection(asyncio.Protocol):
    """One request and its answer."""

    def __init__(self, server: Server, answerer: Answerer) -> None:
        self._server = server
        self._answerer = answerer
        self._buffer = bytearray()
        self._expected: int | None = None
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_lost = False
        self.task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        refusal = ""
        if not self._server.admit(self):
            refusal = f"more than {CONNECTIONS} requests at a time"
        elif not _is_privileged(transport):
            refusal = "only root may ask"
        if refusal:
            self._refuse(CniError(Code.TRY_AGAIN_LATER, refusal))
            return
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(RECEIVE_TIMEOUT, self._too_slow)

    def data_received(self, data: bytes) -> None:
        if self.task is not None or self._transport is None or self._transport.is_closing():
            return  # more than one request: what follows the first is not read
        self._buffer += data
        try:
            if self._expected is None and len(self._buffer) >= protocol.HEADER.size:
                header = bytes(self._buffer[: protocol.HEADER.size])
                self._expected = protocol.HEADER.size + protocol.length(header)
        except FrameError as error:
            self._refuse(CniError(Code.IO_FAILURE, str(error)))
            return
        if self._expected is not None and len(self._buffer) >= self._expected:
            self._stop_timer()
            frame = bytes(self._buffer[: self._expected])
            self._buffer.clear()
            self.task = asyncio.create_task(self._answer(frame), name="shim request")

    def eof_received(self) -> bool:
        if self.task is None:
            return False
        self._is_lost = True
        return True  # the answer may still be written; whether anybody reads it is another matter

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_lost = True
        self._stop_timer()
        if self.task is None or self.task.done():
            self._server.dismiss(self)

    def abort(self) -> None:
        """Cut the connection; the shim will ask again."""
        if self._transport is not None:
            self._transport.abort()

    async def _answer(self, frame: bytes) -> None:
        try:
            answer = await self._answerer.answer(frame, lambda: not self._is_lost)
            if self._transport is not None and not self._transport.is_closing():
                self._transport.write(answer)
                self._transport.close()
        finally:
            if self._is_lost:
                self._server.dismiss(self)

    def _refuse(self, error: CniError) -> None:
        self._stop_timer()
        assert self._transport is not None
        self._transport.write(protocol.answer(1, errors.encode(error)))
        self._transport.close()

    def _too_slow(self) -> None:
        self._refuse(
            CniError(Code.IO_FAILURE, f"no complete request within {RECEIVE_TIMEOUT:g} seconds")
        )

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _is_privileged(transport: asyncio.Transport) -> bool:
    peer = transport.get_extra_info("socket")
    data = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    _, user, _ = _CREDENTIALS.unpack(data)
    return user in {0, os.geteuid()}


def _bound(path: str) -> socket.socket:
    """Bind beside the path and rename: a shim finds the old socket or the new, never none."""
    folder = os.path.dirname(path)
    os.makedirs(folder, mode=0o755, exist_ok=True)
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISSOCK(os.lstat(path).st_mode):
            raise FileExistsError(17, "something else than a socket is there", path)
    temporary = f"{path}.new"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(temporary)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        mask = os.umask(0o177)
        try:
            listener.bind(temporary)
        finally:
            os.umask(mask)
        os.rename(temporary, path)
    except OSError:
        listener.close()
        raise
    return listener
