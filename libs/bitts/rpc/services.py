"""What generated service bases stand on: a table of methods that a server can serve.

A service is a plain class with one coroutine per RPC. It takes the request and returns the
answer (or yields answers), and raises RpcError to fail; it never sees gRPC's machinery.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from bitts.rpc import codes, stubs

Answer = Callable[[Any], Awaitable[stubs.Message]] | Callable[[Any], AsyncIterator[stubs.Message]]
"""Takes a request; returns the reply (unary) or yields replies (streaming)."""


@dataclass(frozen=True, slots=True)
class Method:
    """One RPC: its full name, the type of its request, and the coroutine that answers it."""

    name: str
    request_type: type[stubs.Message]
    answer: (
        Callable[[Any], Awaitable[stubs.Message]] | Callable[[Any], AsyncIterator[stubs.Message]]
    )
    is_streaming: bool = False


class Service:
    """Base of generated service classes."""

    def rpc_methods(self) -> Sequence[Method]:
        """Return every method of the service; generated classes override it."""
        raise NotImplementedError


def unimplemented(method: str) -> codes.RpcError:
    """Return what a method answers that its service leaves out."""
    return codes.RpcError(codes.Code.UNIMPLEMENTED, f"{method} is not implemented")
