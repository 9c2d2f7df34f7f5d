"""gRPC's use of HTTP/2 headers, as pure functions (grpc/doc/PROTOCOL-HTTP2.md)."""

import urllib.parse
from collections.abc import Mapping
from typing import cast

import hpack

from bitts.rpc import codes

CONTENT_TYPE = "application/grpc"
_PLAIN = "".join(chr(number) for number in range(0x20, 0x7F) if chr(number) != "%")
_MAXIMUM_DIGITS = 8
_UNITS = {"n": 1e-9, "u": 1e-6, "m": 1e-3, "S": 1.0, "M": 60.0, "H": 3600.0}
_FROM_HTTP = {
    "400": codes.Code.INTERNAL,
    "401": codes.Code.UNAUTHENTICATED,
    "403": codes.Code.PERMISSION_DENIED,
    "404": codes.Code.UNIMPLEMENTED,
    "429": codes.Code.UNAVAILABLE,
    "502": codes.Code.UNAVAILABLE,
    "503": codes.Code.UNAVAILABLE,
    "504": codes.Code.UNAVAILABLE,
}


def encode_timeout(seconds: float) -> str:
    """Write a deadline as finely as eight digits allow, so that the peer gets all of it.

    From a second on, milliseconds are fine enough, and let the headers of most calls be equal.
    """
    for unit in ("u", "m", "S", "M") if seconds < 1 else ("m", "S", "M"):
        count = max(int(seconds / _UNITS[unit]), 1)
        if len(str(count)) <= _MAXIMUM_DIGITS:
            return f"{count}{unit}"
    return f"{min(int(seconds / 3600), 10**_MAXIMUM_DIGITS - 1)}H"


def decode_timeout(text: str) -> float:
    """Return the seconds of a grpc-timeout header; raises ValueError."""
    digits, unit = text[:-1], text[-1:]
    if not (digits.isascii() and digits.isdigit() and len(digits) <= _MAXIMUM_DIGITS):
        raise ValueError(f"grpc-timeout {text!r} is not a number of at most 8 digits and a unit")
    if unit not in _UNITS:
        raise ValueError(f"grpc-timeout {text!r} has an unknown unit; known are n u m S M H")
    return int(digits) * _UNITS[unit]


def encode_message(text: str) -> str:
    """Percent-encode a status message."""
    return urllib.parse.quote(text, safe=_PLAIN)


def decode_message(text: str) -> str:
    """Read a status message; bytes that aren't UTF-8 become replacement characters."""
    return urllib.parse.unquote(text, errors="replace")


def request_headers(method: str, timeout: float | None, user_agent: str) -> list[tuple[str, str]]:
    """Return the headers that open a call. The authority is what gRPC uses for unix sockets."""
    opening: list[tuple[str, str]] = [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", method),
        (":authority", "localhost"),
        ("te", "trailers"),
        ("content-type", CONTENT_TYPE),
        ("user-agent", user_agent),
    ]
    if timeout is not None:  # kept out of the peer's table, where it would displace what recurs
        deadline = hpack.NeverIndexedHeaderTuple("grpc-timeout", encode_timeout(timeout))
        opening.append(cast(tuple[str, str], deadline))
    return opening


def check_response(headers: Mapping[str, str]) -> None:
    """Raise RpcError if a response doesn't begin as one of gRPC."""
    status = headers.get(":status", "")
    if status != "200":
        code = _FROM_HTTP.get(status, codes.Code.UNKNOWN)
        raise codes.RpcError(code, f"the server answered with HTTP status {status or 'missing'}")
    content_type = headers.get("content-type", "")
    if not content_type.startswith(CONTENT_TYPE):
        text = f"the server answered with content type {content_type!r}, not {CONTENT_TYPE}"
        raise codes.UnreadableError(codes.Code.UNKNOWN, text)


def check_status(trailers: Mapping[str, str]) -> None:
    """Raise RpcError unless the trailers carry status OK."""
    text = trailers.get("grpc-status")
    if text is None or not text.isdecimal():
        what = f"the server sent no valid grpc-status: {text!r}"
        raise codes.UnreadableError(codes.Code.UNKNOWN, what)
    number = int(text)
    if number == codes.Code.OK:
        return
    message = decode_message(trailers.get("grpc-message", ""))
    code = codes.Code.from_number(number)
    if code != number:
        message = f"{message} (status {number})"
    raise codes.RpcError(code, message)


def response_headers() -> list[tuple[str, str]]:
    """Return the headers before the first message of an answer."""
    return [(":status", "200"), ("content-type", CONTENT_TYPE)]


def status_trailers(error: codes.RpcError | None) -> list[tuple[str, str]]:
    """Return the trailers that end an answer."""
    if error is None:
        return [("grpc-status", "0")]
    return [
        ("grpc-status", str(error.code.value)),
        ("grpc-message", encode_message(error.message)),
    ]
