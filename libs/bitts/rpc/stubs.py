"""What generated clients stand on: a typed method per RPC, each with a deadline.

A stub knows method names and message types, a Caller knows the wire. ``timeout`` has no
default on purpose: a call without a deadline can hang a worker for ever.
"""

from collections.abc import AsyncGenerator
from typing import Protocol, Self, TypeVar


class Message(Protocol):
    """A protobuf message as far as the wire is concerned."""

    def __bytes__(self) -> bytes:
        """Encode the message."""
        ...

    @classmethod
    def parse(cls, data: bytes) -> Self:
        """Decode a message; raises any exception on bytes that aren't one."""
        ...


ReplyT = TypeVar("ReplyT", bound=Message)


class Caller(Protocol):
    """Something that can call methods by name: a Channel, or a wrapper around one."""

    async def unary(
        self, method: str, request: Message, reply_type: type[ReplyT], *, timeout: float
    ) -> ReplyT:
        """Call a method that answers once, within ``timeout`` seconds; raises RpcError only."""
        ...

    def stream(
        self, method: str, request: Message, reply_type: type[ReplyT], *, timeout: float | None
    ) -> AsyncGenerator[ReplyT, None]:
        """Call a method that answers many times; None waits for ever; raises RpcError only.

        To leave early, close the generator (``contextlib.aclosing``): that cancels the call.
        """
        ...


class Stub:
    """Base of generated clients."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller
