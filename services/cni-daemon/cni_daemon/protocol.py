"""The frames between shim and daemon (pure). ``shim.c`` is the other half of this page.

Request: ``BCN1``, the length of what follows in four bytes, sixteen bytes that name the
request, then the plugin's type and the environment's ``CNI_*`` (and few more) variables, each
closed by a zero byte, an empty one, and the rest is what came on stdin. Answer: four bytes of
length, one of exit status, and what goes to stdout. Numbers are little-endian.

A shim whose connection breaks sends the same request again, under the same name, so that a
daemon that restarts in the middle of a call answers it once. An intent is a request in a file.
"""

import struct
from collections.abc import Mapping
from typing import NamedTuple

MAGIC = b"BCN1"
HEADER = struct.Struct("<4sI16s")
ANSWER = struct.Struct("<IB")
REQUEST_LIMIT = 1 << 20
"""Bytes after the header: pod annotations are at most 256 KiB, results far smaller."""

_COMMAND = b"\0CNI_COMMAND="
_QUESTIONS = {b"VERSION", b"STATUS"}
_VARIABLES = 64
_NAME_LIMIT = 255


class FrameError(ValueError):
    """Bytes that are no request; the message says why."""


class Frame(NamedTuple):
    """One request as it came in."""

    nonce: str
    plugin: str
    environment: Mapping[str, str]
    stdin: bytes


def length(header: bytes) -> int:
    """Return how many bytes follow a header. Raises FrameError."""
    magic, size, _ = HEADER.unpack(header)
    if magic != MAGIC:
        raise FrameError("not a request of the shim")
    if not 0 < size <= REQUEST_LIMIT:
        raise FrameError(f"request of {size} bytes, at most {REQUEST_LIMIT} are accepted")
    return int(size)


def is_whole(data: bytes) -> bool:
    """Say whether a frame is complete; what is none is not."""
    if len(data) < HEADER.size:
        return False
    magic, size, _ = HEADER.unpack_from(data)
    return bool(magic == MAGIC and 0 < size <= REQUEST_LIMIT and len(data) == HEADER.size + size)


def only_asks(data: bytes) -> bool:
    """Say whether a frame asks about us, and about no attachment: VERSION or STATUS.

    Reads no more of it than that; what is no frame asks for nothing.
    """
    head = data[HEADER.size : data.find(b"\0\0", HEADER.size)]
    _, found, rest = head.rpartition(_COMMAND)
    return bool(found) and rest.partition(b"\0")[0] in _QUESTIONS


def decode(data: bytes) -> Frame:
    """Read a whole frame. Raises FrameError."""
    if len(data) < HEADER.size:
        raise FrameError("request ends within its header")
    size = length(data[: HEADER.size])
    if len(data) != HEADER.size + size:
        raise FrameError(f"request of {len(data) - HEADER.size} bytes, {size} were announced")
    nonce = data[HEADER.size - 16 : HEADER.size].hex()
    head, separator, stdin = data[HEADER.size :].partition(b"\0\0")
    if not separator:
        raise FrameError("request without an end of its environment")
    plugin, *pairs = head.decode(errors="surrogateescape").split("\0")
    if len(plugin) > _NAME_LIMIT or len(pairs) > _VARIABLES:
        raise FrameError("request with an absurd plugin name or environment")
    try:
        environment: dict[str, str] = dict([each.split("=", 1) for each in pairs])
    except ValueError:
        raise FrameError("request with a variable that has no value") from None
    return Frame(nonce, plugin, environment, stdin)  # of variables later ones win, as in exec


def encode(frame: Frame) -> bytes:
    """Return the bytes of a request (what the shim does; for tests and tools)."""
    pairs = [f"{name}={value}" for name, value in frame.environment.items()]
    head = b"\0".join(each.encode(errors="surrogateescape") for each in (frame.plugin, *pairs))
    body = head + b"\0\0" + frame.stdin
    return HEADER.pack(MAGIC, len(body), bytes.fromhex(frame.nonce)) + body


def answer(status: int, stdout: str) -> bytes:
    """Return the bytes of an answer."""
    data = stdout.encode(errors="replace")
    return ANSWER.pack(len(data), status) + data
