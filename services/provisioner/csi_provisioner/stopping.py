"""Starting up is a series of waits; being asked to stop has to end each of them."""

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import Any, TypeVar

from bitts.core.process import Process

T = TypeVar("T")


class StoppedError(Exception):
    """The process was asked to stop before the work was done; the work is cancelled."""


async def before(process: Process, work: Coroutine[Any, Any, T]) -> T:
    """Return what ``work`` returns, or raise StoppedError if the process has to stop first."""
    task = asyncio.create_task(work, name="start-up")
    asked = asyncio.create_task(process.stopping.wait(), name="asked to stop")
    try:
        await asyncio.wait({task, asked}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        asked.cancel()
        if not task.done():
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait({task})
    if task.cancelled():
        raise StoppedError
    return task.result()
