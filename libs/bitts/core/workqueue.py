"""A queue of keys, each at most once, that says *which* object to look at, never *why*.

The rules are those of client-go's rate-limited queue, which every sidecar relies on:

- a key waits at most once; adding it again changes nothing;
- a key in work is never handed out a second time; if it was added meanwhile it is handed out
  again as soon as its worker is done;
- ``retry`` waits exponentially longer per key until ``forget``; ``add_after`` keeps the earlier
  of two deadlines; a plain ``add`` skips any wait.

Two rules go beyond them. Handing a key out answers every earlier wish for it, so a delay that
was overtaken never fires for nothing. And ``add(key, own_write=True)``, for the watch event of
a change that we made ourselves, leaves a delay alone: else each failed attempt that writes a
status would be followed by another at once.

Memory is bounded by the number of distinct keys. All waits share one timer. The queue belongs
to one event loop and takes no locks.
"""

import asyncio
import heapq
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

from bitts.core import backoff

DURATION_BUCKETS = (1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0)
"""Upper bounds in seconds, as in every Kubernetes controller's ``workqueue_*`` histograms."""

_SLACK = 64  # overtaken heap entries tolerated before the heap is rebuilt


class ShutDown(Exception):  # noqa: N818 - not an error: the queue's regular end
    """No key will be handed out any more."""


class Timer(Protocol):
    """What a scheduled call can do."""

    def cancel(self) -> None:
        """Make the call never happen."""


class Clock(Protocol):
    """Where the queue takes its time from: the machine, or a test's virtual time."""

    def time(self) -> float:
        """Return monotonic seconds."""

    def call_at(self, when: float, callback: Callable[[], None]) -> Timer:
        """Call back once ``time()`` has reached ``when``, on the event loop."""


class LoopClock:
    """The machine's time. Not the loop's own, which uvloop counts in whole milliseconds."""

    __slots__ = ()

    def time(self) -> float:
        """Return monotonic seconds."""
        return time.monotonic()

    def call_at(self, when: float, callback: Callable[[], None]) -> Timer:
        """Call back at ``when`` or a millisecond around it."""
        delay = max(0.0, when - time.monotonic())
        return asyncio.get_running_loop().call_later(delay, callback)


