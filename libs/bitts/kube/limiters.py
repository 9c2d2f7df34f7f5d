"""How many requests, how fast: the arithmetic of pacing (pure; the clock is passed in).

``wait`` answers in seconds: 0 for now, infinity for "when a request ends".
"""

import math
from typing import Protocol

# More connections make no request quicker: this many keep one event loop busy.
MAXIMUM_IN_FLIGHT = 64.0
# A burst is over before a limit has grown: Kubernetes stores 1,000 volumes in 6.9 s at this one,
# in 7.8 s at 16. Its priority and fairness queue what is too much, or say 429.
START_IN_FLIGHT = MAXIMUM_IN_FLIGHT


class Limiter(Protocol):
    """Decides when one more request may start."""

    @property
    def mode(self) -> str:
        """A word for introspection."""
        ...

    @property
    def limit(self) -> float:
        """How many requests may be in flight."""
        ...

    def wait(self, now: float, in_flight: int) -> float:
        """How long the next request has to wait."""
        ...

    def take(self, now: float) -> None:
        """A request starts."""
        ...

    def finished(self, started: float, now: float, *, in_flight: int, overloaded: bool) -> None:
        """One of ``in_flight`` requests ended; ``overloaded`` if it showed trouble."""
        ...


class Adaptive:
    """Additive increase, multiplicative decrease of the requests in flight."""

    mode = "adaptive"

    def __init__(self, start: float = START_IN_FLIGHT, maximum: float = MAXIMUM_IN_FLIGHT) -> None:
        self._limit = start
        self._maximum = maximum
        self._last_cut = -math.inf

    @property
    def limit(self) -> float:
        """How many requests may be in flight; at least one."""
        return self._limit

    def wait(self, now: float, in_flight: int) -> float:
        """No wait while there is a place."""
        return 0.0 if in_flight < int(self._limit) else math.inf

    def take(self, now: float) -> None:
        """Nothing to note: places are counted by the caller."""

    def finished(self, started: float, now: float, *, in_flight: int, overloaded: bool) -> None:
        """Grow by one per round of good answers; halve on trouble."""
        if not overloaded:
            if in_flight < self._limit / 2:
                return  # the limit was not tried
            self._limit = min(self._maximum, self._limit + 1 / self._limit)
        elif started >= self._last_cut:
            # One crowd is one cut: the requests sent before it tell nothing new.
            self._limit = max(1.0, self._limit / 2)
            self._last_cut = now


class TokenBucket:
    """client-go's rate limiter: ``qps`` on average, ``burst`` at once, none saved beyond."""

    mode = "exact"

    def __init__(self, qps: float, burst: int) -> None:
        self._qps = qps
        self._burst = float(burst)
        self._tokens = float(burst)
        self._at = -math.inf

    @property
    def limit(self) -> float:
        """Requests in flight are bounded only by the connection's sanity."""
        return MAXIMUM_IN_FLIGHT

    def wait(self, now: float, in_flight: int) -> float:
        """Until the next whole token is there."""
        if in_flight >= MAXIMUM_IN_FLIGHT:
            return math.inf
        missing = 1.0 - self._available(now)
        return missing / self._qps if missing > 1e-9 else 0.0

    def take(self, now: float) -> None:
        """Spend a token."""
        self._tokens = self._available(now) - 1.0
        self._at = now

    def finished(self, started: float, now: float, *, in_flight: int, overloaded: bool) -> None:
        """The rate was chosen by the user: it does not adapt."""

    def _available(self, now: float) -> float:
        if self._at == -math.inf:
            return self._burst
        return min(self._burst, self._tokens + (now - self._at) * self._qps)
