"""The two shapes of a log line: klog's text and JSON, as every Kubernetes component writes them.

A record's fields are rendered here, so only records that are really written cost anything.
"""

import fnmatch
import json
import logging
import math
import os
import time
import traceback
from collections.abc import Mapping, Sequence, Set

_LETTERS = ((logging.CRITICAL, "F"), (logging.ERROR, "E"), (logging.WARNING, "W"))
_ESCAPES = {
    '"': '\\"', "\\": "\\\\", "\a": "\\a", "\b": "\\b", "\f": "\\f",
    "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v",
}  # fmt: skip


class Text(logging.Formatter):
    """``I1018 12:34:56.123456       7 app.py:12] "Message" key="value"``, in local time."""

    def __init__(self, program: str) -> None:
        super().__init__()
        self._program = program
        self._process = os.getpid()
        self._second = (-1, "")

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of one record."""
        parts = [self._header(record), " ", quote(record.getMessage())]
        parts += [" logger=", quote(_part(record, self._program))]
        for key, value in _fields(record).items():
            parts += [" ", key, "=", _text(value)]
        line = "".join(parts)
        return (line.replace("\n", "\\n") if "\n" in line else line) + "\n"

    def _header(self, record: logging.LogRecord) -> str:
        second = int(record.created)
        if second != self._second[0]:
            self._second = (second, time.strftime("%m%d %H:%M:%S", time.localtime(second)))
        micros = int((record.created - second) * 1_000_000)
        letter = next((letter for level, letter in _LETTERS if record.levelno >= level), "I")
        place = f"{record.filename}:{record.lineno}"
        return f"{letter}{self._second[1]}.{micros:06d} {self._process:>7} {place}]"


class Json(logging.Formatter):
    """``{"ts":1580306777047.123,"caller":"app/app.py:12","msg":"Message","v":0,"key":"value"}``."""

    def __init__(self, program: str) -> None:
        super().__init__()
        self._program = program
        self._places: dict[str, str] = {}
        self._encoder = json.JSONEncoder(
            separators=(",", ":"), ensure_ascii=False, default=_jsonable, skipkeys=True
        )

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of one record."""
        line: dict[str, object] = {"ts": round(record.created * 1000, 3)}
        line["caller"] = f"{self._place(record.pathname)}:{record.lineno}"
        line["logger"] = _part(record, self._program)
        line["msg"] = record.getMessage()
        if record.levelno < logging.ERROR:
            line["v"] = max(0, logging.INFO - record.levelno)
        for key, value in _fields(record).items():
            line[f"{key}_" if key in line else key] = _finite(value)
        return self._encoder.encode(line) + "\n"

    def _place(self, path: str) -> str:
        place = self._places.get(path)
        if place is None:
            place = self._places[path] = "/".join(path.split("/")[-2:])
        return place


class VerbosityByFile(logging.Filter):
    """``--vmodule``: a verbosity of their own for files whose name matches a pattern."""

    def __init__(self, verbosity: int, limits: Sequence[tuple[str, int]]) -> None:
        super().__init__()
        self._verbosity = verbosity
        self._limits = limits
        self._known: dict[str, int] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Say whether a record is to be written."""
        path = record.pathname
        if path not in self._known:
            self._known[path] = self._limit(path)
        return logging.INFO - record.levelno <= self._known[path]

    def _limit(self, path: str) -> int:
        whole = path.removesuffix(".py")
        name = whole.rpartition("/")[2]
        for pattern, limit in self._limits:
            if fnmatch.fnmatchcase(whole if "/" in pattern else name, pattern):
                return limit
        return self._verbosity


def quote(text: str) -> str:
    """Return ``text`` in double quotes on one line, escaped as Go's %q does."""
    if text.isprintable() and '"' not in text and "\\" not in text:
        return f'"{text}"'
    return f'"{"".join(map(_escape, text))}"'


def _escape(letter: str) -> str:
    if letter in _ESCAPES:
        return _ESCAPES[letter]
    if letter.isprintable():
        return letter
    code = ord(letter)
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _part(record: logging.LogRecord, program: str) -> str:
    """Return the part of the program that wrote a record; libraries keep their own name."""
    return program if record.name == "root" else record.name.removeprefix("bitts.")


def _fields(record: logging.LogRecord) -> dict[str, object]:
    fields: dict[str, object] = getattr(record, "fields", {})
    if record.exc_info and record.exc_info[0]:
        return {**fields, "stacktrace": "".join(traceback.format_exception(*record.exc_info))}
    return fields


def _text(value: object) -> str:
    match value:
        case str():
            return quote(value)
        case bool():
            return "true" if value else "false"
        case int() | float():
            return str(value)
        case None:
            return "<nil>"
        case BaseException():
            return quote(_message(value))
        case Mapping() | Sequence() | Set() if not isinstance(value, bytes):
            plain = _jsonable(value)
            return json.dumps(plain, separators=(",", ":"), default=_jsonable, skipkeys=True)
        case _:
            return quote(str(value))


def _finite(value: object) -> object:
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _jsonable(value: object) -> object:
    match value:
        case BaseException():
            return _message(value)
        case Mapping():
            return dict(value)
        case Set():
            return sorted(map(str, value))
        case Sequence() if not isinstance(value, bytes):
            return list(value)
        case _:
            return str(value)


def _message(error: BaseException) -> str:
    return str(error) or type(error).__name__
