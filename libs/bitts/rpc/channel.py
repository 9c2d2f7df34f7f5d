"""The client's side: calls to one server, with every failure an RpcError.

- Each call has a deadline, and fails at once while there is no connection (gRPC's default).
- The end of the connection is noticed when it happens, also while idle, and told to
  ``on_lost``. With ``reconnect=False`` no later call succeeds: a sidecar has to restart then,
  because another driver may answer. Otherwise the next call connects anew.
- Cancelling a caller's task cancels the call at the server, and nothing else.
"""

import asyncio
import itertools
import random
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import TypeVar

import grpclib.protocol

from bitts.rpc import calls, codes, endpoints, exchange, http2, stubs, wire

ReplyT = TypeVar("ReplyT", bound=stubs.Message)

HANDSHAKE_TIMEOUT = 5.0
"""Seconds for a server that accepted a connection to send its first bytes."""

REPORT_INTERVAL = 10.0
"""Seconds between two reports of a connection that does not come."""
_FIRST_PAUSE, _LONGEST_PAUSE, _GROWTH = 0.05, 1.0, 1.6

_numbers = itertools.count(1)


class _Handler(grpclib.protocol.AbstractHandler):
    """Hears of the connection's end; servers open no streams."""

    def __init__(self, ended: Callable[[], None]) -> None:
        self._ended = ended

    def accept(self, stream: object, headers: object, release_stream: object) -> None:
        """Ignore what the server may not do."""

    def cancel(self, stream: object) -> None:
        """Do nothing: the stream's reader has been woken."""

    def close(self) -> None:
        """Pass on that the connection is over."""
        self._ended()


