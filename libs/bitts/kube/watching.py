"""The bytes of a watch as events: one JSON object a line (API concepts, "Efficient detection").

Everything that can come instead is told apart: an ERROR event is raised as the ApiError that
its Status names (Gone above all), a line cut off by a dying connection is AnswerLost, a line
that is no event is ServerError.
"""

import asyncio
import enum
import functools
from collections.abc import AsyncIterator, Iterator
from typing import Any, Generic, TypeVar

import msgspec

from bitts.kube import decoding, errors, kinds, objects

T = TypeVar("T")

# etcd takes objects of 1.5 MiB unless it was told otherwise.
_LONGEST_LINE = 32 * 2**20
_TURN = 200


class Change(enum.Enum):
    """What an event says about its object."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"
    BOOKMARK = "BOOKMARK"


class WatchEvent(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """A change; a bookmark has no object and says how far the watch has come."""

    change: Change
    object: T | None
    resource_version: str


class _Line(msgspec.Struct):
    type: str
    object: msgspec.Raw


class _Typed(msgspec.Struct, Generic[T]):
    type: Change
    object: T


class _Metadata(msgspec.Struct, rename="camel"):
    resource_version: str = ""


class _Versioned(msgspec.Struct):
    metadata: _Metadata


_lines = msgspec.json.Decoder(_Line)
_statuses = msgspec.json.Decoder(errors.Status)
_versions = msgspec.json.Decoder(_Versioned)


@functools.cache
def _typed(shape: Any) -> msgspec.json.Decoder[Any]:
    """One pass over the line is half the work of taking the object out first."""
    return msgspec.json.Decoder(_Typed[shape])


class Lines:
    """Cuts a byte stream into lines (pure)."""

    def __init__(self, longest: int = _LONGEST_LINE) -> None:
        self._longest = longest
        self._parts: list[bytes] = []
        self._held = 0

    def feed(self, data: bytes) -> list[bytes]:
        """The lines that ``data`` completes. Raises ServerError if one is too long."""
        first, newline, rest = data.partition(b"\n")
        self._parts.append(first)
        self._held += len(first)
        if self._held > self._longest:
            raise errors.ServerError(f"a watch event is longer than {self._longest} bytes")
        if not newline:
            return []
        lines = [b"".join(self._parts), *rest.split(b"\n")]
        tail = lines.pop()
        self._parts, self._held = [tail], len(tail)
        return [line for line in lines if line.strip()]

    def close(self) -> None:
        """The stream has ended. Raises AnswerLost if that was within a line."""
        if b"".join(self._parts).strip():
            raise errors.AnswerLost("the watch ended in the middle of an event")


def parse(kind: kinds.Kind[T], line: bytes) -> WatchEvent[T]:
    """Read one event. Raises the ApiError that it reports, or ServerError."""
    if issubclass(kind.type, objects.Object):
        try:
            typed = _typed(kind.type).decode(line)
        except msgspec.DecodeError:
            pass  # no change of an object, or not one of these: said below
        else:
            version = typed.object.metadata.resource_version
            seen = None if typed.type is Change.BOOKMARK else typed.object
            return WatchEvent(typed.type, seen, version)
    return _parse_apart(kind, line)


def _parse_apart(kind: kinds.Kind[T], line: bytes) -> WatchEvent[T]:
    try:
        event = _lines.decode(line)
        if event.type == "ERROR":
            raise errors.from_status(_statuses.decode(event.object))
        change = Change(event.type)
        version = _versions.decode(event.object).metadata.resource_version
    except (msgspec.DecodeError, ValueError) as error:
        excerpt = line[:120].decode("utf-8", "replace")
        raise errors.ServerError(f"not a watch event: {excerpt!r}: {error}") from error
    if change is Change.BOOKMARK:
        return WatchEvent(change, None, version)
    return WatchEvent(change, decoding.decode(kind, event.object), version)


async def events(kind: kinds.Kind[T], stream: AsyncIterator[bytes]) -> AsyncIterator[WatchEvent[T]]:
    """The events of an open stream until the server ends it. Raises ApiError."""
    lines, count = Lines(), 0
    async for data in stream:
        for event in _parse_all(kind, lines.feed(data)):
            yield event
            count += 1
            if count % _TURN == 0:  # buffered data is handed out without a turn of the loop
                await asyncio.sleep(0)
    lines.close()


def _parse_all(kind: kinds.Kind[T], lines: list[bytes]) -> Iterator[WatchEvent[T]]:
    return (parse(kind, line) for line in lines)
