"""HTTP/1.1 as a client of the API server needs it: bytes to send, and answers from bytes (pure).

RFC 9112 without what nobody sends there: answers have a length, come in chunks, or end with
their connection; trailers are read and dropped; no compression is asked for.
"""

import dataclasses
import enum
from collections.abc import Iterable

_LONGEST_HEAD = 64 << 10
_LONGEST_LINE = 1 << 10
_LINE = b"\r\n"
_EMPTY_LINE = b"\r\n\r\n"
_HEXADECIMAL = b"0123456789abcdefABCDEF"


class ProtocolError(Exception):
    """What came is no HTTP answer; the connection cannot be used any more."""


@dataclasses.dataclass(slots=True)
class Head:
    """The beginning of an answer; header names are in small letters."""

    status: int
    headers: dict[str, str]
    keeps_open: bool

    @property
    def content_type(self) -> str:
        """Without parameters, in small letters."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()


def fields(pairs: Iterable[tuple[str, str]]) -> bytes:
    """Header lines. Raises ValueError for what would end a line early."""
    text = ""
    for name, value in pairs:
        if any(one in name + value for one in "\r\n\0"):
            raise ValueError(f"header {name!r} has a line break in it")
        text += f"{name}: {value}\r\n"
    return text.encode()


def request(
    method: str, target: str, headers: bytes, body: bytes | None, content_type: str = ""
) -> bytes:
    """A whole request; ``headers`` are lines, ``content_type`` is the body's."""
    start = f"{method} {target} HTTP/1.1\r\n".encode()
    if body is None:
        return start + headers + _LINE
    about = f"Content-Type: {content_type}\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    return start + headers + about + body


class _Part(enum.Enum):
    """What comes next of a body."""

    DATA = enum.auto()
    CHUNK_DATA = enum.auto()
    CHUNK_END = enum.auto()
    CHUNK_SIZE = enum.auto()
    TRAILER = enum.auto()


class Answer:
    """One answer, read as its bytes come. ``feed`` and ``end`` raise ProtocolError."""

    __slots__ = ("_left", "_part", "_rest", "head", "is_complete")

    def __init__(self) -> None:
        self.head: Head | None = None
        self.is_complete = False
        self._rest = b""
        self._part = _Part.DATA
        self._left: int | None = None  # bytes to come of the body or the chunk, None: unknown

    def feed(self, data: bytes) -> list[bytes]:
        """The pieces of the body in ``data``."""
        if self._rest:
            data, self._rest = self._rest + data, b""
        if self.head is None:
            data = self._begin(data)
            if self.head is None:
                return []
        return self._plain(data) if self._part is _Part.DATA else self._chunks(data)

    def end(self) -> None:
        """The connection has ended, and with it an answer without a length."""
        if self.head is None or self._part is not _Part.DATA or self._left is not None:
            raise ProtocolError("the connection ended before the answer did")
        self.is_complete = True

    def _begin(self, data: bytes) -> bytes:
        """Read the head, if all of it is there; return what follows it."""
        while True:
            end = data.find(_EMPTY_LINE)
            if end < 0:
                if len(data) > _LONGEST_HEAD:
                    raise ProtocolError(f"the head is longer than {_LONGEST_HEAD} bytes")
                self._rest = data
                return b""
            head, data = _head(data[:end]), data[end + len(_EMPTY_LINE) :]
            if head.status >= 200:
                break  # what comes before is only news of it (RFC 9110, section 15.2)
        self._frame(head)
        self.head = head
        return data

    def _frame(self, head: Head) -> None:
        """Note how the body will end (RFC 9112, section 6.3)."""
        coding, length = head.headers.get("transfer-encoding"), head.headers.get("content-length")
        if head.status in (204, 304):
            self._left = 0
        elif coding is not None:
            if coding.lower() != "chunked":
                raise ProtocolError(f"the transfer encoding is {coding!r}")
            self._part = _Part.CHUNK_SIZE
        elif length is None:
            head.keeps_open = False
        elif length.isascii() and length.isdigit():
            self._left = int(length)
        else:
            raise ProtocolError(f"the content length is {length!r}")
        self.is_complete = self._left == 0

    def _plain(self, data: bytes) -> list[bytes]:
        if self._left is not None:
            if len(data) > self._left:
                raise ProtocolError("more came than the content length")
            self._left -= len(data)
            self.is_complete = self._left == 0
        return [data] if data else []

    def _chunks(self, data: bytes) -> list[bytes]:
        pieces, at = [], 0
        while not self.is_complete:
            if self._left:
                piece = data[at : at + self._left]
                if piece:
                    pieces.append(piece)
                at += len(piece)
                self._left -= len(piece)
                if self._left:
                    return pieces
                self._part = _Part.CHUNK_END
            end = data.find(_LINE, at)
            if end < 0:
                self._keep(data[at:])
                return pieces
            self._line(data[at:end])
            at = end + len(_LINE)
        if at < len(data):
            raise ProtocolError("more came than the last chunk")
        return pieces

    def _line(self, line: bytes) -> None:
        """Take in a line between the chunks' data."""
        if self._part is _Part.CHUNK_SIZE:
            self._left = _size(line)
            self._part = _Part.CHUNK_DATA if self._left else _Part.TRAILER
        elif self._part is _Part.TRAILER:
            self.is_complete = not line
        elif line:
            raise ProtocolError("a chunk is longer than its size")
        else:
            self._part = _Part.CHUNK_SIZE

    def _keep(self, rest: bytes) -> None:
        if len(rest) > _LONGEST_LINE:
            raise ProtocolError("a line between chunks does not end")
        self._rest = rest


def _size(line: bytes) -> int:
    digits = line.partition(b";")[0].strip()
    if not digits or digits.strip(_HEXADECIMAL):
        raise ProtocolError(f"the size of a chunk is {line[:20]!r}")
    return int(digits, 16)


def _head(data: bytes) -> Head:
    start, *lines = data.decode("latin-1").split("\r\n")
    version, _, rest = start.partition(" ")
    code = rest[:3]
    if not version.startswith("HTTP/1.") or len(code) < 3 or not code.isdecimal():
        raise ProtocolError(f"not an HTTP answer: {start[:80]!r}")
    headers: dict[str, str] = {}
    for line in lines:
        name, _, value = line.partition(":")
        headers[name.strip().lower()] = value.strip()
    keeps_open = version == "HTTP/1.1" and "close" not in headers.get("connection", "").lower()
    return Head(int(code), headers, keeps_open)
