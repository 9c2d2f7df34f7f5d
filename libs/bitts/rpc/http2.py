"""One HTTP/2 connection: grpclib's protocol, with the corners rounded that a service hits.

What differs from grpclib as it comes: h2 remembers 256 closed streams instead of 65,536
(13 MB over a long life); frames of an unknown type are skipped, as RFC 9113 §5.5 wants; the
peer's first SETTINGS can be waited for, so that a connection to a frozen process doesn't count
as one; and a stream that breaks wakes its reader with the reason, where grpclib cancels the
reader's task, which loses a cancellation that comes from outside at the same moment.

A write wakes the peer, and costs more than all frames in it: so headers wait for the message
that follows them, and a single answer goes out with its trailers.
"""

import asyncio
import contextlib
import functools
from collections.abc import Callable
from typing import cast

import grpclib.config
import grpclib.protocol
import h2.config
import h2.connection
import h2.errors
import h2.events
import h2.exceptions
import h2.settings

from bitts.rpc import codes, headerblocks

RECEIVE_LIMIT = 4 * 1024 * 1024
"""Bytes of the largest message taken, gRPC's usual default."""

CLOSED_STREAMS = 256
"""How many closed streams a connection remembers, to tell late frames from wrong ones."""

Headers = list[tuple[str, str]]

_PREFIX = 5


class BrokenError(Exception):
    """The stream or its connection ended before the call did; the text says why."""


class _LeanConnection(h2.connection.H2Connection):
    MAX_CLOSED_STREAMS = CLOSED_STREAMS

    def __init__(self, config: h2.config.H2Configuration) -> None:
        super().__init__(config)
        self.encoder = headerblocks.Encoder()
        self.decoder = headerblocks.Decoder(self.DEFAULT_MAX_HEADER_LIST_SIZE)


class _Connection(grpclib.protocol.Connection):
    """grpclib's connection, of which a late reader may still use what had arrived."""

    def flush(self) -> None:
        if not self.is_closing():
            super().flush()

    def ack(self, stream_id: int, size: int) -> None:
        with contextlib.suppress(h2.exceptions.ProtocolError):
            super().ack(stream_id, size)


class _Buffer(grpclib.protocol.Buffer):
    """What came on a stream and was not read yet. The peer may send more for what was read.

    It stands in for grpclib's, whose queue of pieces costs more than the pieces.
    """

    def __init__(self, acknowledge: Callable[[int], None]) -> None:
        self._acknowledge = acknowledge
        self._data = bytearray()
        self._unacknowledged = 0
        self._is_over = False
        self._reader: asyncio.Future[None] | None = None

    def add(self, data: bytes, ack_size: int) -> None:
        """Take in data; ``ack_size`` is more than its length by the padding."""
        self._data += data
        self._unacknowledged += ack_size
        self._wake()

    def eof(self) -> None:
        """Note that there is no more to come."""
        self._is_over = True
        self._wake()

    async def read(self, size: int) -> bytes:
        """Return ``size`` bytes, or less at the end."""
        while len(self._data) < size and not self._is_over:
            self._make_room(0)
            self._reader = asyncio.get_running_loop().create_future()
            await self._reader
        found = bytes(self._data[:size])
        del self._data[:size]
        self._make_room(len(self._data))
        return found

    def unacked_size(self) -> int:
        """Return what the peer has not been told of."""
        return self._unacknowledged

    def _make_room(self, kept: int) -> None:
        size = self._unacknowledged - kept
        if size > 0:
            self._unacknowledged -= size
            self._acknowledge(size)

    def _wake(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)