class Channel:
    """Calls to the server at ``address`` (``/path``, ``unix:///path``, or another endpoint).

    ``observers`` are told of each call. ``on_lost`` gets a text when an established connection
    ends without ``close``; it must not block. ``receive_limit`` is in bytes; a larger answer is
    RESOURCE_EXHAUSTED. Raises ValueError for an address that is no unix socket.
    """

    def __init__(
        self,
        address: str | endpoints.Endpoint,
        *,
        observers: Sequence[calls.Observer] = (),
        on_lost: Callable[[str], None] | None = None,
        reconnect: bool = True,
        receive_limit: int = http2.RECEIVE_LIMIT,
        user_agent: str = "bitts",
    ) -> None:
        self._endpoint: endpoints.Endpoint = (
            endpoints.UnixEndpoint(address) if isinstance(address, str) else address
        )
        self.path = self._endpoint.text
        self._observers = tuple(observers)
        self._on_lost = on_lost
        self._reconnect = reconnect
        self._limit = receive_limit
        self._user_agent = user_agent
        self._link: http2.Link | None = None
        self._slots = asyncio.Semaphore(0)
        self._connecting = asyncio.Lock()
        self._refusal = ""
        text = f"whoever listens at {self.path} is frozen, or speaks no gRPC"
        self._silence = codes.RpcError(codes.Code.UNAVAILABLE, text)

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection right now."""
        return self._link is not None and self._link.is_open

    async def connect(
        self, timeout: float | None, *, report: Callable[[str], None] | None = None
    ) -> None:
        """Wait until the server is there, at most ``timeout`` seconds (None: for ever).

        ``report`` gets a text every ten seconds. Raises RpcError UNAVAILABLE at the end of
        the time, naming the last obstacle.
        """
        end = float("inf") if timeout is None else time.monotonic() + timeout
        next_report = time.monotonic() + REPORT_INTERVAL
        pause = _FIRST_PAUSE
        while True:
            try:
                await self._connected(max(min(HANDSHAKE_TIMEOUT, end - time.monotonic()), pause))
                return
            except codes.RpcError as error:
                obstacle = error.message
                if self._refusal:
                    raise
            if time.monotonic() + pause > end:
                text = f"no connection within {timeout:g} s: {obstacle}"
                raise codes.RpcError(codes.Code.UNAVAILABLE, text)
            if report is not None and time.monotonic() >= next_report:
                next_report = time.monotonic() + REPORT_INTERVAL
                report(f"still connecting: {obstacle}")
            await asyncio.sleep(pause * random.uniform(0.8, 1.2))  # noqa: S311  # only jitter
            pause = min(pause * _GROWTH, _LONGEST_PAUSE)

    async def unary(
        self, method: str, request: stubs.Message, reply_type: type[ReplyT], *, timeout: float
    ) -> ReplyT:
        """Call a method that answers once, within ``timeout`` seconds; raises RpcError only."""
        call = self._start(method, request)
        started = time.monotonic()
        try:
            body = _encoded(request)
            until = asyncio.get_running_loop().time() + timeout
            async with exchange.failures(until):
                raw = await self._exchange(method, body, until)
            call.reply = reply = _decoded(raw, reply_type)
            return reply
        except codes.RpcError as error:
            call.error = error
            raise
        except asyncio.CancelledError:
            call.error = codes.RpcError(codes.Code.CANCELLED, "the caller was cancelled")
            raise
        finally:
            self._end(call, started)

    async def stream(
        self,
        method: str,
        request: stubs.Message,
        reply_type: type[ReplyT],
        *,
        timeout: float | None,
    ) -> AsyncGenerator[ReplyT, None]:
        """Call a method that answers many times; None waits for ever; raises RpcError only.

        To leave early, close the generator (``contextlib.aclosing``): that cancels the call.
        """
        call = self._start(method, request)
        started = time.monotonic()
        try:
            body = _encoded(request)
            until = None if timeout is None else asyncio.get_running_loop().time() + timeout
            async with exchange.failures(until):
                opened = await self._open(method, body, until)
            try:
                async for raw in opened.replies(until):
                    yield _decoded(raw, reply_type)
            finally:
                opened.close()
        except codes.RpcError as error:
            call.error = error
            raise
        except (asyncio.CancelledError, GeneratorExit):
            call.error = codes.RpcError(codes.Code.CANCELLED, "the caller was cancelled")
            raise
        finally:
            self._end(call, started)

    async def close(self) -> None:
        """Close the connection; calls in flight end as UNAVAILABLE, and so do later ones."""
        self._refusal = self._refusal or "the channel is closed"
        link, self._link = self._link, None
        if link is not None:
            link.end(goodbye=True)

    def _start(self, method: str, request: stubs.Message) -> calls.Call:
        call = calls.Call(next(_numbers), method, request)
        for observer in self._observers:
            observer.started(call)
        return call

    def _end(self, call: calls.Call, started: float) -> None:
        call.seconds = time.monotonic() - started
        for observer in self._observers:
            observer.ended(call)

    async def _exchange(self, method: str, body: bytes, until: float) -> bytes:
        opened = await self._open(method, body, until)
        try:
            return await opened.reply()
        finally:
            opened.close()

    async def _open(self, method: str, body: bytes, until: float | None) -> exchange.Exchange:
        link = await self._connected(HANDSHAKE_TIMEOUT)
        slots = self._slots
        await slots.acquire()
        try:
            left = None if until is None else until - asyncio.get_running_loop().time()
            if left is not None and left <= 0:
                raise TimeoutError
            stream, release = await link.open(wire.request_headers(method, left, self._user_agent))
        except BaseException:
            slots.release()
            raise
        opened = exchange.Exchange(stream, self._limit, (release, slots.release))
        try:
            await stream.send_message(body, end=True)
        except BaseException:
            opened.close()
            raise
        return opened

    async def _connected(self, timeout: float) -> http2.Link:
        link = self._link
        if link is not None and link.is_open:
            return link
        async with self._connecting:
            if self._refusal:
                raise codes.RpcError(codes.Code.UNAVAILABLE, self._refusal)
            link = self._link
            if link is None or not link.is_open:
                until = asyncio.get_running_loop().time() + timeout
                async with exchange.failures(until, self._silence):
                    link = await self._dial()
            return link

    async def _dial(self) -> http2.Link:
        link: http2.Link | None = None

        def made() -> http2.Link:
            nonlocal link
            link = http2.Link(_Handler(lambda: self._ended(link)), is_client=True)
            return link

        try:
            await self._endpoint.connect(made)
        except OSError as error:
            text = f"cannot connect to {self.path}: {error.strerror or error}"
            raise codes.RpcError(codes.Code.UNAVAILABLE, text) from error
        assert link is not None
        try:
            await link.ready.wait()
            if self._refusal or not link.is_open:
                reason = self._refusal or f"the server at {self.path} closed the connection at once"
                raise http2.BrokenError(reason)
        except BaseException:
            link.end(goodbye=False)
            raise
        self._slots = asyncio.Semaphore(link.h2.remote_settings.max_concurrent_streams)
        self._link = link
        return link

    def _ended(self, link: http2.Link | None) -> None:
        if link is None or link is not self._link:
            return
        self._link = None
        text = f"the connection to {self.path} was lost"
        if not self._reconnect:
            self._refusal = text
        if self._on_lost is not None:
            self._on_lost(text)


def _encoded(request: stubs.Message) -> bytes:
    try:
        return bytes(request)
    except Exception as error:  # noqa: BLE001  # whatever a wrongly filled field provokes
        text = f"{type(request).__name__} cannot be encoded ({type(error).__name__})"
        raise codes.RpcError(codes.Code.INTERNAL, text) from None


def _decoded(raw: bytes, reply_type: type[ReplyT]) -> ReplyT:
    try:
        return reply_type.parse(raw)
    except Exception as error:  # noqa: BLE001  # whatever a peer's bytes provoke
        text = f"the answer is no {reply_type.__name__} ({type(error).__name__})"
        raise codes.UnreadableError(codes.Code.INTERNAL, text) from None
