"""The words of a plan: what deciding returns and settling is told.

They stand apart from the loop that drives them so that pure modules, which may load neither
asyncio nor clients, can use them.
"""

from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar


class Action(Protocol):
    """What ``decide`` returns: a frozen value that says what to do and why."""

    @property
    def reason(self) -> str:
        """Why this should happen, for a person who asks."""


A_co = TypeVar("A_co", bound=Action, covariant=True)


@dataclass(frozen=True, slots=True)
class RetryLater:
    """Something failed: try the key again after its exponential backoff."""

    reason: str


@dataclass(frozen=True, slots=True)
class WaitFor:
    """Nothing failed: an event, or ``delay`` seconds at the longest, wakes the key again."""

    reason: str
    delay: float | None = None


@dataclass(frozen=True, slots=True)
class Done(Generic[A_co]):
    """An action succeeded with ``value``."""

    action: A_co
    value: object = None


@dataclass(frozen=True, slots=True)
class Failed(Generic[A_co]):
    """An action raised ``error``."""

    action: A_co
    error: Exception
