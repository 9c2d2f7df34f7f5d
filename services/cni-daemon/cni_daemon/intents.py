"""DELs that the shim left on disk while the daemon was away, carried out when it is back.

An intent is a file that holds a request as it would have been sent. The shim writes it under a
name that begins with a dot, syncs it, and renames it; whatever else is in the folder is old.
"""

import asyncio
import os
import pathlib

from bitts.cni.errors import CniError, Code
from bitts.core import logs

from cni_daemon import protocol
from cni_daemon.answering import Answerer
from cni_daemon.attaching import FAILURES
from cni_daemon.protocol import FrameError
from cni_daemon.tally import Event, Tally

_LIMIT = 10_000
"""Intents looked at in one round."""


class Intents:
    """The folder of intents."""

    def __init__(self, folder: pathlib.Path, answerer: Answerer, tally: Tally) -> None:
        self._folder = folder
        self._answerer = answerer
        self._tally = tally
        self._log = logs.get("intents")
        self.waiting = 0
        """How many were there when they were last looked at and could not be carried out."""

    def prepare(self) -> None:
        """Make the folder, for root alone. Raises OSError."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    async def round(self) -> int:
        """Carry out what is there, the oldest first; returns how many are done."""
        count = 0
        found = await asyncio.to_thread(self._waiting)
        self.waiting = len(found)
        for path in found:
            if await self._carry_out(path):
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

    async def _carry_out(self, path: pathlib.Path) -> bool:
        try:
            data = await asyncio.to_thread(_read, path)
            await self._answerer.carry_out(protocol.decode(data))
        except FrameError as error:
            self._log.error("Dropping a file that is no intent", path=path, err=error)
        except FAILURES as error:
            if not (isinstance(error, CniError) and error.code in _HOPELESS):
                self._log.warning("An intent must wait", path=path, err=error)
                return False
            self._log.error("Dropping an intent that cannot be carried out", path=path, err=error)
        await asyncio.to_thread(path.unlink, missing_ok=True)
        return True


_HOPELESS = {
    Code.INCOMPATIBLE_VERSION, Code.UNKNOWN_CONTAINER, Code.INVALID_ENVIRONMENT,
    Code.DECODING_FAILURE, Code.INVALID_CONFIG,
}  # fmt: skip


def _read(path: pathlib.Path) -> bytes:
    limit = protocol.HEADER.size + protocol.REQUEST_LIMIT
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:
        return file.read(limit + 1)