class Stream(grpclib.protocol.Stream):
    """One call on a connection. Its reader sees everything that came before the break."""

    broken = ""
    is_request = False
    has_ended = False

    def init_stream(self, stream_id: int, connection: grpclib.protocol.Connection) -> None:
        """Take a number, as in grpclib, with a lighter buffer."""
        self.id = stream_id
        self.buffer = _Buffer(functools.partial(connection.ack, stream_id))

    def __ended__(self) -> None:  # grpclib calls it when the peer has said all
        super().__ended__()
        self.has_ended = True
        self.window_updated.set()

    def __terminated__(self, reason: str) -> None:  # grpclib calls it when a stream breaks
        self.broken = self.broken or reason
        for event in (self.headers_received, self.trailers_received, self.window_updated):
            event.set()
        if self.id is not None:
            self.buffer.eof()

    async def recv_headers(self) -> Headers:
        """Wait for the peer's headers; raises BrokenError."""
        await self.headers_received.wait()
        return self._present(self.headers)

    async def recv_trailers(self) -> Headers:
        """Wait for the peer's trailers; raises BrokenError."""
        await self.trailers_received.wait()
        return self._present(self.trailers)

    def _present(self, found: Headers | None) -> Headers:
        if found is None:
            raise BrokenError(self.broken)
        return found

    async def recv_message(self, limit: int) -> bytes | None:
        """Return the next message, or None after the last; raises BrokenError and RpcError."""
        prefix = await self._read(_PREFIX)
        if not prefix:
            return None
        if prefix[0]:
            raise codes.UnreadableError(
                codes.Code.INTERNAL, "the peer compresses though nobody asked it to"
            )
        size = int.from_bytes(prefix[1:], "big")
        if size > limit:
            text = f"the message has {size} bytes, at most {limit} are taken"
            raise codes.UnreadableError(codes.Code.RESOURCE_EXHAUSTED, text)
        message = await self._read(size)
        if len(message) < size:
            raise codes.UnreadableError(codes.Code.INTERNAL, "the message is cut off")
        return message

    async def _read(self, size: int) -> bytes:
        data = await self.buffer.read(size)
        if len(data) < size and self.broken and self.trailers is None:
            raise BrokenError(self.broken)
        return data

    async def send_block(self, headers: Headers, *, end: bool) -> None:
        """Send headers that end the stream, or have them wait for what follows.

        Raises BrokenError.
        """
        await self.connection.write_ready.wait()
        if not self.closable:
            raise BrokenError(self.broken or "the client is gone")
        self._h2_connection.send_headers(cast(int, self.id), headers, end_stream=end)
        if end:
            self.connection.flush()

    async def send_message(self, message: bytes, *, end: bool, waits: bool = False) -> None:
        """Send one message, as fast as the peer takes it; raises BrokenError.

        With ``waits`` its last piece stays for what is sent next. A server that answers before
        it has read all of a request gets no more of it.
        """
        data = b"\0" + len(message).to_bytes(4, "big") + message
        view = memoryview(data)
        while True:
            await self.connection.write_ready.wait()
            if self.is_request and self.has_ended:
                return
            if self.broken:
                raise BrokenError(self.broken)
            stream_id = cast(int, self.id)
            window = self._h2_connection.local_flow_control_window(stream_id)
            if window <= 0:
                self.connection.flush()
                self.window_updated.clear()
                await self.window_updated.wait()
                continue
            size = min(window, self._h2_connection.max_outbound_frame_size)
            chunk, view = view[:size], view[size:]
            is_last = not view
            self._h2_connection.send_data(stream_id, bytes(chunk), end_stream=end and is_last)
            if is_last and waits:
                return
            self.connection.flush()
            if is_last:
                return

    def abandon(self, code: h2.errors.ErrorCodes = h2.errors.ErrorCodes.CANCEL) -> None:
        """Tell the peer that nobody waits for the rest, if the stream is still open."""
        with contextlib.suppress(h2.exceptions.ProtocolError, AttributeError):
            if self.closable:
                self.reset_nowait(code)


