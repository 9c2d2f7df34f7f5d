"""What the daemon counts about itself: so cheap that it always does, rendered when asked.

An operation costs one dictionary lookup and two additions. Labels are bounded: a plugin or
command that is none of ours is counted as ``other``, whatever a caller sends.
"""

import enum
import threading
from bisect import bisect_left
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from bitts.cni.environment import Command
from bitts.cni.errors import Code

BOUNDS = (
    0.0005, 0.001, 0.002, 0.003, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
    45.0,
)  # fmt: skip
"""Upper bounds of the histogram in seconds: an ADD takes one to three milliseconds."""

OTHER = "other"
_COMMANDS = frozenset(str(each) for each in Command)
_CODES = frozenset([0, *(int(each) for each in Code)])


class Event(enum.StrEnum):
    """What happens without a runtime asking for it, or against its wish."""

    RECOVERED = "recovered"
    """An attachment that a crash or a reboot had cut off was taken apart at the start."""
    REPAIRED = "repaired"
    """One whose removal had failed before was taken apart."""
    UNDONE = "undone"
    """An ADD was taken back because its caller had gone."""
    COLLECTED = "collected"
    """GC named what is valid, and this was not."""
    ORPHANED = "orphaned"
    """The container is gone and no DEL came: its namespace is gone with its link, or the runtime
    does not know it."""
    SWEPT = "swept"
    """A link or an element of ours that no attachment owns was removed."""
    INTENT = "intent"
    """A DEL left by the shim while the daemon was away was carried out."""
    ABANDONED = "abandoned"
    """Addresses were not given back: the program that would have to is gone for good."""
    RELAID = "relaid"
    """Somebody had flushed our rules; they and all elements were laid anew."""


@dataclass(slots=True)
class Times:
    """A histogram of seconds: counts between the bounds, and their sum."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS) + 1))
    total: float = 0.0

    def observe(self, seconds: float) -> None:
        """Count one."""
        self.counts[bisect_left(BOUNDS, seconds)] += 1
        self.total += seconds


@dataclass(frozen=True, slots=True)
class Kind:
    """What operations are told apart by; ``code`` is 0 for success, else that of the answer."""

    plugin: str
    command: str
    code: int


class Tally:
    """All counts of one process. Thread-safe."""

    def __init__(self, plugins: Collection[str] = ()) -> None:
        self.in_flight = 0
        self._mutex = threading.Lock()
        self._plugins = frozenset(plugins)
        self._operations: dict[tuple[str, str, int], Times] = {}
        self._events = dict.fromkeys(Event, 0)

    def started(self) -> None:
        """Count a request that has come."""
        with self._mutex:
            self.in_flight += 1

    def ended(self, plugin: str, command: str, code: int, seconds: float) -> None:
        """Count its answer."""
        with self._mutex:
            self.in_flight -= 1
            times = self._operations.get((plugin, command, code))
            if times is None:
                times = self._new(plugin, command, code)
            times.observe(seconds)

    def _new(self, plugin: str, command: str, code: int) -> Times:
        known = plugin if plugin in self._plugins else OTHER
        verb = command if command in _COMMANDS else OTHER
        number = code if code in _CODES else int(Code.INTERNAL)
        return self._operations.setdefault((known, verb, number), Times())

    def event(self, event: Event, count: int = 1) -> None:
        """Count something that happened by itself."""
        with self._mutex:
            self._events[event] += count

    @property
    def operations(self) -> Mapping[Kind, Times]:
        """Every kind of operation that was seen."""
        with self._mutex:
            return {Kind(*key): times for key, times in self._operations.items()}

    @property
    def events(self) -> Mapping[Event, int]:
        """How often each event happened."""
        return self._events
