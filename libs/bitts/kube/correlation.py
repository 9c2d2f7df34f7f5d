"""Which events are worth a write, and whether it is a new object or a count (pure).

The rules are those that users of Kubernetes know from its own recorder:

* the same event again raises the count of the object written before;
* more than ten different messages for one object, type and reason within ten minutes go on
  as one event, marked as combined;
* per object and type, 25 events at once and one every five minutes after; what exceeds that
  is counted but not written, so a later write carries the sum;
* memory is bounded: the least recently used series is forgotten.

Times are monotonic seconds.
"""

import collections
import dataclasses
from collections.abc import Hashable
from typing import Generic, TypeVar

from bitts.kube import objects

COMBINED_PREFIX = "(combined from similar events): "
_SIMILAR_LIMIT = 10
_SIMILAR_WINDOW = 600.0
_SPAM_BURST = 25.0
_SPAM_RATE = 1 / 300
_REMEMBERED = 4096

V = TypeVar("V")


@dataclasses.dataclass(frozen=True, slots=True)
class Report:
    """An event as it was emitted; ``stamp`` is the wall clock's text for its time.

    ``summary_on`` is where it may be summed up instead if there are too many of its reason.
    """

    regarding: objects.ObjectReference
    type: str
    reason: str
    message: str
    stamp: str = ""
    summary_on: objects.ObjectReference | None = None

    @property
    def subject(self) -> tuple[str, ...]:
        """What identifies the object."""
        one = self.regarding
        return (one.api_version, one.kind, one.namespace, one.name, one.uid, one.field_path)

    @property
    def group(self) -> tuple[str, ...]:
        """What identifies similar events."""
        return (*self.subject, self.type, self.reason)


@dataclasses.dataclass(frozen=True, slots=True)
class Write:
    """An event to write: a new object, or (``name`` given) a change of an existing one."""

    series: Hashable
    report: Report
    message: str
    count: int
    first_stamp: str
    name: str = ""


@dataclasses.dataclass(slots=True)
class _Series:
    count: int
    first_stamp: str
    name: str = ""


@dataclasses.dataclass(slots=True)
class _Similar:
    messages: set[str]
    last: float


@dataclasses.dataclass(slots=True)
class Bucket:
    """A token bucket: ``burst`` at once, ``rate`` a second."""

    burst: float
    rate: float
    tokens: float = -1.0
    at: float = 0.0

    def take(self, now: float) -> bool:
        """Spend a token if there is one."""
        full = self.tokens < 0
        earned = self.burst if full else self.tokens + (now - self.at) * self.rate
        self.tokens, self.at = min(self.burst, earned), now
        if self.tokens < 1:
            return False
        self.tokens -= 1
        return True


class _Recent(Generic[V]):
    """A dict that forgets what was not asked for longest."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._values: collections.OrderedDict[Hashable, V] = collections.OrderedDict()

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: Hashable) -> V | None:
        if key in self._values:
            self._values.move_to_end(key)
        return self._values.get(key)

    def put(self, key: Hashable, value: V) -> V:
        self._values[key] = value
        self._values.move_to_end(key)
        if len(self._values) > self._limit:
            self._values.popitem(last=False)
        return value


class Correlator:
    """Remembers what one component has reported."""

    def __init__(self, *, remembered: int = _REMEMBERED) -> None:
        self._series = _Recent[_Series](remembered)
        self._similar = _Recent[_Similar](remembered)
        self._spam = _Recent[Bucket](remembered)

    def correlate(self, report: Report, now: float) -> Write | None:
        """What to write for an event; ``None`` if it is only counted."""
        combined = self._is_one_of_many(report, now)
        message = COMBINED_PREFIX + report.message if combined else report.message
        series = report.group if combined else (*report.group, report.message)
        write = self.continue_series(series, report, message)
        key = (*report.subject, report.type)
        bucket = self._spam.get(key) or self._spam.put(key, Bucket(_SPAM_BURST, _SPAM_RATE))
        return write if bucket.take(now) else None

    def continue_series(self, key: Hashable, report: Report, message: str, count: int = 1) -> Write:
        """Count ``count`` more occurrences of a series and write its newest state."""
        known = self._series.get(key) or self._series.put(key, _Series(0, report.stamp))
        known.count += count
        return Write(key, report, message, known.count, known.first_stamp, known.name)

    def written(self, write: Write, name: str) -> None:
        """The server took it under this name: the next of its series is a change of it."""
        if (known := self._series.get(write.series)) is not None:
            known.name = name

    def _is_one_of_many(self, report: Report, now: float) -> bool:
        known = self._similar.get(report.group)
        if known is None or now - known.last > _SIMILAR_WINDOW:
            known = self._similar.put(report.group, _Similar(set(), now))
        known.last = now
        known.messages.add(report.message)
        if len(known.messages) < _SIMILAR_LIMIT:
            return False
        known.messages.pop()
        return True
