"""How long to wait before trying again: arithmetic only, so that it can be tested as a table.

Delays are seconds. The sequence for one key is exactly client-go's per-item exponential
limiter, without jitter: ``start``, ``2 * start``, ``4 * start`` ... up to ``maximum``.
"""

import math
import random as randomness
from collections.abc import Callable

_LARGEST_EXPONENT = 1000  # ldexp overflows a little above it; any maximum is reached long before


def delay(failures: int, start: float, maximum: float) -> float:
    """Return the seconds to wait after a failure that ``failures`` others preceded.

    ``delay(0, 1, 300)`` is 1, then 2, 4 ... 256, 300, 300.
    """
    return min(math.ldexp(start, min(failures, _LARGEST_EXPONENT)), maximum)


def jittered(
    interval: float, fraction: float, *, random: Callable[[], float] = randomness.random
) -> float:
    """Lengthen ``interval`` by a random part of up to ``fraction`` of itself.

    ``random`` yields numbers in [0, 1). Leader election waits ``jittered(5, 1.2)``: 5 to 11 s.
    """
    return interval * (1 + fraction * random())


def spread(
    interval: float, fraction: float, *, random: Callable[[], float] = randomness.random
) -> float:
    """Vary ``interval`` evenly by ± ``fraction`` of itself, as gRPC does between dials."""
    return interval * (1 + fraction * (2 * random() - 1))
