"""Events of a burst: what is overtaken is dropped, what is too much is summed up (pure).

A thousand claims at once must not cost two thousand event writes. Two rules make it so,
both for Normal events only; a Warning goes through untouched:

* an event that another one makes pointless ("Provisioning" by "ProvisioningSucceeded") is
  held back for a moment, and dropped if it is overtaken meanwhile;
* of each reason there is a budget of events; what exceeds it, and says where it may be
  summed up, becomes one event there with the number and the latest object. A handful of
  claims never exceeds it, so each keeps its own events.

Times are monotonic seconds.
"""

import collections
import dataclasses
import itertools
from collections.abc import Collection, Hashable, Iterator, Mapping

from bitts.kube import objects
from bitts.kube.correlation import Bucket, Report

HOLD = 1.0
_BURST = 40.0
_RATE = 0.5
_SUMMARY_INTERVAL = 5.0
# A sum goes on with the next event of its kind unless that comes much later.
_SUMMARY_IDLE = 300.0


@dataclasses.dataclass(frozen=True, slots=True)
class Summary:
    """``count`` more events summed up; ``series`` tells sums apart."""

    series: Hashable
    report: Report
    count: int


@dataclasses.dataclass(slots=True)
class _Sum:
    on: objects.ObjectReference
    generation: int
    pending: int = 0
    total: int = 0
    latest: Report | None = None
    due: float = 0.0
    last: float = 0.0


class Bursts:
    """What is on its way from being emitted to being correlated; at most ``limit`` events."""

    def __init__(
        self, supersedes: Mapping[str, Collection[str]], *, limit: int, hold: float = HOLD
    ) -> None:
        self.dropped = 0
        self.superseded = 0
        self.folded = 0
        self._supersedes = supersedes
        self._overtaken = {reason for all_of in supersedes.values() for reason in all_of}
        self._limit = limit
        self._hold = hold
        self._warnings: collections.deque[Report] = collections.deque()
        self._held: dict[tuple[str, ...], tuple[float, Report]] = {}
        self._ready: collections.deque[Report] = collections.deque()
        self._budgets: dict[str, Bucket] = {}
        self._sums: dict[tuple[Hashable, ...], _Sum] = {}

    def __len__(self) -> int:
        return len(self._warnings) + len(self._held) + len(self._ready)

    def add(self, report: Report, now: float) -> None:
        """Take in an event."""
        for reason in self._supersedes.get(report.reason, ()):
            if self._held.pop((*report.subject, "Normal", reason), None) is not None:
                self.superseded += 1
        if len(self) >= self._limit:
            self._make_room()
        if report.type != "Normal":
            self._warnings.append(report)
        elif report.reason in self._overtaken and self._hold > 0:
            self._held.setdefault(report.group, (now + self._hold, report))
        else:
            self._ready.append(report)

    def take(self, now: float, *, drain: bool = False) -> Report | Summary | None:
        """The next event to correlate, Warnings first; ``drain`` waits for nothing."""
        if self._warnings:
            return self._warnings.popleft()
        while (report := self._next_normal(now, drain=drain)) is not None:
            if not self._folds(report, now):
                return report
        return next(self._due_sums(now, drain=drain), None)

    def next_due(self) -> float | None:
        """When ``take`` has something again if nothing is added; ``None`` for never."""
        times = [due for due, _ in itertools.islice(self._held.values(), 1)]
        times += [one.due for one in self._sums.values() if one.pending]
        return min(times, default=None)

    def _next_normal(self, now: float, *, drain: bool) -> Report | None:
        # Held events stay where they can be overtaken until the very moment of writing. They
        # are in the order of their due times, which is that of emission.
        for key, (due, report) in self._held.items():
            if due > now and not drain:
                break
            del self._held[key]
            return report
        return self._ready.popleft() if self._ready else None

    def _folds(self, report: Report, now: float) -> bool:
        """Whether an event is summed up instead of being written itself."""
        if report.summary_on is None:
            return False
        budget = self._budgets.setdefault(report.reason, Bucket(_BURST, _RATE))
        if budget.take(now):
            return False
        on = report.summary_on
        key = (report.reason, on.kind, on.namespace, on.name)
        known = self._sums.get(key)
        if known is None:
            known = self._sums[key] = _Sum(on, 0, due=now + 1.0)
        elif now - known.last > _SUMMARY_IDLE:
            known = self._sums[key] = _Sum(on, known.generation + 1, due=now + 1.0)
        known.pending += 1
        known.total += 1
        known.latest, known.last = report, now
        self.folded += 1
        return True

    def _due_sums(self, now: float, *, drain: bool) -> Iterator[Summary]:
        for key, known in self._sums.items():
            if not known.pending or known.latest is None or (now < known.due and not drain):
                continue
            count, known.pending = known.pending, 0
            known.due = now + _SUMMARY_INTERVAL
            yield Summary((*key, known.generation), _summed(known, known.latest), count)

    def _make_room(self) -> None:
        """Drop the oldest Normal event, else the oldest Warning."""
        self.dropped += 1
        if self._held:
            del self._held[next(iter(self._held))]
        elif self._ready:
            self._ready.popleft()
        else:
            self._warnings.popleft()


def _summed(known: _Sum, latest: Report) -> Report:
    regarding = latest.regarding
    text = (
        f"{latest.reason} on {known.total} more objects, summed up here to spare the API server; "
        f"the latest: {regarding.kind} {regarding.key}: {latest.message}"
    )
    return dataclasses.replace(latest, regarding=known.on, message=text, summary_on=None)
