"""Go's spellings of values on a command line: booleans, numbers, durations, maps.

Each function raises ValueError with what is wrong; the caller adds which flag it was.
"""

import math
import re
from collections.abc import Iterable
from decimal import ROUND_HALF_UP, Decimal

_TRUE = frozenset(("1", "t", "T", "true", "TRUE", "True"))
_FALSE = frozenset(("0", "f", "F", "false", "FALSE", "False"))
_INTEGER = re.compile(
    r"(?:0[xX](?:_?[0-9a-fA-F])+|0[bB](?:_?[01])+|0[oO]?(?:_?[0-7])+|[1-9](?:_?[0-9])*|0)"
)
_NUMBER = re.compile(
    r"[+-]?(?:(?:[0-9](?:_?[0-9])*\.?(?:[0-9](?:_?[0-9])*)?|\.[0-9](?:_?[0-9])*)"
    r"(?:[eE][+-]?[0-9](?:_?[0-9])*)?|0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?[0-9]{1,6}"
    r"|inf|infinity|nan)",
    re.IGNORECASE,
)
_SPAN = re.compile(r"([0-9]+\.?[0-9]*|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)")
_NANOSECONDS = {
    "ns": 1, "us": 10**3, "µs": 10**3, "μs": 10**3, "ms": 10**6,
    "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9,
}  # fmt: skip
_LARGEST = 2**63 - 1


def boolean(text: str) -> bool:
    """Read ``1 0 t f T F true false TRUE FALSE True False``."""
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    raise ValueError("must be true or false")


def integer(text: str) -> int:
    """Read a signed 64-bit integer; ``0x``, ``0o``, ``0b``, a leading 0 and ``_`` as in Go."""
    sign = -1 if text[:1] == "-" else 1
    value = sign * _magnitude(text[1:] if text[:1] in ("+", "-") else text)
    if not -_LARGEST - 1 <= value <= _LARGEST:
        raise ValueError("is too large for 64 bits")
    return value


def unsigned(text: str) -> int:
    """Read an unsigned 64-bit integer; no sign is allowed."""
    if text[:1] == "-":
        raise ValueError("must not be negative")
    value = _magnitude(text)
    if value >= 2**64:
        raise ValueError("is too large for 64 bits")
    return value


def number(text: str) -> float:
    """Read a floating-point number."""
    if not _NUMBER.fullmatch(text):
        raise ValueError("must be a number")
    try:
        value = float.fromhex(text) if "x" in text.lower() else float(text)
    except OverflowError:
        value = math.inf
    if math.isinf(value) and "inf" not in text.lower():
        raise ValueError("is too large")
    return value


def duration(text: str) -> float:
    """Read a duration as seconds: ``300ms``, ``1m30s``, ``1.5h``; only 0 needs no unit."""
    sign = -1 if text[:1] == "-" else 1
    unsigned_text = text[1:] if text[:1] in ("+", "-") else text
    if unsigned_text == "0":
        return 0.0
    total, position = Decimal(0), 0
    for span in _SPAN.finditer(unsigned_text):
        if span.start() != position:
            break
        total += Decimal(span[1]) * _NANOSECONDS[span[2]]
        position = span.end()
    if not unsigned_text or position != len(unsigned_text):
        raise ValueError("must be a duration with units, such as 300ms, 15s or 1m30s")
    if total > _LARGEST + (sign < 0):
        raise ValueError("is too long")
    return sign * int(total) / 1e9


def format_duration(seconds: float) -> str:
    """Write a duration as Go does: ``15s``, ``5m0s``, ``1h0m0s``, ``1.5s``, ``300ms``."""
    nanos = int((Decimal(repr(seconds)) * 10**9).to_integral_value(ROUND_HALF_UP))
    sign, nanos = ("-", -nanos) if nanos < 0 else ("", nanos)
    if nanos == 0:
        return "0s"
    if nanos < 10**9:
        unit = "ms" if nanos >= 10**6 else "µs" if nanos >= 10**3 else "ns"
        return f"{sign}{_shortest(Decimal(nanos) / _NANOSECONDS[unit])}{unit}"
    minutes, rest = divmod(nanos, 60 * 10**9)
    hours, minutes = divmod(minutes, 60)
    whole = f"{_shortest(Decimal(rest) / 10**9)}s"
    if hours:
        return f"{sign}{hours}h{minutes}m{whole}"
    return f"{sign}{minutes}m{whole}" if minutes else f"{sign}{whole}"


def pairs(text: str) -> dict[str, str]:
    """Read ``key:value,key2:value2``."""
    found: dict[str, str] = {}
    for item in filter(None, text.split(",")):
        key, *values = item.split(":")
        if len(values) != 1:
            raise ValueError(f'"{item}" must be key:value with exactly one colon')
        found[key.strip()] = values[0].strip()
    return found


def gates(text: str) -> dict[str, bool]:
    """Read ``Name=true,Other=false``."""
    found: dict[str, bool] = {}
    for item in filter(None, text.split(",")):
        name, equals, value = item.partition("=")
        if not equals:
            raise ValueError(f'"{item}" must be Name=true or Name=false')
        try:
            found[name.strip()] = boolean(value.strip())
        except ValueError as error:
            raise ValueError(f"{name.strip()} {error}") from None
    return found


def vmodule(text: str) -> list[tuple[str, int]]:
    """Read ``pattern=N,other*=M``."""
    limits = []
    for item in filter(None, text.split(",")):
        pattern, equals, number = item.partition("=")
        if not (pattern and equals and number.isdecimal()):
            raise ValueError(f'"{item}" must be pattern=N, as in app=5')
        limits.append((pattern, int(number)))
    return limits


def nearest(name: str, known: Iterable[str]) -> str:
    """Return the known name that ``name`` was probably meant to be, or "" if none is near."""
    import difflib  # only a wrong command line pays for it

    found = difflib.get_close_matches(name.replace("_", "-"), known, n=1, cutoff=0.7)
    return found[0] if found else ""


def _magnitude(text: str) -> int:
    if not _INTEGER.fullmatch(text):
        raise ValueError("must be a whole number")
    if text[0] == "0" and text[1:] and text[1] not in "xXoObB":
        return int(text, 8) if "_" not in text else int(text.replace("_", ""), 8)
    return int(text, 0)


def _shortest(value: Decimal) -> str:
    text = f"{value:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
