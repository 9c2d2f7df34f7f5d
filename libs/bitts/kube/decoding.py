"""From the wire's JSON to objects, in slices that never hold up the event loop for long.

A page of the server's default size decodes in a few milliseconds. A server that ignores
``limit`` sends everything at once: items are then cut apart first (cheap) and decoded in
slices, with a turn for everybody else in between.
"""

import asyncio
import dataclasses
import functools
from collections.abc import Sequence
from typing import Any, Generic, TypeVar

import msgspec

from bitts.kube import errors, kinds

T = TypeVar("T")

_SLICE = 250


@dataclasses.dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """A part of a list; ``remaining`` is the server's estimate of what is still to come."""

    items: Sequence[T]
    resource_version: str
    next: str = ""
    remaining: int = 0


class _ListMeta(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    next: str = msgspec.field(default="", name="continue")
    remaining_item_count: int = 0


class _RawList(msgspec.Struct):
    metadata: _ListMeta = msgspec.field(default_factory=_ListMeta)
    items: list[msgspec.Raw] | None = None


_lists = msgspec.json.Decoder(_RawList)
_encoder = msgspec.json.Encoder()


@functools.cache
def _decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind)


def encode(body: object) -> bytes:
    """The JSON of a request body."""
    return _encoder.encode(body)


def decode(kind: kinds.Kind[T], data: bytes | msgspec.Raw) -> T:
    """One object. Raises ServerError if a field is not what the API says it is."""
    try:
        shape: Any = kind.type
        found: T = _decoder(shape).decode(data)
        return found
    except msgspec.DecodeError as error:
        raise _undecodable(kind.resource, error) from error


def plain(data: bytes) -> dict[str, Any]:
    """Any JSON object as a dict. Raises ServerError."""
    try:
        return msgspec.json.decode(data, type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise _undecodable("the answer", error) from error


async def decode_page(kind: kinds.Kind[T], data: bytes) -> Page[T]:
    """A list response. Raises ServerError."""
    try:
        found = _lists.decode(data)
    except msgspec.DecodeError as error:
        raise _undecodable(kind.resource, error) from error
    raw, items = found.items or [], list[T]()
    for start in range(0, len(raw), _SLICE):
        if start:
            await asyncio.sleep(0)
        items += [decode(kind, one) for one in raw[start : start + _SLICE]]
    metadata = found.metadata
    return Page(items, metadata.resource_version, metadata.next, metadata.remaining_item_count)


def _undecodable(what: str, error: Exception) -> errors.ServerError:
    return errors.ServerError(f"{what} cannot be decoded: {error}", reason="Undecodable")