@dataclass(slots=True)
class Durations:
    """A histogram so cheap that the queue can always keep it; rendered only when scraped."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(DURATION_BUCKETS) + 1))
    total: float = 0.0

    def observe(self, seconds: float) -> None:
        """Count one duration."""
        self.counts[bisect_left(DURATION_BUCKETS, seconds)] += 1
        self.total += seconds


@dataclass(slots=True)
class Figures:
    """What happened in the queue since it was made."""

    adds: int = 0
    retries: int = 0
    waits: Durations = field(default_factory=Durations)
    work: Durations = field(default_factory=Durations)


class WorkQueue:
    """The keys to work on. ``start`` and ``maximum`` bound the delay of retries, in seconds."""

    def __init__(
        self,
        name: str,
        *,
        start: float = 1.0,
        maximum: float = 300.0,
        clock: Clock = LoopClock(),  # noqa: B008 - it has no state
    ) -> None:
        self.name = name
        self.figures = Figures()
        self._start = start
        self._maximum = maximum
        self._clock = clock
        self._ready: deque[str] = deque()
        self._added: dict[str, float] = {}  # to be handed out (now or after done) → since when
        self._processing: dict[str, float] = {}  # in work → since when
        self._own_writes: set[str] = set()  # in work, and touched by ourselves meanwhile
        self._failures: dict[str, int] = {}
        self._deadlines: dict[str, float] = {}
        self._heap: list[tuple[float, str]] = []  # may hold overtaken entries
        self._timer: Timer | None = None
        self._timer_at = 0.0
        self._getters: deque[asyncio.Future[None]] = deque()
        self._closed = False

    def add(self, key: str, *, own_write: bool = False) -> None:
        """Have ``key`` handed out as soon as a worker is free, whatever delay it has.

        With ``own_write`` a delay stays as it is: the change that is reported was our own.
        """
        if self._closed or key in self._added:
            return
        if own_write:
            if key in self._deadlines:
                return
            if key in self._processing:
                self._own_writes.add(key)
                return
        self._enqueue(key)

    def add_after(self, key: str, delay: float) -> None:
        """Have ``key`` handed out in ``delay`` seconds, or earlier if that was asked for."""
        self.figures.retries += 1
        if self._closed or key in self._added:
            return
        if delay <= 0:
            self._enqueue(key)
            return
        when = self._clock.time() + delay
        known = self._deadlines.get(key)
        if known is None or when < known:
            self._deadlines[key] = when
            heapq.heappush(self._heap, (when, key))
            self._arm()

    def retry(self, key: str) -> float:
        """Count a failure of ``key`` and have it tried again; return the delay in seconds."""
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        delay = backoff.delay(failures, self._start, self._maximum)
        self.add_after(key, delay)
        return delay

    def forget(self, key: str) -> None:
        """Let the next ``retry`` of ``key`` start again with the shortest delay."""
        self._failures.pop(key, None)

    def failures(self, key: str) -> int:
        """Return how often ``key`` was retried since it was last forgotten."""
        return self._failures.get(key, 0)

    async def get(self) -> str:
        """Wait for a key and take it into work; its worker must call ``done``.

        Raises ShutDown once the queue is closed, even if keys are left: work that has not
        begun is found again from the state of the cluster.
        """
        while not self._closed:
            if self._ready:
                return self._hand_out()
            getter = asyncio.get_running_loop().create_future()
            self._getters.append(getter)
            try:
                await getter
            except asyncio.CancelledError:
                self._pass_on(getter)
                raise
        raise ShutDown(self.name)

    def done(self, key: str) -> None:
        """End the work on ``key``; it is queued again if it was added meanwhile."""
        self.figures.work.observe(self._clock.time() - self._processing.pop(key))
        own_write = key in self._own_writes
        self._own_writes.discard(key)
        if key in self._added:
            self._ready.append(key)
            self._wake()
        elif own_write and key not in self._deadlines:
            self.add(key)

    def shut_down(self) -> None:
        """Hand out nothing any more; keys in work may still be done."""
        self._closed = True
        self._ready.clear()
        self._added.clear()
        self._own_writes.clear()
        self._deadlines.clear()
        self._heap.clear()
        self._failures.clear()
        self._disarm()
        while self._getters:
            self._wake()

    @property
    def depth(self) -> int:
        """How many keys wait for a worker."""
        return len(self._ready)

    @property
    def processing(self) -> int:
        """How many keys are in work."""
        return len(self._processing)

    @property
    def delayed(self) -> int:
        """How many keys wait for their time to come."""
        return len(self._deadlines)

    @property
    def retrying(self) -> int:
        """How many keys have failed and not succeeded since."""
        return len(self._failures)

    @property
    def oldest_wait(self) -> float:
        """For how many seconds the next key has been waiting for a worker."""
        return self._clock.time() - self._added[self._ready[0]] if self._ready else 0.0

    def work_ages(self) -> list[float]:
        """Return for how many seconds each key in work has been so."""
        now = self._clock.time()
        return [now - since for since in self._processing.values()]

    def due_in(self, key: str) -> float | None:
        """Return the seconds until a delayed ``key`` is handed out, None if it has no delay."""
        when = self._deadlines.get(key)
        return None if when is None else max(0.0, when - self._clock.time())

    def ready_keys(self) -> Iterator[str]:
        """Iterate over the keys that wait for a worker, the next one first."""
        return iter(self._ready)

    def _enqueue(self, key: str) -> None:
        self.figures.adds += 1
        self._added[key] = self._clock.time()
        self._own_writes.discard(key)
        self._deadlines.pop(key, None)
        if key not in self._processing:
            self._ready.append(key)
            self._wake()

    def _hand_out(self) -> str:
        key = self._ready.popleft()
        now = self._clock.time()
        self.figures.waits.observe(now - self._added.pop(key))
        self._processing[key] = now
        return key

    def _wake(self) -> None:
        while self._getters:
            getter = self._getters.popleft()
            if not getter.done():
                getter.set_result(None)
                return

    def _pass_on(self, getter: asyncio.Future[None]) -> None:
        """Give the wake-up of a cancelled getter to another one, or forget the getter."""
        if getter.done() and not getter.cancelled():
            if self._ready:
                self._wake()
        elif getter in self._getters:
            self._getters.remove(getter)

    def _arm(self) -> None:
        """Have the timer fire at the earliest deadline; drop overtaken entries on the way."""
        if len(self._heap) > 2 * len(self._deadlines) + _SLACK:
            self._heap = [(when, key) for key, when in self._deadlines.items()]
            heapq.heapify(self._heap)
        while self._heap and self._deadlines.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        if not self._heap:
            return
        first = self._heap[0][0]
        if self._timer is None or first < self._timer_at:
            self._disarm()
            self._timer = self._clock.call_at(first, self._fire)
            self._timer_at = first

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _fire(self) -> None:
        self._timer = None
        now = self._clock.time()
        while self._heap and self._heap[0][0] <= now:
            when, key = heapq.heappop(self._heap)
            if self._deadlines.get(key) == when:
                self._enqueue(key)
        self._arm()
