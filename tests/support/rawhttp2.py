"""HTTP/2 peers that send whatever a test wants, to see what our ends make of it."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import cast

import h2.config
import h2.connection
import h2.events

from support import waiting

OK = [(":status", "200"), ("content-type", "application/grpc")]
TRAILERS = [("grpc-status", "0")]
UNKNOWN_FRAME = bytes.fromhex("000003 c8 00 00000000 616263")
"""A frame of type 200, which nobody knows and everybody must skip."""

Answer = Callable[[h2.connection.H2Connection, int], object]


def framed(text: str, *, compressed: bool = False, missing: int = 0) -> bytes:
    """Return a gRPC message; ``missing`` bytes are announced and left out."""
    body = text.encode()
    return bytes((compressed,)) + (len(body) + missing).to_bytes(4, "big") + body


class _Server(asyncio.Protocol):
    def __init__(self, answer: Answer, *, hangs_up: bool) -> None:
        self._answer = answer
        self._hangs_up = hangs_up
        self._h2 = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._h2.initiate_connection()
        self._transport.write(self._h2.data_to_send() + UNKNOWN_FRAME)

    def data_received(self, data: bytes) -> None:
        for event in self._h2.receive_data(data):
            if isinstance(event, h2.events.StreamEnded):
                self._answer(self._h2, event.stream_id)
                self._transport.write(self._h2.data_to_send())
                if self._hangs_up:
                    self._transport.close()
        self._transport.write(self._h2.data_to_send())


@contextlib.asynccontextmanager
async def serving(path: str, answer: Answer, *, hangs_up: bool = False) -> AsyncIterator[None]:
    """Serve each complete request with ``answer(connection, stream_id)``."""
    loop = asyncio.get_running_loop()
    made: list[_Server] = []

    def accepted() -> _Server:
        made.append(_Server(answer, hangs_up=hangs_up))
        return made[-1]

    running = await loop.create_unix_server(accepted, path)
    try:
        yield
    finally:
        running.close()
        for one in made:
            one._transport.abort()


class Client:
    """A client that sends one request at a time, of any shape."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._h2 = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True))
        self._h2.initiate_connection()
        self._stream = -1

    async def ask(self, headers: dict[str, str], *bodies: bytes) -> dict[str, str]:
        """Send headers and data; return all headers of the answer together."""
        self._stream += 2
        sent = {
            ":method": "POST",
            ":scheme": "http",
            ":authority": "localhost",
            ":path": "",
            "te": "trailers",
            "content-type": "application/grpc",
        } | headers
        self._h2.send_headers(self._stream, [*sent.items()], end_stream=not bodies)
        for number, body in enumerate(bodies, 1):
            self._h2.send_data(self._stream, body, end_stream=number == len(bodies))
        self._writer.write(self._h2.data_to_send() + UNKNOWN_FRAME)
        return await asyncio.wait_for(self._answer(), waiting.patient(10.0))

    async def _answer(self) -> dict[str, str]:
        seen: dict[str, str] = {}
        while True:
            for event in self._h2.receive_data(await self._reader.read(65536)):
                if isinstance(event, h2.events.ResponseReceived | h2.events.TrailersReceived):
                    seen |= {_text(name): _text(value) for name, value in event.headers}
                if isinstance(event, h2.events.StreamEnded | h2.events.StreamReset):
                    return seen

    def close(self) -> None:
        """Hang up."""
        self._writer.transport.abort()


def _text(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.decode()


@contextlib.asynccontextmanager
async def client(path: str) -> AsyncIterator[Client]:
    """Connect a raw client."""
    made = Client(*await asyncio.open_unix_connection(path))
    try:
        yield made
    finally:
        made.close()
