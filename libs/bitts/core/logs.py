"""Structured logs in klog's text and JSON shapes, on top of the standard library's logging.

The message is a constant; data goes in fields::

    log = logs.get("provisioner").bind(pvc="shop/cart")
    log.info("Volume created", volume=handle)
    log.at(5).info("Topology chosen", terms=terms)      # only with --v=5 and above

Nothing is rendered for a record whose level is off. klog's verbosity ``n`` is level ``20 - n``
of the standard library, so that libraries' own records come out in the same shape and one level
test decides. One record is one line, whatever its fields hold.
"""

import logging
import sys
from types import TracebackType

from bitts.core import literals, logformat
from bitts.core.sidecarflags import LogOptions
from bitts.core.sink import Sink

_DEEPEST = logging.INFO - 1  # verbosity of the standard library's lowest level
_ROOT = "bitts"
_LIBRARIES_FROM = 6  # libraries' own informative records from this verbosity on

_ExcInfo = tuple[type[BaseException], BaseException, TracebackType | None]


class Logger:
    """Writes records that carry the bound fields. Cheap to bind: make one per object in work."""

    __slots__ = ("_fields", "_inner", "_level")

    def __init__(
        self, inner: logging.Logger, fields: dict[str, object], level: int = logging.INFO
    ) -> None:
        self._inner = inner
        self._fields = fields
        self._level = level

    def bind(self, **fields: object) -> "Logger":
        """Return a logger whose records also carry ``fields``."""
        return Logger(self._inner, {**self._fields, **fields}, self._level)

    def at(self, verbosity: int) -> "Logger":
        """Return a logger whose ``info`` needs ``--v`` to be ``verbosity`` or more."""
        return Logger(self._inner, self._fields, logging.INFO - min(verbosity, _DEEPEST))

    def is_enabled(self) -> bool:
        """Say whether ``info`` writes anything: ask before preparing costly fields."""
        return self._inner.isEnabledFor(self._level)

    def info(self, message: str, /, **fields: object) -> None:
        """Record that something happened."""
        if self._inner.isEnabledFor(self._level):
            self._write(self._level, message, fields)

    def warning(self, message: str, /, **fields: object) -> None:
        """Record what works but should be changed."""
        if self._inner.isEnabledFor(logging.WARNING):
            self._write(logging.WARNING, message, fields)

    def error(self, message: str, /, *, err: object = None, **fields: object) -> None:
        """Record a failure; ``err`` is its cause."""
        if self._inner.isEnabledFor(logging.ERROR):
            self._write(logging.ERROR, message, fields if err is None else {"err": err, **fields})

    def exception(self, message: str, /, **fields: object) -> None:
        """Record the exception being handled as an error, with its trace."""
        kind, error, trace = sys.exc_info()
        if kind is None or error is None:
            raise RuntimeError("Logger.exception is for except blocks")
        self._write(logging.ERROR, message, {"err": error, **fields}, (kind, error, trace))

    def _write(
        self,
        level: int,
        message: str,
        fields: dict[str, object],
        exc_info: _ExcInfo | None = None,
    ) -> None:
        caller = sys._getframe(2)  # noqa: SLF001 - the caller of info, warning or error
        code = caller.f_code
        record = self._inner.makeRecord(
            self._inner.name,
            level,
            code.co_filename,
            caller.f_lineno,
            message,
            (),
            exc_info,
            code.co_name,
            {"fields": {**self._fields, **fields} if self._fields else fields},
        )
        self._inner.handle(record)


class _Handler(logging.Handler):
    """Formats records and hands the lines to the sink."""

    def __init__(self, descriptor: int) -> None:
        super().__init__()
        self.sink = Sink(descriptor, self._dropped)

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = self.format(record)
        except Exception:  # noqa: BLE001 - a field that cannot be rendered must not stop the caller
            self.handleError(record)
            return
        self.sink.write(_encoded(line))

    def _dropped(self, count: int) -> bytes:
        message = "Log records dropped, standard error was not read in time"
        record = logging.LogRecord("root", logging.WARNING, __file__, 0, message, (), None)
        record.fields = {"count": count}
        return _encoded(self.format(record))


def _encoded(line: str) -> bytes:
    return line.encode(errors="backslashreplace")


def get(name: str) -> Logger:
    """Return the logger of a part of the program; ``name`` appears as ``logger``."""
    return Logger(logging.getLogger(f"{_ROOT}.{name}"), {})


def configure(options: LogOptions, program: str, *, descriptor: int = 2) -> None:
    """Send all records, ours and libraries', to ``descriptor`` as ``options`` say.

    May be called again. ``program`` names records of no particular part.
    """
    limits = literals.vmodule(options.vmodule)
    deepest = max([options.verbosity, *(limit for _, limit in limits)])
    handler = _Handler(descriptor)
    json_wanted = options.format == "json"
    handler.setFormatter(logformat.Json(program) if json_wanted else logformat.Text(program))
    if limits:
        handler.addFilter(logformat.VerbosityByFile(options.verbosity, limits))
    root = logging.getLogger()
    for old in [each for each in root.handlers if isinstance(each, _Handler)]:
        root.removeHandler(old)
    root.addHandler(handler)
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False  # not shown
    logging.getLogger(_ROOT).setLevel(logging.INFO - min(deepest, _DEEPEST))
    root.setLevel(logging.INFO if options.verbosity >= _LIBRARIES_FROM else logging.WARNING)
    logging.captureWarnings(capture=True)


def flush(timeout: float = 2.0) -> None:
    """Wait up to ``timeout`` seconds until all lines are written; to be called before exiting."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler, _Handler):
            handler.sink.flush(timeout)
