"""Waiting for a condition until a deadline: the only way tests wait for other processes.

A test never sleeps to give something time; it names what it waits for, so that a failure
says what did not happen. Kernel objects and files of other processes cannot be awaited, so
they are polled: quickly at first, and less often the longer it takes, since each look costs
time that what is waited for could use.
"""

import asyncio
import inspect
import os
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar, overload

T = TypeVar("T")
SHORTEST, LONGEST = 0.01, 0.1
"""Seconds between two looks: at first, and at most."""
SHARE = 10
"""A pause is this part of the time waited so far, between those two."""
PATIENCE = float(os.environ.get("BITTS_PATIENCE", "4"))
"""How many times longer to wait than an idle machine needs at most: others compute, too."""
LONGEST_WAIT = 240.0
"""Seconds after which patience ends: a test's own timeout is longer, and tells less."""


class DeadlineError(AssertionError):
    """The condition did not come true in time."""


def patient(timeout: float) -> float:
    """Return how long to wait on a busy machine for what takes so long at most on an idle one."""
    return max(timeout, min(timeout * PATIENCE, LONGEST_WAIT))


class _Watch:
    """The time of one wait."""

    def __init__(self, what: str, timeout: float, interval: float | None) -> None:
        self._what = what
        self._limit = patient(timeout)
        self._interval = interval
        self._begun = time.monotonic()

    def pause(self, answer: object) -> float:
        """Return how long to wait until the next look, DeadlineError when there is none."""
        waited = time.monotonic() - self._begun
        if waited > self._limit:
            raise DeadlineError(
                f"{self._what}: not within {self._limit:g} s, last answer {answer!r}"
            )
        if self._interval is not None:
            return self._interval
        return min(max(waited / SHARE, SHORTEST), LONGEST)


def until_blocking(check: Callable[[], T | None], what: str, timeout: float = 15.0) -> T:
    """Return the first truthy answer of ``check``; for use outside an event loop."""
    watch = _Watch(what, timeout, None)
    while not (answer := check()):
        time.sleep(watch.pause(answer))
    return answer


@overload
async def until(
    check: Callable[[], Awaitable[T | None]],
    what: str,
    timeout: float = ...,
    interval: float | None = ...,
) -> T: ...
@overload
async def until(
    check: Callable[[], T | None], what: str, timeout: float = ..., interval: float | None = ...
) -> T: ...
async def until(
    check: Callable[[], object], what: str, timeout: float = 15.0, interval: float | None = None
) -> object:
    """Return the first truthy answer of ``check``, which may be a coroutine function.

    Raises DeadlineError naming ``what`` and the last answer after ``timeout`` seconds, or longer
    (``patient``). ``interval`` is for what measures: the seconds between two looks.
    """
    watch = _Watch(what, timeout, interval)
    while True:
        found = check()
        answer = await found if inspect.isawaitable(found) else found
        if answer:
            return answer
        await asyncio.sleep(watch.pause(answer))
