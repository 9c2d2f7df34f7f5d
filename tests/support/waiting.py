"""Waiting for a condition until a deadline: the only way tests wait for other processes.

A test never sleeps to give something time; it names what it waits for, so that a failure
says what did not happen. Kernel objects and files of other processes cannot be awaited, so
they are polled quickly.
"""

import asyncio
import inspect
import os
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar, overload

T = TypeVar("T")
INTERVAL = 0.01
PATIENCE = float(os.environ.get("BITTS_PATIENCE", "1"))
"""How many times longer than usual to wait: for machines that are slow all over."""


class DeadlineError(AssertionError):
    """The condition did not come true in time."""


def until_blocking(check: Callable[[], T | None], what: str, timeout: float = 15.0) -> T:
    """Return the first truthy answer of ``check``; for use outside an event loop."""
    deadline = time.monotonic() + timeout * PATIENCE
    while not (answer := check()):
        if time.monotonic() > deadline:
            raise DeadlineError(f"{what}: not within {timeout:g} s, last answer {answer!r}")
        time.sleep(INTERVAL)
    return answer


@overload
async def until(
    check: Callable[[], Awaitable[T | None]],
    what: str,
    timeout: float = ...,
    interval: float = ...,
) -> T: ...
@overload
async def until(
    check: Callable[[], T | None], what: str, timeout: float = ..., interval: float = ...
) -> T: ...
async def until(
    check: Callable[[], object], what: str, timeout: float = 15.0, interval: float = INTERVAL
) -> object:
    """Return the first truthy answer of ``check``, which may be a coroutine function.

    Raises DeadlineError naming ``what`` and the last answer after ``timeout`` seconds.
    """
    deadline = time.monotonic() + timeout * PATIENCE
    while True:
        found = check()
        answer = await found if inspect.isawaitable(found) else found
        if answer:
            return answer
        if time.monotonic() > deadline:
            raise DeadlineError(f"{what}: not within {timeout:g} s, last answer {answer!r}")
        await asyncio.sleep(interval)
