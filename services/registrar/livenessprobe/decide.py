"""How the results of checks become the answer to a probe: pure, so that it can be read as rules."""

import dataclasses

from livenessprobe.model import History, Result, Rules, State, Verdict

OK, FAILED, ABSENT = 200, 500, 503


def count(history: History, result: Result) -> History:
    """Return the history with one more result."""
    if result.problem:
        return dataclasses.replace(history, failures=history.failures + 1, last=result)
    return dataclasses.replace(history, was_healthy=True, failures=0, last=result)


def is_fresh(history: History, rules: Rules, now: float) -> bool:
    """Return whether the last result may stand for a check made now (monotonic seconds)."""
    last = history.last
    return last is not None and now - last.time < rules.max_age


def judge(history: History, rules: Rules, uptime: float) -> Verdict:
    """Return the answer to a probe, ``uptime`` seconds after the start."""
    if history.is_known and history.last is None:
        return Verdict(State.STARTING, OK, "ok, nobody has asked yet")
    problem = history.last.problem if history.last is not None else history.obstacle
    if not problem:
        return Verdict(State.HEALTHY, OK, "ok")
    if not history.was_healthy and uptime < rules.grace:
        return Verdict(State.STARTING, OK, f"ok, starting: {problem}")
    if not history.is_known:
        return Verdict(State.ABSENT, ABSENT, problem)
    if history.failures < rules.threshold:
        text = f"ok, failure {history.failures} of {rules.threshold}: {problem}"
        return Verdict(State.DOUBTFUL, OK, text)
    return Verdict(State.FAILING, FAILED, problem)