class _Events(grpclib.protocol.EventsProcessor):
    """grpclib's dispatch of h2 events, deaf to those it would fail on."""

    def __init__(self, link: "Link") -> None:
        super().__init__(link.handler, link.connection)
        self._link = link

    def process(self, event: h2.events.Event) -> None:
        if isinstance(event, h2.events.RemoteSettingsChanged):
            self._link.ready.set()
        processors = getattr(self, "processors", {})
        if type(event) in processors:
            processors[type(event)](event)

    def process_request_received(self, event: h2.events.RequestReceived) -> None:
        stream = self._link.stream(event.stream_id)
        release = self.register(stream)
        self.handler.accept(stream, cast(Headers, event.headers), release)


class Link(grpclib.protocol.H2Protocol):
    """An asyncio protocol that is one end of an HTTP/2 connection.

    ``handler`` takes what the peer opens and hears of the end; ``ready`` is set by the peer's
    first SETTINGS, and by the end of the connection; ``is_lost`` tells which.
    """

    def __init__(self, handler: grpclib.protocol.AbstractHandler, *, is_client: bool) -> None:
        config = h2.config.H2Configuration(
            client_side=is_client,
            header_encoding="ascii",
            # Both ends are gRPC implementations: checking each header costs and finds nothing.
            validate_inbound_headers=False,
            validate_outbound_headers=False,
            normalize_inbound_headers=False,
            normalize_outbound_headers=False,
        )
        super().__init__(handler, grpclib.config.Configuration(), config)
        self.ready = asyncio.Event()
        self.is_lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Greet the peer; as in grpclib, but with bounded memory for closed streams."""
        self.transport = cast(asyncio.Transport, transport)
        self.h2 = _LeanConnection(self.h2_config)
        self.h2.initiate_connection()
        initial = self.h2.local_settings.initial_window_size
        window = self.config.http2_stream_window_size
        self.h2.increment_flow_control_window(self.config.http2_connection_window_size - initial)
        self.h2.update_settings({h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: window})
        self.connection = _Connection(self.h2, self.transport, config=self.config)
        self.connection.flush()
        self.processor = _Events(self)

    def data_received(self, data: bytes) -> None:
        """Take bytes from the peer; whatever they do to h2 ends the connection at the worst."""
        try:
            super().data_received(data)
        except Exception as error:  # noqa: BLE001  # a peer's bytes must not reach the loop
            self.processor.close(f"Protocol error: {type(error).__name__}")

    def connection_lost(self, exc: BaseException | None) -> None:
        """Wake everybody who waits on the connection."""
        self.is_lost = True
        super().connection_lost(exc)
        self.connection.write_ready.set()
        self.ready.set()

    def stream(self, stream_id: int | None = None) -> Stream:
        """Return a stream of this connection: a new one, or one that the peer opened."""
        return Stream(self.connection, self.h2, self.transport, stream_id=stream_id)

    async def open(self, headers: Headers) -> tuple[Stream, Callable[[], None]]:
        """Open a stream with a request, whose headers wait for its message.

        The second value gives it back when the call is over.
        """
        stream = self.stream()
        stream.is_request = True
        await self.connection.write_ready.wait()
        if self.is_lost or not self.is_open:
            raise BrokenError("the connection is closed")
        try:
            stream_id = self.h2.get_next_available_stream_id()
        except h2.exceptions.NoAvailableStreamIDError:  # after 2**30 calls: begin anew
            self.end(goodbye=True)
            raise BrokenError("the connection has no more stream numbers") from None
        self.h2.send_headers(stream_id, headers)
        stream.init_stream(stream_id, self.connection)
        return stream, self.processor.register(stream)

    @property
    def is_open(self) -> bool:
        """Whether calls can still be made."""
        return not self.is_lost and not self.connection.is_closing()

    def end(self, *, goodbye: bool) -> None:
        """Close the connection; with ``goodbye`` the peer is told by a GOAWAY frame."""
        if goodbye and self.is_open:
            with contextlib.suppress(h2.exceptions.ProtocolError):
                self.h2.close_connection()
                self.connection.flush()
        self.processor.close()
