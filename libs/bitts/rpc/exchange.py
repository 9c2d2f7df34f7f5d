"""One request and its answer on a connection, and the one place that maps what goes wrong."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

import h2.exceptions

from bitts.rpc import codes, http2, wire


class Exchange:
    """A request that was sent, and what comes back.

    ``releases`` are called by ``close``; they give the stream back to its connection.
    """

    def __init__(
        self, stream: http2.Stream, limit: int, releases: tuple[Callable[[], None], ...]
    ) -> None:
        self._stream = stream
        self._limit = limit
        self._releases = releases

    async def reply(self) -> bytes:
        """Return the answer of a method that answers once; raises as ``failures`` maps."""
        message = None
        if await self._has_begun():
            message = await self._stream.recv_message(self._limit)
            await self._end()
        if message is None:
            text = "the server said OK without an answer"
            raise codes.UnreadableError(codes.Code.INTERNAL, text)
        return message

    async def replies(self, until: float | None) -> AsyncIterator[bytes]:
        """Yield answers up to a time of the loop's clock; raises RpcError."""
        async with failures(until):
            goes_on = await self._has_begun()
        while goes_on:
            # Around the read alone: a limit must not cancel the consumer between two answers.
            async with failures(until):
                message = await self._stream.recv_message(self._limit)
                if message is None:
                    await self._end()
                    return
            yield message

    async def _has_begun(self) -> bool:
        """Read the headers; False if they are the trailers too, with status OK."""
        headers = dict(await self._stream.recv_headers())
        wire.check_response(headers)
        if "grpc-status" not in headers:
            return True
        wire.check_status(headers)
        return False

    async def _end(self) -> None:
        wire.check_status(dict(await self._stream.recv_trailers()))

    def close(self) -> None:
        """End the exchange; the server is told if it isn't over."""
        self._stream.abandon()
        for release in self._releases:
            release()


_LATE = codes.RpcError(codes.Code.DEADLINE_EXCEEDED, "no answer in time")


@contextlib.asynccontextmanager
async def failures(until: float | None, late: codes.RpcError = _LATE) -> AsyncIterator[None]:
    """Run a block up to a time of the loop's clock; what goes wrong in it becomes an RpcError.

    A broken connection is UNAVAILABLE, the end of the time is as ``late`` says. TimeoutError
    comes before OSError, of which it is a subclass.
    """
    try:
        async with asyncio.timeout_at(until):
            yield
    except TimeoutError:
        raise codes.RpcError(late.code, late.message) from None
    except (http2.BrokenError, OSError, h2.exceptions.ProtocolError) as error:
        raise codes.RpcError(codes.Code.UNAVAILABLE, str(error) or type(error).__name__) from error
