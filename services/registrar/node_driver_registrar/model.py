"""What the registrar sees, and what it can decide to do about it."""

import enum
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """When to give up (``refusals`` in a row, 0: never) and when to remind the kubelet
    (``silence`` in seconds, 0: never).
    """  # fmt: skip

    refusals: int = 10
    silence: float = 180.0


@dataclass(frozen=True, slots=True)
class Driver:
    """A driver that said its name. Another ``start`` may be another program behind the socket."""

    name: str
    start: int


class Word(enum.Enum):
    """The kubelet's last word about an offer."""

    NONE = enum.auto()
    REGISTERED = enum.auto()
    REFUSED = enum.auto()


@dataclass(frozen=True, slots=True)
class Offered:
    """A registration socket of ours.

    ``is_in_place`` says whether the kubelet can find it; ``age`` is in seconds.
    """

    driver: Driver
    word: Word = Word.NONE
    error: str = ""
    is_in_place: bool = True
    age: float = 0.0


@dataclass(frozen=True, slots=True)
class Seen:
    """Everything there is to decide from. ``refusals`` are those in a row before the present."""

    driver: Driver | None
    offered: Offered | None
    refusals: int = 0


@dataclass(frozen=True, slots=True)
class Offer:
    """Put a registration socket where the kubelet finds it."""

    driver: Driver
    reason: str


@dataclass(frozen=True, slots=True)
class Withdraw:
    """Take the registration socket away, upon which the kubelet forgets the driver."""

    reason: str


@dataclass(frozen=True, slots=True)
class GiveUp:
    """End the process with exit code 1."""

    reason: str


Action = Offer | Withdraw | GiveUp
