"""Netlink messages as bytes: packed by hand, since encoding is what netlink costs in Python.

A ``Message`` is one request without its sequence number; a batch of them is packed into one
buffer, so that the kernel works through all of it in one call. Attributes come back as a
mapping of views into the received buffer, and nothing is decoded that nobody asks for.
"""

import errno
import functools
import struct
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, ParamSpec, TypeVar

from bitts.net.errors import NetlinkError

P = ParamSpec("P")
T = TypeVar("T")

REQUEST = 0x1
MULTI = 0x2
ACK = 0x4
DUMP_INTERRUPTED = 0x10
REPLACE = 0x100
EXCLUSIVE = 0x200
CREATE = 0x400
APPEND = 0x800
DUMP = 0x300
CAPPED = 0x100
HAS_EXTENDED_ACK = 0x200

ERROR = 2
DONE = 3

NESTED = 0x8000
_KIND_MASK = 0x3FFF

_HEADER = struct.Struct("=IHHII")
_ATTRIBUTE = struct.Struct("=HH")
_U8 = struct.Struct("=HHBxxx")
_U16 = struct.Struct("=HHHxx")
_U32 = struct.Struct("=HHI")
_I32 = struct.Struct("=i")
_PADDING = (b"", b"\0\0\0", b"\0\0", b"\0")
HEADER_SIZE = _HEADER.size


class Message(NamedTuple):
    """One request: its type, flags beyond REQUEST and ACK, and everything after the header."""

    kind: int
    flags: int
    body: bytes


class Reply(NamedTuple):
    """One received message."""

    kind: int
    flags: int
    sequence: int
    body: memoryview


class Acknowledgement(NamedTuple):
    """What the kernel answered to one request; error 0 is success."""

    sequence: int
    error: int
    text: str


def attribute(kind: int, value: bytes) -> bytes:
    """Pack one attribute, padded to four bytes."""
    length = len(value) + 4
    return _ATTRIBUTE.pack(length, kind) + value + _PADDING[length & 3]


def text(kind: int, value: str) -> bytes:
    """Pack a string attribute with its closing zero."""
    return attribute(kind, value.encode() + b"\0")


def u8(kind: int, value: int) -> bytes:
    """Pack an 8-bit attribute."""
    return _U8.pack(5, kind, value)


def u16(kind: int, value: int) -> bytes:
    """Pack a 16-bit attribute."""
    return _U16.pack(6, kind, value)


def u32(kind: int, value: int) -> bytes:
    """Pack a 32-bit attribute."""
    return _U32.pack(8, kind, value)


def nested(kind: int, *parts: bytes) -> bytes:
    """Pack attributes inside one."""
    return attribute(kind, b"".join(parts))


def packed(messages: Sequence[Message], sequence: int) -> bytes:
    """Return one buffer of all messages, numbered from ``sequence``, each to be acknowledged."""
    return b"".join(
        _HEADER.pack(
            HEADER_SIZE + len(body), kind, flags | REQUEST | ACK, (sequence + index) & 0xFFFFFFFF, 0
        )
        + body
        for index, (kind, flags, body) in enumerate(messages)
    )


def bare(message: Message, sequence: int) -> bytes:
    """Return one message that asks for no acknowledgement: dumps, batch marks, queries."""
    kind, flags, body = message
    return _HEADER.pack(HEADER_SIZE + len(body), kind, flags | REQUEST, sequence, 0) + body


def replies(data: bytes) -> Iterator[Reply]:
    """Yield the messages of a received buffer; what is cut off at its end is left out."""
    view = memoryview(data)
    offset, end = 0, len(data)
    while offset + HEADER_SIZE <= end:
        length, kind, flags, sequence, _ = _HEADER.unpack_from(view, offset)
        if length < HEADER_SIZE or offset + length > end:
            return
        yield Reply(kind, flags, sequence, view[offset + HEADER_SIZE : offset + length])
        offset += (length + 3) & ~3


def acknowledgement(reply: Reply) -> Acknowledgement:
    """Read an ERROR message, with the kernel's own words where it gives any."""
    if len(reply.body) < _I32.size + HEADER_SIZE:
        return Acknowledgement(reply.sequence, 71, "malformed acknowledgement")  # EPROTO
    error = -_I32.unpack_from(reply.body)[0]
    words = ""
    if reply.flags & HAS_EXTENDED_ACK:
        offset = _I32.size + HEADER_SIZE
        if not reply.flags & CAPPED:
            (length,) = struct.unpack_from("=I", reply.body, _I32.size)
            offset += (length - HEADER_SIZE + 3) & ~3
        found = attributes(reply.body[offset:]).get(1)
        words = string(found) if found is not None else ""
    return Acknowledgement(reply.sequence, error, words)


def decoder(what: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Make a function that reads a message tell a malformed one by NetlinkError (EBADMSG).

    Headers that are cut off, addresses of odd lengths and prefixes that are too long raise all
    sorts of things; whoever asked the kernel need know only one.
    """

    def guarding(read: Callable[P, T]) -> Callable[P, T]:
        @functools.wraps(read)
        def guarded(*args: P.args, **kwargs: P.kwargs) -> T:
            try:
                return read(*args, **kwargs)
            except (struct.error, ValueError, IndexError) as error:
                raise NetlinkError(errno.EBADMSG, f"reading {what}", str(error)) from error

        return guarded

    return guarding


def attributes(view: memoryview) -> dict[int, memoryview]:
    """Return the attributes of a message's tail by type; a malformed rest is left out."""
    found: dict[int, memoryview] = {}
    offset, end = 0, len(view)
    while offset + 4 <= end:
        length, kind = _ATTRIBUTE.unpack_from(view, offset)
        if length < 4 or offset + length > end:
            break
        found[kind & _KIND_MASK] = view[offset + 4 : offset + length]
        offset += (length + 3) & ~3
    return found


def listed(view: memoryview) -> list[memoryview]:
    """Return the values of a nested list, whose types are positions or all the same."""
    found: list[memoryview] = []
    offset, end = 0, len(view)
    while offset + 4 <= end:
        length, _ = _ATTRIBUTE.unpack_from(view, offset)
        if length < 4 or offset + length > end:
            break
        found.append(view[offset + 4 : offset + length])
        offset += (length + 3) & ~3
    return found


def number(value: memoryview | None, default: int = 0) -> int:
    """Read an unsigned integer of the attribute's own size, in the machine's order."""
    if value is None:
        return default
    return int.from_bytes(value, "little" if _LITTLE else "big")


def string(value: memoryview | None) -> str:
    """Read a string attribute, without its closing zero."""
    if value is None:
        return ""
    return bytes(value).split(b"\0", 1)[0].decode(errors="replace")


_LITTLE = struct.pack("=H", 1) == b"\1\0"
