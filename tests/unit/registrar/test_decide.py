"""When the registrar offers a driver, when anew, and when it gives up: as tables."""

import errno

import pytest
from bitts.core.plans import Done, Failed, RetryLater, WaitFor
from node_driver_registrar import decide
from node_driver_registrar.model import (
    Driver,
    GiveUp,
    Limits,
    Offer,
    Offered,
    Seen,
    Withdraw,
    Word,
)

LIMITS = Limits(refusals=3, silence=180.0)
DRIVER = Driver("d.example", 1)
RESTARTED = Driver("d.example", 2)
RENAMED = Driver("e.example", 2)
ANSWER = "the kubelet has not answered yet"


def plan(
    driver: Driver | None,
    offered: Offered | None = None,
    refusals: int = 0,
    limits: Limits = LIMITS,
) -> list[object]:
    return list(decide.decide(Seen(driver, offered, refusals), limits))


def test_without_a_driver_nothing_is_offered() -> None:
    assert plan(None) == [WaitFor("the driver has not said its name yet")]


def test_a_driver_that_is_there_is_offered() -> None:
    expected = [Offer(DRIVER, "the driver is there"), WaitFor(ANSWER, 180.0)]
    assert plan(DRIVER) == expected


def test_a_registered_driver_needs_nothing_also_while_it_is_away() -> None:
    offered = Offered(DRIVER, Word.REGISTERED, age=1000.0)
    assert plan(DRIVER, offered) == []
    assert plan(None, offered) == []


def test_the_kubelet_is_given_time_to_answer() -> None:
    assert plan(DRIVER, Offered(DRIVER, age=60.0)) == [WaitFor(ANSWER, 120.0)]


@pytest.mark.parametrize(
    ("driver", "offered", "reason"),
    [
        pytest.param(
            RESTARTED, Offered(DRIVER, Word.REGISTERED), "the driver was restarted", id="restarted"
        ),
        pytest.param(RESTARTED, Offered(DRIVER), "the driver was restarted", id="before an answer"),
        pytest.param(
            RENAMED,
            Offered(DRIVER, Word.REGISTERED),
            "the driver is called e.example now, not d.example",
            id="renamed",
        ),
        pytest.param(
            DRIVER,
            Offered(DRIVER, Word.REGISTERED, is_in_place=False),
            "the registration socket was removed or replaced",
            id="socket gone",
        ),
        pytest.param(
            DRIVER,
            Offered(DRIVER, age=180.0),
            "the kubelet has said nothing for 180 s",
            id="silence",
        ),
    ],
)
def test_whatever_the_kubelet_should_look_at_again_is_offered_anew(
    driver: Driver, offered: Offered, reason: str
) -> None:
    expected = [Withdraw(reason), Offer(driver, reason), WaitFor(ANSWER, 180.0)]
    assert plan(driver, offered) == expected


def test_a_socket_that_vanishes_while_the_driver_is_away_is_offered_for_the_same_driver() -> None:
    offered = Offered(DRIVER, Word.REGISTERED, is_in_place=False)
    assert plan(None, offered)[1] == Offer(
        DRIVER, "the registration socket was removed or replaced"
    )


def test_silence_without_a_limit_is_waited_out() -> None:
    forever = Limits(refusals=3, silence=0.0)
    assert plan(DRIVER, Offered(DRIVER, age=9e9), limits=forever) == [WaitFor(ANSWER)]
    assert plan(DRIVER, limits=forever)[-1] == WaitFor(ANSWER)


REFUSED = Offered(DRIVER, Word.REFUSED, error="label conflict")
REFUSAL = "the kubelet refused the driver: label conflict"


@pytest.mark.parametrize("driver", [DRIVER, RESTARTED, None])
def test_a_refusal_takes_the_socket_away_for_a_while(driver: Driver | None) -> None:
    assert plan(driver, REFUSED) == [Withdraw(REFUSAL), RetryLater(REFUSAL)]


def test_the_last_refusal_ends_the_process() -> None:
    assert plan(DRIVER, REFUSED, refusals=1)[-1] == RetryLater(REFUSAL)
    expected = [Withdraw(REFUSAL), GiveUp(f"{REFUSAL} (refusal 3 of 3)")]
    assert plan(DRIVER, REFUSED, refusals=2) == expected


def test_refusals_without_a_limit_never_do() -> None:
    unlimited = Limits(refusals=0, silence=1.0)
    assert isinstance(plan(DRIVER, REFUSED, refusals=999, limits=unlimited)[-1], RetryLater)


def test_a_refusal_without_a_reason_says_so() -> None:
    text = "the kubelet refused the driver: it gave no reason"
    assert plan(DRIVER, Offered(DRIVER, Word.REFUSED))[0] == Withdraw(text)


OFFER = Offer(DRIVER, "the driver is there")
SEEN = Seen(DRIVER, None)


def test_another_process_of_the_same_driver_is_waited_for() -> None:
    busy = OSError(errno.EADDRINUSE, "another process serves /r/d.example-reg.sock")
    text = "another process offers d.example: waiting until it ends"
    assert decide.settle(SEEN, Failed(OFFER, busy)) == [WaitFor(text, decide.CONFLICT_PAUSE)]


@pytest.mark.parametrize(
    ("action", "error"),
    [
        pytest.param(OFFER, FileNotFoundError(errno.ENOENT, "no such folder"), id="no folder"),
        pytest.param(OFFER, FileExistsError(errno.EEXIST, "is no socket"), id="a file in the way"),
        pytest.param(OFFER, ValueError("the path is too long"), id="path too long"),
        pytest.param(Withdraw("x"), PermissionError(errno.EACCES, "no"), id="cannot remove"),
    ],
)
def test_what_waiting_does_not_cure_ends_the_process(
    action: Offer | Withdraw, error: Exception
) -> None:
    expected = [GiveUp(f"{error}; look at --plugin-registration-path")]
    assert decide.settle(SEEN, Failed(action, error)) == expected


def test_success_leaves_the_plan_as_it_is() -> None:
    assert decide.settle(SEEN, Done(OFFER)) == []
