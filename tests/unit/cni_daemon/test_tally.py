"""Counts, with labels that no caller can multiply."""

from bitts.cni.errors import Code
from cni_daemon.tally import BOUNDS, Event, Kind, Tally
from hypothesis import given
from hypothesis import strategies as st


def test_operations_are_told_apart_by_plugin_command_and_code() -> None:
    tally = Tally(["bridge"])
    tally.ended("bridge", "ADD", 0, 0.002)
    tally.ended("bridge", "ADD", 0, 99.0)
    tally.ended("bridge", "ADD", 11, 0.1)
    found = tally.operations
    assert set(found) == {Kind("bridge", "ADD", 0), Kind("bridge", "ADD", 11)}
    times = found[Kind("bridge", "ADD", 0)]
    assert times.counts[BOUNDS.index(0.002)] == 1
    assert times.counts[-1] == 1
    assert times.total == 99.002


@given(st.lists(st.tuples(st.text(), st.text(), st.integers()), max_size=50))
def test_whatever_callers_send_the_number_of_series_is_bounded(
    sent: list[tuple[str, str, int]],
) -> None:
    tally = Tally(["bridge"])
    for plugin, command, code in sent:
        tally.ended(plugin, command, code, 0.1)
    kinds = set(tally.operations)
    assert {each.plugin for each in kinds} <= {"bridge", "other"}
    assert {each.code for each in kinds} <= {0, *map(int, Code)}
    assert sum(sum(t.counts) for t in tally.operations.values()) == len(sent)


def test_events_begin_at_zero_so_that_rates_work() -> None:
    tally = Tally()
    assert set(tally.events.values()) == {0}
    tally.event(Event.UNDONE)
    tally.event(Event.SWEPT, 3)
    assert (tally.events[Event.UNDONE], tally.events[Event.SWEPT]) == (1, 3)
