"""A small gRPC service for tests of the wire, with messages that are plain text.

Each method misbehaves in one way, so that a test names what it provokes.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Self

from bitts.rpc import codes, services

PREFIX = "/test.Sample/"


class Text:
    """A message that is its UTF-8 text."""

    def __init__(self, text: str = "") -> None:
        self.text = text

    def __bytes__(self) -> bytes:
        return self.text.encode()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Text) and self.text == other.text

    __hash__ = None  # type: ignore[assignment]  # mutable, like generated messages

    @classmethod
    def parse(cls, data: bytes) -> Self:
        return cls(data.decode())


class Broken(Text):
    """A message that can't be encoded."""

    def __bytes__(self) -> bytes:
        raise TypeError(self.text)


class Sample(services.Service):
    """Serves what a test needs; coroutines in ``extra`` are served by their names too.

    ``started`` and ``cancelled`` tell what happened to Hold and Count.
    """

    def __init__(self) -> None:
        self.started = asyncio.Event()
        self.cancelled = asyncio.Event()
        self.release = asyncio.Event()
        self.running = 0
        self.most_running = 0
        self.extra: list[Callable[[Text], Awaitable[Text]]] = []

    def rpc_methods(self) -> tuple[services.Method, ...]:
        """List the methods for a server."""
        plain = [self.echo, self.fail, self.raises, self.hold, self.grow, self.late, *self.extra]
        unary = [
            services.Method(PREFIX + answer.__name__.capitalize(), Text, answer) for answer in plain
        ]
        streams = [
            services.Method(PREFIX + answer.__name__.capitalize(), Text, answer, is_streaming=True)
            for answer in (self.count, self.steps)
        ]
        return (*unary, *streams)

    async def echo(self, request: Text) -> Text:
        """Answer with the request."""
        return request

    async def fail(self, request: Text) -> Text:
        """Fail with the code of a name, with a message that needs encoding."""
        raise codes.RpcError(codes.Code.from_name(request.text), f"nö: {request.text} 100%\n")

    async def raises(self, request: Text) -> Text:
        """Fail as a defect does, with the request in the text."""
        raise KeyError(request.text)

    async def late(self, request: Text) -> Text:
        """Raise a TimeoutError of the handler's own."""
        raise TimeoutError(request.text)

    async def hold(self, request: Text) -> Text:
        """Answer after ``release``; note a cancellation."""
        self.started.set()
        self.running += 1
        self.most_running = max(self.running, self.most_running)
        try:
            await self.release.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        finally:
            self.running -= 1
        return request

    async def grow(self, request: Text) -> Text:
        """Answer with as many letters as asked for."""
        return Text("x" * int(request.text))

    async def count(self, request: Text) -> AsyncIterator[Text]:
        """Answer with numbers; a negative count ends in an error, "ever" never, in long texts."""
        self.started.set()
        limit = 10**9 if request.text == "ever" else int(request.text)
        try:
            for number in range(abs(limit)):
                yield Text(f"{number:100000d}" if request.text == "ever" else str(number))
        finally:
            self.cancelled.set()
        if limit < 0:
            raise codes.RpcError(codes.Code.ABORTED, "enough")

    async def steps(self, request: Text) -> AsyncIterator[Text]:
        """Answer twice, the second time after ``release``."""
        del request
        yield Text("first")
        await self.release.wait()
        yield Text("second")
