"""What a supervisor decides: which process to start, which to kill, when to give up. Pure.

A process that once was ready is restarted for ever, ever more slowly, since whatever ended
it may pass (unless something is gone with it that the others cannot do without). One that
never was ready is most likely told something wrong; after a few attempts its last words are
worth more than another attempt.
"""

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

FIRST_DELAY = 0.25
LONGEST_DELAY = 10.0
"""Seconds between the end of a process and its next start: doubled at each failure."""

STEADY = 30.0
"""Seconds after which a ready process counts as healthy and its failures are forgotten."""

START_TIMEOUT = 30.0
"""Seconds that a process has to become ready."""

ATTEMPTS = 3
"""Starts of a process that never became ready."""

USAGE_ERROR = 2
"""Exit code of a program whose command line is wrong: another start cannot help."""


class Phase(enum.StrEnum):
    """Where in its life a process is."""

    WAITING = "waiting"
    STARTING = "starting"
    READY = "ready"
    RESTING = "resting"
    ENDING = "ending"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Child:
    """One supervised process. Times are in seconds of a monotonic clock.

    ``after`` names the processes that must have been ready before its first start. ``loss`` says
    what is gone with a process that nothing can bring back: its end is that of the stack.
    """

    name: str
    after: tuple[str, ...] = ()
    loss: str = ""
    phase: Phase = Phase.WAITING
    since: float = 0.0
    resume_at: float = 0.0
    failures: int = 0
    was_ready: bool = False
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Start:
    """Start the process (again)."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class Kill:
    """End a process that hangs; its end is then treated like any other."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Stop the whole stack: this process cannot run."""

    name: str
    reason: str


Action = Start | Kill | GiveUp


def decide(children: Mapping[str, Child], now: float) -> list[Action]:
    """Return what is due now, each with its reason."""
    actions: list[Action] = []
    for child in children.values():
        match child.phase:
            case Phase.WAITING if all(children[name].was_ready for name in child.after):
                needed = f"{', '.join(child.after)} is ready" if child.after else "first start"
                actions.append(Start(child.name, needed))
            case Phase.RESTING if child.resume_at <= now:
                actions.append(Start(child.name, child.reason))
            case Phase.STARTING if child.since + START_TIMEOUT <= now:
                actions.append(Kill(child.name, f"not ready within {START_TIMEOUT:g} s"))
            case Phase.FAILED:
                actions.append(GiveUp(child.name, child.reason))
            case _:
                pass
    return actions


def started(child: Child, now: float) -> Child:
    """Return the process as it is after its start."""
    return replace(child, phase=Phase.STARTING, since=now)


def killed(child: Child, now: float) -> Child:
    """Return the process as it is between the order to end it and its end."""
    return replace(child, phase=Phase.ENDING, since=now)


def became_ready(child: Child, now: float) -> Child:
    """Return the process as it is once it answers."""
    return replace(child, phase=Phase.READY, since=now, was_ready=True, reason="")


def ended(child: Child, now: float, exit_code: int) -> Child:
    """Return what the end of a process means for it; a negative code is a signal's number."""
    was_steady = child.phase is Phase.READY and now - child.since >= STEADY
    failures = 1 if was_steady else child.failures + 1
    reason = describe_exit(exit_code)
    if child.was_ready and child.loss:
        text = f"{reason}, and {child.loss}"
        return replace(child, phase=Phase.FAILED, since=now, failures=failures, reason=text)
    hopeless = exit_code == USAGE_ERROR or failures >= ATTEMPTS
    if hopeless and not child.was_ready:
        return replace(child, phase=Phase.FAILED, since=now, failures=failures, reason=reason)
    pause = min(FIRST_DELAY * 2 ** (failures - 1), LONGEST_DELAY)
    return replace(
        child,
        phase=Phase.RESTING,
        since=now,
        resume_at=now + pause,
        failures=failures,
        reason=reason,
    )


def describe_exit(exit_code: int) -> str:
    """Say in words how a process ended."""
    return (
        f"killed by signal {-exit_code}" if exit_code < 0 else f"ended with exit code {exit_code}"
    )


def wake_at(children: Iterable[Child]) -> float | None:
    """Return the earliest time at which something becomes due by itself, if ever."""
    times = [
        child.resume_at if child.phase is Phase.RESTING else child.since + START_TIMEOUT
        for child in children
        if child.phase in (Phase.RESTING, Phase.STARTING)
    ]
    return min(times, default=None)


def all_ready(children: Iterable[Child]) -> bool:
    """Whether every process answers."""
    return all(child.phase is Phase.READY for child in children)
