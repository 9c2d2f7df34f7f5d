"""What a probe is answered, from the checks so far: as tables."""

import pytest
from livenessprobe import decide
from livenessprobe.model import History, Result, Rules, State, Verdict

PLAIN = Rules()
KNOWN = History(is_known=True)
GOOD = Result(10.0)
BAD = Result(10.0, "rpc error: code = Unavailable desc = gone")


def after(*results: Result) -> History:
    history = KNOWN
    for result in results:
        history = decide.count(history, result)
    return history


def test_counting() -> None:
    assert after(GOOD) == History(is_known=True, was_healthy=True, last=GOOD)
    assert after(GOOD, BAD, BAD) == History(is_known=True, was_healthy=True, failures=2, last=BAD)
    assert after(BAD, BAD, GOOD).failures == 0


@pytest.mark.parametrize(
    ("history", "rules", "uptime", "expected"),
    [
        pytest.param(
            History(), PLAIN, 0.0,
            Verdict(State.ABSENT, 503, "the driver has not answered yet"), id="not there yet",
        ),
        pytest.param(
            History(obstacle="no socket"), Rules(grace=60.0), 59.0,
            Verdict(State.STARTING, 200, "ok, starting: no socket"), id="absent in grace",
        ),
        pytest.param(
            History(obstacle="no socket"), Rules(grace=60.0), 60.0,
            Verdict(State.ABSENT, 503, "no socket"), id="absent after grace",
        ),
        pytest.param(
            KNOWN, PLAIN, 1.0,
            Verdict(State.STARTING, 200, "ok, nobody has asked yet"), id="not checked",
        ),
        pytest.param(after(GOOD), PLAIN, 1.0, Verdict(State.HEALTHY, 200, "ok"), id="healthy"),
        pytest.param(
            after(GOOD, BAD), PLAIN, 1.0,
            Verdict(State.FAILING, 500, BAD.problem), id="fails, as upstream",
        ),
        pytest.param(
            after(BAD), PLAIN, 1.0, Verdict(State.FAILING, 500, BAD.problem), id="never worked"
        ),
        pytest.param(
            after(BAD, BAD), Rules(grace=60.0), 1.0,
            Verdict(State.STARTING, 200, f"ok, starting: {BAD.problem}"), id="fails in grace",
        ),
        pytest.param(
            after(GOOD, BAD), Rules(grace=60.0), 1.0,
            Verdict(State.FAILING, 500, BAD.problem), id="grace ends with the first success",
        ),
        pytest.param(
            after(GOOD, BAD, BAD), Rules(threshold=3), 1.0,
            Verdict(State.DOUBTFUL, 200, f"ok, failure 2 of 3: {BAD.problem}"), id="2 of 3",
        ),
        pytest.param(
            after(GOOD, BAD, BAD, BAD), Rules(threshold=3), 1.0,
            Verdict(State.FAILING, 500, BAD.problem), id="third of three",
        ),
    ],
)  # fmt: skip
def test_the_answer(history: History, rules: Rules, uptime: float, expected: Verdict) -> None:
    assert decide.judge(history, rules, uptime) == expected


def test_a_result_serves_others_for_as_long_as_allowed() -> None:
    rules = Rules(max_age=2.0)
    assert not decide.is_fresh(KNOWN, rules, 10.0)
    assert decide.is_fresh(after(GOOD), rules, 11.9)
    assert not decide.is_fresh(after(GOOD), rules, 12.0)
    assert not decide.is_fresh(after(GOOD), PLAIN, 10.0)
