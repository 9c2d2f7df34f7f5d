"""How long a slow answer takes: distributions as people write them, and draws. Pure.

- ``50ms``: always that; ``10ms..200ms``: anything between, alike;
- ``normal:50ms/10ms``: a normal distribution's mean and standard deviation, never below 0;
- ``exponential:50ms``: its mean; most are short, and a few are very long;
- ``p50:5ms,p99:200ms``: percentiles as measured somewhere, straight lines between them. Below
  the first the first holds, above the last the last; ``p0`` and ``p100`` say otherwise.
"""

import bisect
import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass

from bitts.core import literals

LONGEST = 3600.0
"""Seconds that are waited at most, whatever is drawn; nothing longer can be asked for."""

TABLE = "p"
"""How the items of a table of percentiles begin; they are separated by commas."""

_EXAMPLES = (
    "50ms, 10ms..200ms, normal:50ms/10ms, exponential:50ms, or percentiles as p50:5ms,p99:200ms"
)


@dataclass(frozen=True, slots=True)
class Uniform:
    """Anything from ``least`` to ``most`` seconds."""

    least: float
    most: float

    def draw(self, dice: random.Random) -> float:
        """Return seconds."""
        return dice.uniform(self.least, self.most)


@dataclass(frozen=True, slots=True)
class Normal:
    """A normal distribution, in seconds; what falls below 0 is 0."""

    mean: float
    deviation: float

    def draw(self, dice: random.Random) -> float:
        """Return seconds."""
        return min(max(dice.gauss(self.mean, self.deviation), 0.0), LONGEST)


@dataclass(frozen=True, slots=True)
class Exponential:
    """An exponential distribution, in seconds."""

    mean: float

    def draw(self, dice: random.Random) -> float:
        """Return seconds."""
        return min(dice.expovariate(1 / self.mean), LONGEST) if self.mean else 0.0


@dataclass(frozen=True, slots=True)
class Percentiles:
    """Points of a distribution: shares of all (0 to 1) and seconds, both growing."""

    shares: tuple[float, ...]
    seconds: tuple[float, ...]

    def draw(self, dice: random.Random) -> float:
        """Return seconds."""
        return self.at(dice.random())

    def at(self, share: float) -> float:
        """Return the seconds that a share of all does not exceed."""
        above = bisect.bisect_left(self.shares, share)
        if above == 0:
            return self.seconds[0]
        if above == len(self.shares):
            return self.seconds[-1]
        left, right = self.shares[above - 1], self.shares[above]
        least, most = self.seconds[above - 1], self.seconds[above]
        return least + (most - least) * (share - left) / (right - left)


Latency = Uniform | Normal | Exponential | Percentiles


def parse(text: str) -> Latency:
    """Read a distribution; raises ValueError that says what is possible."""
    name, colon, rest = text.partition(":")
    if not colon:
        return _uniform(text)
    if name in _NAMED:
        return _NAMED[name](rest)
    if name.startswith(TABLE):
        return _percentiles(text)
    raise ValueError(f"unknown latency {name!r}: write {_EXAMPLES}")


def _uniform(text: str) -> Uniform:
    first, dots, second = text.partition("..")
    least = _seconds(first)
    most = _seconds(second) if dots else least
    if most < least:
        raise ValueError(f"latency {text!r}: the shorter time comes first")
    return Uniform(least, most)


def _normal(text: str) -> Normal:
    mean, slash, deviation = text.partition("/")
    if not slash:
        raise ValueError("normal needs a mean and a deviation, as normal:50ms/10ms")
    return Normal(_seconds(mean), _seconds(deviation))


def _exponential(text: str) -> Exponential:
    return Exponential(_seconds(text))


def _percentiles(text: str) -> Percentiles:
    points = [_point(item) for item in text.split(",")]
    for (share, seconds), (following, longer) in itertools.pairwise(points):
        if following <= share or longer < seconds:
            raise ValueError(f"latency {text!r}: percentiles and times must grow")
    shares, seconds_of = zip(*points, strict=True)
    return Percentiles(shares, seconds_of)


def _point(item: str) -> tuple[float, float]:
    name, _, value = item.partition(":")
    try:
        percent = literals.number(name.removeprefix(TABLE))
    except ValueError:
        percent = -1.0
    if not name.startswith(TABLE) or not 0 <= percent <= 100:
        raise ValueError(f"{item!r} is no percentile: write p0 to p100 and a time, as p99.9:200ms")
    return percent / 100, _seconds(value)


def _seconds(text: str) -> float:
    try:
        seconds = literals.duration(text)
    except ValueError as error:
        raise ValueError(f"latency {text!r} {error}: write {_EXAMPLES}") from None
    if not 0 <= seconds <= LONGEST:
        raise ValueError(f"latency {text!r} must be between 0 and 1h")
    return seconds


_NAMED: dict[str, Callable[[str], Latency]] = {"normal": _normal, "exponential": _exponential}
