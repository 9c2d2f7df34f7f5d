"""What is known about the driver's health, and the rules by which it is judged."""

import enum
from dataclasses import dataclass


class State(enum.Enum):
    """What there is to say about the driver."""

    ABSENT = enum.auto()  # has not answered since this process began
    STARTING = enum.auto()  # not healthy yet, and within its start-up grace
    HEALTHY = enum.auto()
    DOUBTFUL = enum.auto()  # failed, though not often enough in a row
    FAILING = enum.auto()


@dataclass(frozen=True, slots=True)
class Rules:
    """When a driver counts as failing.

    ``threshold`` is the number of failed checks in a row. For ``grace`` seconds after the start,
    a driver that was never healthy is forgiven. A result serves later requests for ``max_age``
    seconds.
    """

    threshold: int = 1
    grace: float = 0.0
    max_age: float = 0.0


@dataclass(frozen=True, slots=True)
class Result:
    """How one check ended, at ``time`` (monotonic seconds). ``problem`` is "" if all is well."""

    time: float
    problem: str = ""


@dataclass(frozen=True, slots=True)
class History:
    """What all checks so far amount to.

    ``is_known`` tells that the driver has said its name; ``obstacle`` is what keeps it from that.
    """

    is_known: bool = False
    obstacle: str = "the driver has not answered yet"
    was_healthy: bool = False
    failures: int = 0
    last: Result | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a probe is answered: an HTTP status and a text."""

    state: State
    status: int
    text: str
