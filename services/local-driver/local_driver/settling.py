"""New content flushed to the disk a little later, many to one flush.

Where flushing costs far more than making (a btrfs commits its whole transaction), a volume is
answered for as soon as its record is on the disk. Losing the power before the flush loses a
volume that nobody has flushed anything into either: whatever a pod flushes takes the volume
along. So it may be made anew, empty, by the next start. Volumes are told by their serials; the
greatest up to which all are flushed is on the disk, too.
"""

import asyncio
import contextlib
import os
import pathlib
from collections.abc import Callable, Iterator

from bitts.core import logs

from local_driver import filesystems

DELAY = 1.0
"""Seconds between the making of content and the flush."""


class Settler:
    """Has a backend's new content flushed; ``flush`` blocks and is told the greatest serial."""

    def __init__(self, name: str, flush: Callable[[int], None], *, delay: float = DELAY) -> None:
        self._name = name
        self._flush = flush
        self._delay = delay
        self._making: set[int] = set()
        self._newest = 0
        self._settled = 0
        self._task: asyncio.Task[None] | None = None
        self._log = logs.get("storage")

    @contextlib.contextmanager
    def making(self, serial: int) -> Iterator[None]:
        """Make the content of volume ``serial`` inside the block."""
        self._making.add(serial)
        try:
            yield
            self._newest = max(self._newest, serial)
        finally:
            self._making.discard(serial)
        if self._task is None:
            self._task = asyncio.create_task(self._settle_later(), name=f"settle {self._name}")

    async def close(self) -> None:
        """Flush what is left."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        await self._settle()

    async def _settle_later(self) -> None:
        try:
            while self._settled < self._newest:
                await asyncio.sleep(self._delay)
                await self._settle()
        finally:
            self._task = None

    async def _settle(self) -> None:
        # Those that are just being made may be on either side of the flush.
        serial = min(self._newest, min(self._making, default=self._newest + 1) - 1)
        if serial <= self._settled:
            return
        try:
            await asyncio.to_thread(self._flush, serial)
        except OSError as error:
            self._log.warning("New volumes cannot be flushed yet", backend=self._name, err=error)
        else:
            self._settled = serial


class Mark:
    """The file that holds the greatest serial up to which all content is flushed. Blocks."""

    def __init__(self, path: pathlib.Path) -> None:
        self._path = path

    def read(self) -> int:
        """Return the serial; 0 where there is none, which is always safe. Raises OSError."""
        try:
            text = self._path.read_text()
        except FileNotFoundError:
            return 0
        return int(text) if text.isdecimal() else 0

    def write(self, serial: int) -> None:
        """Replace the serial, whole or not at all; raises OSError."""
        partial = self._path.with_suffix(".partial")
        partial.write_text(str(serial))
        filesystems.sync(partial)
        os.replace(partial, self._path)
