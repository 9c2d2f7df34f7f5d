"""A clock that tests turn by hand, so that backoffs of minutes take no time and never flicker."""

import heapq
import itertools
from collections.abc import Callable


class VirtualTimer:
    """A scheduled call of a VirtualClock."""

    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback = callback
        self.cancelled = False

    def cancel(self) -> None:
        """Make the call never happen."""
        self.cancelled = True


class VirtualClock:
    """Time that passes only in ``advance``; fits wherever code takes a clock."""

    def __init__(self, now: float = 1_000.0) -> None:
        self._now = now
        self._timers: list[tuple[float, int, VirtualTimer]] = []
        self._order = itertools.count()

    def time(self) -> float:
        """Return the present moment in seconds."""
        return self._now

    def call_at(self, when: float, callback: Callable[[], None]) -> VirtualTimer:
        """Call back when ``advance`` reaches ``when``."""
        timer = VirtualTimer(callback)
        heapq.heappush(self._timers, (when, next(self._order), timer))
        return timer

    @property
    def timers(self) -> int:
        """How many calls are scheduled."""
        return sum(not timer.cancelled for _, _, timer in self._timers)

    def advance(self, seconds: float) -> None:
        """Let time pass; whatever falls due is called at its own moment, in order."""
        end = self._now + seconds
        while self._timers and self._timers[0][0] <= end:
            when, _, timer = heapq.heappop(self._timers)
            self._now = max(self._now, when)
            if not timer.cancelled:
                timer.callback()
        self._now = end
