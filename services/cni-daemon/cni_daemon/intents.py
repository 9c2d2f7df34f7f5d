"""DELs that the shim left on disk while the daemon was away, carried out when it is back.

An intent is a file that holds a request as it would have been sent. The shim writes it under a
name that begins with a dot, syncs it, and renames it; whatever else is in the folder is old.

The runtime took the DEL for done. What it adds afterwards may want the same port, address or
even the same name, so no ADD begins before the intents that were there when it came.
"""

import os
import pathlib
import threading
import time

from bitts.cni.documents import DocumentError
from bitts.cni.environment import Command
from bitts.cni.errors import CniError, Code
from bitts.core import logs

from cni_daemon import protocol, requests
from cni_daemon.attaching import FAILURES
from cni_daemon.engine import Engine
from cni_daemon.locks import StillBusyError
from cni_daemon.protocol import FrameError
from cni_daemon.tally import Event, Tally

_LIMIT = 10_000
"""Intents looked at in one round."""

_SETTLED = 1_000_000_000
"""Nanoseconds after which another change of a folder shows in its time: clocks are coarse."""

_PATIENCE = 10.0
"""Seconds that an ADD waits for a round that is under way."""


class Intents:
    """The folder of intents. Methods block; any thread may call them."""

    def __init__(self, folder: pathlib.Path, engine: Engine, tally: Tally) -> None:
        self._folder = folder
        self._engine = engine
        self._tally = tally
        self._log = logs.get("intents")
        self._path = str(folder)
        self._mutex = threading.Lock()
        self._empty = -1
        """When the folder was changed last, if it was empty then, and has been for a while."""
        self.waiting = 0
        """How many were there when they were last looked at and could not be carried out."""

    def prepare(self) -> None:
        """Make the folder, for root alone. Raises OSError."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def before_add(self) -> None:
        """Carry out what is there, so that an ADD finds what those DELs have freed.

        One that cannot be carried out now holds nobody up. Never raises.
        """
        try:
            stamp = os.stat(self._path).st_mtime_ns
            if stamp == self._empty:
                return
            if not os.listdir(self._folder):
                if time.time_ns() - stamp > _SETTLED:
                    self._empty = stamp
            elif self._mutex.acquire(timeout=_PATIENCE):
                try:
                    self._round()
                finally:
                    self._mutex.release()
        except OSError as error:
            self._log.warning("Cannot read the intents", err=error)

    def round(self) -> int:
        """Carry out what is there, the oldest first; returns how many are done. Raises OSError."""
        with self._mutex:
            return self._round()

    def _round(self) -> int:
        count = 0
        found = self._waiting()
        self.waiting = len(found)
        for path in found:
            if self._carry_out(path):
                count += 1
                self.waiting -= 1
        self._tally.event(Event.INTENT, count)
        return count

    def _waiting(self) -> list[pathlib.Path]:
        found: list[tuple[int, pathlib.Path]] = []
        for path in self._folder.iterdir():
            if not path.name.startswith(".") and len(found) < _LIMIT:
                found.append((path.stat().st_mtime_ns, path))
        return [path for _, path in sorted(found)]

    def _carry_out(self, path: pathlib.Path) -> bool:
        try:
            request = requests.read(protocol.decode(_read(path)))
            if request.invocation.command is not Command.DEL:
                raise FrameError(f"an intent may only be a DEL, not {request.invocation.command}")
            self._engine.remove(request)
        except (FrameError, DocumentError) as error:
            self._log.error("Dropping a file that is no intent", path=path, err=error)
        except (*FAILURES, StillBusyError) as error:
            if not (isinstance(error, CniError) and error.code in _HOPELESS):
                self._log.warning("An intent must wait", path=path, err=error)
                return False
            self._log.error("Dropping an intent that cannot be carried out", path=path, err=error)
        path.unlink(missing_ok=True)
        return True


_HOPELESS = {
    Code.INCOMPATIBLE_VERSION, Code.UNKNOWN_CONTAINER, Code.INVALID_ENVIRONMENT,
    Code.DECODING_FAILURE, Code.INVALID_CONFIG, Code.UNSUPPORTED_FIELD,
}  # fmt: skip


def _read(path: pathlib.Path) -> bytes:
    limit = protocol.HEADER.size + protocol.REQUEST_LIMIT
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:
        return file.read(limit + 1)
