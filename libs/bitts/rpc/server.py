"""The server's side: services on a unix socket, or at a port behind mutual TLS.

- A socket's file appears complete (bound under a hidden name, given its mode, then renamed), takes
  the place of a dead process's socket, and goes with the server.
- A handler raises RpcError to choose a status. Any other exception is INTERNAL for the client,
  without its text, which may hold a secret; the log gets the trace, scrubbed of the request's
  secrets.
- A call that its client gives up, or whose deadline passes, cancels its handler.
- ``stop`` lets calls in flight end within a grace time and answers UNAVAILABLE to new ones.
"""

import asyncio
import contextlib
import contextvars
import time
import traceback
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from typing import cast

import grpclib.protocol
import h2.errors
import h2.exceptions

from bitts.core import logs
from bitts.rpc import codes, http2, listeners, services, stubs, wire

Scrub = Callable[[stubs.Message, str], str]
"""Takes a request and a text; returns the text without the request's secrets."""

_LAST_WAIT = 2.0
_log = logs.get("rpc")


class Incoming:
    """The call that a handler is answering: see ``current``."""

    def __init__(self, answer: "_Answer", deadline: float | None) -> None:
        self.method = answer.path
        self._answer = answer
        self._deadline = deadline

    def remaining(self) -> float | None:
        """Return the seconds until the client's deadline, at least 0; None without one."""
        return None if self._deadline is None else max(self._deadline - time.monotonic(), 0.0)

    def drop_connection(self) -> None:
        """Cut the client's connection, so that it cannot learn what became of its calls."""
        self._answer.connection.link.transport.abort()

    def drop_call(self) -> None:
        """Break this call off without a status; the client's other calls go on."""
        self._answer.stream.abandon(h2.errors.ErrorCodes.INTERNAL_ERROR)


_current: contextvars.ContextVar[Incoming] = contextvars.ContextVar("incoming call")


def current() -> Incoming:
    """Return the call being answered; raises LookupError outside a handler."""
    return _current.get()


class Server:
    """Serves ``services`` at ``place``: a socket file with permission bits ``mode``, or a listener.

    ``lookup`` finds methods beyond those of the services. ``receive_limit`` is in bytes; a
    larger request is RESOURCE_EXHAUSTED.
    """

    def __init__(
        self,
        served: Iterable[services.Service],
        place: str | listeners.Listener,
        *,
        mode: int = 0o600,
        scrub: Scrub = lambda request, text: text,
        lookup: Callable[[str], services.Method | None] = lambda method: None,
        receive_limit: int = http2.RECEIVE_LIMIT,
    ) -> None:
        self._methods = {m.name: m for service in served for m in service.rpc_methods()}
        self._place: listeners.Listener = (
            listeners.UnixListener(place, mode) if isinstance(place, str) else place
        )
        self.scrub = scrub
        self._lookup = lookup
        self.receive_limit = receive_limit
        self._has_started = False
        self.connections: set[_Connection] = set()
        self.tasks: set[asyncio.Task[None]] = set()
        self.is_stopping = False

    @property
    def socket_path(self) -> str:
        """Where the server listens: a path, or host and port."""
        return self._place.text

    async def start(self) -> None:
        """Listen. Raises OSError: a file in the way, a folder missing, another server alive.

        Raises ValueError if the path is too long.
        """
        await self._place.start(self._accepted)
        self._has_started = True

    async def stop(self, grace: float = 5.0) -> None:
        """Take no more calls, wait up to ``grace`` seconds for those in flight, cancel the rest.

        The socket file goes first. May be called again, and without ``start``.
        """
        self.is_stopping = True
        if not self._has_started:
            return
        await self._place.withdraw()
        if self.tasks:
            await asyncio.wait(set(self.tasks), timeout=grace)
        left = set(self.tasks)
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left, timeout=_LAST_WAIT)
        for connection in set(self.connections):
            connection.link.end(goodbye=True)
        self._has_started = False

    async def is_in_place(self) -> bool:
        """Whether the socket's file is still there and ours: somebody may have removed it."""
        return await self._place.is_in_place()

    def method(self, name: str) -> services.Method | None:
        """Return the method of a full name, if it is served."""
        return self._methods.get(name) or self._lookup(name)

    def _accepted(self) -> http2.Link:
        return _Connection(self).link


