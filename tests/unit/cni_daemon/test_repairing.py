"""How often a removal that fails is tried again, and when it is given up."""

import pytest
from bitts.cni.errors import CniError, Code
from cni_daemon import repairing
from cni_daemon.delegates import DelegateError, PluginMissingError
from cni_daemon.executor import OperationError
from cni_daemon.operations import RunDelegate
from cni_daemon.repairing import Failure

RUN = RunDelegate("giver", "{}", ())
MISSING = OperationError(RUN, PluginMissingError(CniError(Code.INTERNAL, "no such program")))
FAILING = OperationError(RUN, DelegateError(CniError(Code.INTERNAL, "it says no")))


@pytest.mark.parametrize(
    ("interval", "count", "expected"),
    [(5, 1, 10), (5, 2, 20), (5, 5, 160), (5, 6, 300), (5, 10**6, 300), (600, 9, 1200)],
)
def test_pauses_double_up_to_five_minutes(interval: float, count: int, expected: float) -> None:
    assert repairing.pause(interval, count) == expected


def test_a_missing_program_is_waited_for() -> None:
    failure = Failure().again(100.0, 10.0, MISSING).again(110.0, 20.0, MISSING)
    assert failure == Failure(2, 130.0, 100.0)
    assert not failure.is_hopeless(159.0, 60.0)
    assert failure.is_hopeless(160.0, 60.0)


@pytest.mark.parametrize("other", [FAILING, OSError(5, "no disk")])
def test_any_other_problem_is_tried_again_for_ever(other: Exception) -> None:
    failure = Failure().again(100.0, 10.0, MISSING).again(110.0, 20.0, other)
    assert not failure.is_hopeless(10**9, 60.0)
    assert failure.again(10**9, 20.0, MISSING).missing == 10**9
