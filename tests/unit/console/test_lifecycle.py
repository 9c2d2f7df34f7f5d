"""What a supervisor decides, as tables."""

import dataclasses

import pytest
from bitts_console import lifecycle
from bitts_console.lifecycle import Child, GiveUp, Kill, Phase, Start
from hypothesis import given
from hypothesis import strategies as st

WAITING = Child("a")
READY = Child("a", phase=Phase.READY, since=100.0, was_ready=True)
STARTING = Child("a", phase=Phase.STARTING, since=100.0)


def decide(*children: Child, now: float = 100.0) -> list[lifecycle.Action]:
    return lifecycle.decide({child.name: child for child in children}, now)


def test_what_needs_nothing_starts_at_once() -> None:
    assert decide(WAITING) == [Start("a", "first start")]


def test_what_needs_another_waits_for_it() -> None:
    dependent = Child("b", after=("a",))
    assert decide(STARTING, dependent) == []
    assert decide(READY, dependent) == [Start("b", "a is ready")]


def test_what_once_was_ready_counts_as_ready_even_while_it_restarts() -> None:
    resting = dataclasses.replace(READY, phase=Phase.RESTING, resume_at=101.0)
    assert decide(resting, Child("b", after=("a",))) == [Start("b", "a is ready")]


@pytest.mark.parametrize(
    ("child", "now", "expected"),
    [
        pytest.param(READY, 1e9, [], id="ready-is-left-alone"),
        pytest.param(STARTING, 129.9, [], id="still-starting"),
        pytest.param(STARTING, 130.0, [Kill("a", "not ready within 30 s")], id="start-hangs"),
        pytest.param(lifecycle.killed(STARTING, 1.0), 1e9, [], id="killed-once"),
        pytest.param(
            Child("a", phase=Phase.RESTING, resume_at=5.0, reason="why"), 4.9, [], id="rests"
        ),
        pytest.param(
            Child("a", phase=Phase.RESTING, resume_at=5.0, reason="why"),
            5.0,
            [Start("a", "why")],
            id="rested",
        ),
        pytest.param(
            Child("a", phase=Phase.FAILED, reason="why"), 0.0, [GiveUp("a", "why")], id="failed"
        ),
    ],
)
def test_due_actions(child: Child, now: float, expected: list[lifecycle.Action]) -> None:
    assert decide(child, now=now) == expected


def test_a_wrong_command_line_is_not_tried_again() -> None:
    assert lifecycle.ended(STARTING, 101.0, 2).phase is Phase.FAILED


def test_what_never_was_ready_fails_at_the_last_attempt() -> None:
    child = STARTING
    phases = []
    for _ in range(lifecycle.ATTEMPTS):
        child = lifecycle.ended(child, 101.0, 1)
        phases.append(child.phase)
    assert phases == [Phase.RESTING, Phase.RESTING, Phase.FAILED]


def test_what_was_ready_is_restarted_for_ever() -> None:
    child = READY
    for _ in range(50):
        child = lifecycle.ended(lifecycle.started(child, 100.0), 101.0, -9)
    assert child.phase is Phase.RESTING
    assert child.resume_at == 101.0 + lifecycle.LONGEST_DELAY
    assert child.reason == "killed by signal 9"


def test_failures_are_forgotten_after_a_steady_run() -> None:
    tired = dataclasses.replace(READY, failures=9)
    assert lifecycle.ended(tired, 100.0 + lifecycle.STEADY, 1).failures == 1
    assert lifecycle.ended(tired, 100.0 + lifecycle.STEADY - 1, 1).failures == 10


def test_readiness_clears_the_reason_of_the_last_end() -> None:
    again = lifecycle.became_ready(lifecycle.started(lifecycle.ended(READY, 1.0, 1), 2.0), 3.0)
    assert (again.phase, again.reason, again.was_ready) == (Phase.READY, "", True)


def test_wake_is_the_earliest_that_is_due() -> None:
    resting = Child("b", phase=Phase.RESTING, resume_at=105.0)
    assert lifecycle.wake_at([READY, WAITING]) is None
    assert lifecycle.wake_at([STARTING]) == 130.0
    assert lifecycle.wake_at([STARTING, resting, READY]) == 105.0


def test_all_ready_means_every_one() -> None:
    assert lifecycle.all_ready([READY, dataclasses.replace(READY, name="b")])
    assert not lifecycle.all_ready([READY, STARTING])


def test_what_no_restart_brings_back_ends_the_stack() -> None:
    gone = lifecycle.ended(dataclasses.replace(READY, loss="all is gone"), 101.0, -9)
    assert decide(gone) == [GiveUp("a", "killed by signal 9, and all is gone")]
    starting = dataclasses.replace(STARTING, loss="all is gone")
    assert lifecycle.ended(starting, 101.0, 1).phase is Phase.RESTING, "nothing was there yet"


@given(codes=st.lists(st.integers(-64, 255), max_size=30), ready=st.booleans())
def test_pauses_only_grow_and_stay_bounded(codes: list[int], ready: bool) -> None:
    child = READY if ready else STARTING
    pauses = []
    for code in codes:
        child = lifecycle.ended(lifecycle.started(child, 0.0), 1.0, code)
        if child.phase is Phase.FAILED:
            assert not ready
            return
        pauses.append(child.resume_at - 1.0)
    assert pauses == sorted(pauses)
    assert all(lifecycle.FIRST_DELAY <= pause <= lifecycle.LONGEST_DELAY for pause in pauses)