class _Connection(grpclib.protocol.AbstractHandler):
    """One client's connection and the tasks that answer its calls."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._tasks: dict[grpclib.protocol.Stream, asyncio.Task[None]] = {}
        self.link = http2.Link(self, is_client=False)
        server.connections.add(self)

    def accept(
        self,
        stream: grpclib.protocol.Stream,
        headers: http2.Headers,
        release_stream: Callable[[], None],
    ) -> None:
        """Answer a call in a task of its own."""
        call = _Answer(self._server, self, cast(http2.Stream, stream), dict(headers))
        task = asyncio.create_task(call.run(), name=f"rpc {call.path}")
        self._tasks[stream] = task
        self._server.tasks.add(task)

        def over(finished: asyncio.Task[None]) -> None:
            self._tasks.pop(stream, None)
            self._server.tasks.discard(finished)
            release_stream()
            if not finished.cancelled() and finished.exception() is not None:
                _log.error("Answering failed", method=call.path, err=finished.exception())

        task.add_done_callback(over)

    def cancel(self, stream: grpclib.protocol.Stream) -> None:
        """Stop answering a call that the client gave up."""
        task = self._tasks.pop(stream, None)
        if task is not None:
            task.cancel()

    def close(self) -> None:
        """Stop answering: the connection is over."""
        self._server.connections.discard(self)
        for task in self._tasks.values():
            task.cancel()


class _Answer:
    """One call, from its headers to its trailers."""

    def __init__(
        self,
        server: Server,
        connection: _Connection,
        stream: http2.Stream,
        headers: dict[str, str],
    ) -> None:
        self._server = server
        self.connection = connection
        self.stream = stream
        self._headers = headers
        self._has_begun = False
        self.path = headers.get(":path", "")

    async def run(self) -> None:
        with contextlib.suppress(http2.BrokenError, h2.exceptions.ProtocolError):
            if not self._headers.get("content-type", "").startswith(wire.CONTENT_TYPE):
                await self._send_headers([(":status", "415")], end=True)
            else:
                await self._finish(await self._outcome())

    async def _outcome(self) -> codes.RpcError | None:
        try:
            if self._server.is_stopping:
                return codes.RpcError(codes.Code.UNAVAILABLE, "the server is stopping")
            method = self._server.method(self.path)
            if method is None:
                return services.unimplemented(self.path)
            await self._within_deadline(method)
        except codes.RpcError as error:
            return error
        return None

    async def _within_deadline(self, method: services.Method) -> None:
        timeout = self._timeout()
        deadline = None if timeout is None else time.monotonic() + timeout
        _current.set(Incoming(self, deadline))
        try:
            async with asyncio.timeout(timeout) as limit:
                await self._answer(method)
        except TimeoutError:
            if not limit.expired():
                raise
            text = "the client's deadline passed"
            raise codes.RpcError(codes.Code.DEADLINE_EXCEEDED, text) from None

    def _timeout(self) -> float | None:
        text = self._headers.get("grpc-timeout")
        try:
            return None if text is None else wire.decode_timeout(text)
        except ValueError as error:
            raise codes.RpcError(codes.Code.INTERNAL, str(error)) from None

    async def _answer(self, method: services.Method) -> None:
        raw = await self.stream.recv_message(self._server.receive_limit)
        if raw is None:
            raise codes.RpcError(codes.Code.INTERNAL, "the client sent no request")
        request = _decoded(raw, method.request_type)
        try:
            if method.is_streaming:
                await self._send_all(cast(AsyncGenerator[stubs.Message], method.answer(request)))
            else:
                reply = await cast(Awaitable[stubs.Message], method.answer(request))
                await self._send(reply, is_only=True)
        except (codes.RpcError, http2.BrokenError, h2.exceptions.ProtocolError):
            raise
        except Exception as error:  # noqa: BLE001  # a handler's fault is told and survived
            raise self._fault(request, error) from None

    def _fault(self, request: stubs.Message, error: Exception) -> codes.RpcError:
        trace = self._server.scrub(request, "".join(traceback.format_exception(error)))
        _log.error("A handler failed", method=self.path, err=type(error).__name__, trace=trace)
        text = f"unexpected {type(error).__name__} in {self.path}; the server's log has the trace"
        return codes.RpcError(codes.Code.INTERNAL, text)

    async def _send_all(self, replies: AsyncGenerator[stubs.Message]) -> None:
        # Closed here, not by the garbage collector, so that a client's leaving is felt at once.
        async with contextlib.aclosing(replies):
            async for reply in replies:
                await self._send(reply, is_only=False)
                await asyncio.sleep(0)  # a generator that never waits must not keep the loop

    async def _send(self, reply: stubs.Message, *, is_only: bool) -> None:
        body = bytes(reply)
        if not self._has_begun:
            await self._send_headers(wire.response_headers(), end=False)
        await self.stream.send_message(body, end=False, waits=is_only)

    async def _finish(self, error: codes.RpcError | None) -> None:
        start = [] if self._has_begun else wire.response_headers()
        await self._send_headers([*start, *wire.status_trailers(error)], end=True)
        # The client may not have sent all of its request: nobody is going to read the rest.
        self.stream.abandon(h2.errors.ErrorCodes.NO_ERROR)

    async def _send_headers(self, headers: http2.Headers, *, end: bool) -> None:
        await self.stream.send_block(headers, end=end)
        self._has_begun = True


def _decoded(raw: bytes, request_type: type[stubs.Message]) -> stubs.Message:
    try:
        return request_type.parse(raw)
    except Exception as error:  # noqa: BLE001  # whatever a peer's bytes provoke
        text = f"the request is no {request_type.__name__} ({type(error).__name__})"
        raise codes.RpcError(codes.Code.INTERNAL, text) from None
