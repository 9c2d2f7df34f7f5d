"""gRPC status codes and the one exception that every failed call ends in.

Whatever goes wrong with a call (a status from the peer, a deadline, a broken connection,
bytes that no message can be read from) reaches callers as an RpcError, so that they decide
on ``code`` alone. This module is pure: decisions may import it.
"""

from enum import IntEnum


class Code(IntEnum):
    """A gRPC status code (grpc/doc/statuscodes.md)."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16

    @property
    def go_name(self) -> str:
        """The spelling of Go programs, in their error texts and metric labels."""
        return _GO_NAMES[self]

    @classmethod
    def from_number(cls, number: int) -> "Code":
        """Return the code of a number on the wire; UNKNOWN for one that gRPC doesn't define."""
        return _BY_NUMBER.get(number, cls.UNKNOWN)

    @classmethod
    def from_name(cls, name: str) -> "Code":
        """Return the code of a name: ``Unavailable`` or ``UNAVAILABLE``.

        Raises ValueError that lists the names.
        """
        try:
            return _BY_NAME[name.replace("_", "").lower()]
        except KeyError:
            known = ", ".join(_GO_NAMES.values())
            raise ValueError(f"unknown gRPC code {name!r}; known are {known}") from None


def _go_name(code: Code) -> str:
    if code is Code.OK:
        return "OK"
    if code is Code.CANCELLED:
        return "Canceled"
    return "".join(word.capitalize() for word in code.name.split("_"))


_GO_NAMES = {code: _go_name(code) for code in Code}
_BY_NUMBER = {code.value: code for code in Code}
_BY_NAME = {name.lower(): code for code, name in _GO_NAMES.items()} | {
    code.name.replace("_", "").lower(): code for code in Code
}


class RpcError(Exception):
    """A call that failed: ``code`` says how, ``message`` is the peer's text or ours.

    Handlers of a server raise it to choose the status that their client gets.
    """

    def __init__(self, code: Code, message: str = "") -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message

    def __str__(self) -> str:
        """Read as in Go, because events and logs of sidecars carry this text."""
        return f"rpc error: code = {self.code.go_name} desc = {self.message}"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RpcError):
            return NotImplemented
        return (self.code, self.message) == (other.code, other.message)

    def __hash__(self) -> int:
        return hash((self.code, self.message))


class UnreadableError(RpcError):
    """The peer answered, but not in a way that can be read: the work may well be done.

    ``code`` is what other gRPC clients make of it, which would mean failure if the peer said so.
    """
