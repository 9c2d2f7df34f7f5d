"""What each control loop is working on, what it decided and why: the memory behind *explain*.

Writing an entry is a few dictionary operations, since it happens for every decision of a busy
loop. Memory is bounded: objects in work are as many as there are workers; of the waiting and of
the finished ones the latest are kept. Times are Unix seconds.
"""

import asyncio
import contextlib
import enum
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Self


class Phase(enum.StrEnum):
    """Where an object stands in its loop."""

    WORKING = "working"
    WAITING = "waiting"
    FINISHED = "finished"


@dataclass(frozen=True, slots=True)
class Decision:
    """One thing that a loop decided about one object."""

    sequence: int
    time: float
    loop: str
    key: str
    decision: str
    reason: str
    error: str = ""


@dataclass(frozen=True, slots=True)
class Entry:
    """All that is remembered of one object in one loop.

    ``error`` is that of the last attempt that came to an end; ``retry_at`` is None without a delay.
    """

    loop: str
    key: str
    phase: Phase
    since: float
    decision: str
    reason: str
    decided_at: float
    error: str
    failures: int
    retry_at: float | None


class _Record:
    """An entry while it changes."""

    __slots__ = ("error", "failures", "last", "new_error", "phase", "retry_at", "since")

    def __init__(self) -> None:
        self.phase = Phase.WORKING
        self.since = 0.0
        self.last: Decision | None = None
        self.error = ""
        self.new_error = ""
        self.failures = 0
        self.retry_at: float | None = None


class Ledger:
    """The decisions of all loops of one process. Any thread may write.

    ``waiting`` and ``finished`` say how many objects of either phase are remembered.
    """

    def __init__(
        self,
        *,
        waiting: int = 20_000,
        finished: int = 1_000,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._limits = {Phase.WAITING: waiting, Phase.FINISHED: finished}
        self._clock = clock
        self._records: dict[tuple[str, str], _Record] = {}
        self._order: dict[Phase, dict[tuple[str, str], None]] = {phase: {} for phase in Phase}
        self._sequence = 0
        self._mutex = threading.RLock()
        self._subscriptions: set[Subscription] = set()

    def started(self, loop: str, key: str) -> None:
        """Note that ``loop`` took up ``key``."""
        with self._mutex:
            self._move(loop, key, Phase.WORKING).retry_at = None

    def decided(
        self, loop: str, key: str, decision: str, reason: str, *, error: str = ""
    ) -> Decision:
        """Note a decision and tell the subscribers."""
        with self._mutex:
            self._sequence += 1
            made = Decision(self._sequence, self._clock(), loop, key, decision, reason, error)
            record = self._records.get((loop, key)) or self._move(loop, key, Phase.FINISHED)
            record.last = made
            record.new_error = error or record.new_error
            for subscription in tuple(self._subscriptions):
                subscription._offer(made)  # noqa: SLF001 - the two classes are one mechanism
            return made

    def retry_at(self, loop: str, key: str, when: float, *, failures: int) -> None:
        """Note that ``key`` is tried again at ``when``, after ``failures`` failures in a row."""
        with self._mutex:
            record = self._conclude(loop, key, Phase.WAITING)
            record.retry_at = when
            record.failures = failures

    def waits(self, loop: str, key: str, until: float | None = None) -> None:
        """Note that ``key`` waits for an event, at the longest ``until``, and has not failed."""
        with self._mutex:
            self._conclude(loop, key, Phase.WAITING).retry_at = until

    def finished(self, loop: str, key: str) -> None:
        """Note that there is nothing left to do for ``key``."""
        with self._mutex:
            record = self._conclude(loop, key, Phase.FINISHED)
            record.retry_at = None
            record.failures = 0

    def entry(self, loop: str, key: str) -> Entry | None:
        """Return what is remembered of one object."""
        with self._mutex:
            record = self._records.get((loop, key))
            return None if record is None else _entry(loop, key, record)

    def snapshot(self) -> list[Entry]:
        """Return what is remembered of all objects: in work first, then waiting, then finished."""
        with self._mutex:
            return [
                _entry(loop, key, self._records[loop, key])
                for names in self._order.values()
                for loop, key in names
            ]

    def subscribe(self, *, limit: int = 1_000) -> "Subscription":
        """Return a stream of the decisions from now on; unread ones beyond ``limit`` get lost."""
        return Subscription(self._subscriptions, limit)

    def _conclude(self, loop: str, key: str, phase: Phase) -> _Record:
        record = self._move(loop, key, phase)
        record.error, record.new_error = record.new_error, ""
        return record

    def _move(self, loop: str, key: str, phase: Phase) -> _Record:
        name = (loop, key)
        record = self._records.get(name)
        if record is None:
            record = self._records[name] = _Record()
        else:
            del self._order[record.phase][name]
        record.phase = phase
        record.since = self._clock()
        kept = self._order[phase]
        kept[name] = None
        if len(kept) > self._limits.get(phase, len(kept)):
            oldest = next(iter(kept))
            del kept[oldest], self._records[oldest]
        return record


class Subscription:
    """An endless async iterator of decisions. ``dropped`` counts those that were not read in time.

    Close it, or use it as a context manager; otherwise it is fed for ever.
    """

    def __init__(self, siblings: "set[Subscription]", limit: int) -> None:
        self.dropped = 0
        self._siblings = siblings
        self._unread: deque[Decision] = deque(maxlen=limit)
        self._arrived = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        """Where somebody reads, once somebody does."""
        self._closed = False
        siblings.add(self)

    def _offer(self, decision: Decision) -> None:
        if len(self._unread) == self._unread.maxlen:
            self.dropped += 1
        self._unread.append(decision)
        if self._loop is not None and not _is_running(self._loop):
            with contextlib.suppress(RuntimeError):  # the reader's loop has ended
                self._loop.call_soon_threadsafe(self._arrived.set)
        else:
            self._arrived.set()

    def close(self) -> None:
        """End the stream; an iteration in progress stops."""
        self._closed = True
        self._siblings.discard(self)
        self._arrived.set()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Decision:
        self._loop = asyncio.get_running_loop()
        while not self._unread:
            if self._closed:
                raise StopAsyncIteration
            self._arrived.clear()
            await self._arrived.wait()
        return self._unread.popleft()


def _is_running(loop: asyncio.AbstractEventLoop) -> bool:
    """Say whether the calling thread is the loop's."""
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False


def _entry(loop: str, key: str, record: _Record) -> Entry:
    last = record.last
    return Entry(
        loop=loop,
        key=key,
        phase=record.phase,
        since=record.since,
        decision=last.decision if last else "",
        reason=last.reason if last else "",
        decided_at=last.time if last else 0.0,
        error=record.error,
        failures=record.failures,
        retry_at=record.retry_at,
    )
