"""Correlation and bursts as tables: which events are worth a write."""

import dataclasses

import pytest
from bitts.kube import bursts, correlation, kinds, objects
from hypothesis import given, settings
from hypothesis import strategies as st


def report(
    reason: str = "Failed",
    message: str = "m",
    *,
    name: str = "a",
    type: str = "Warning",
    on: objects.ObjectReference | None = None,
) -> correlation.Report:
    about = kinds.PERSISTENT_VOLUME_CLAIMS.reference(name, "shop", f"uid-{name}")
    return correlation.Report(about, type, reason, message, "t", on)


def test_the_same_again_is_a_count() -> None:
    correlator = correlation.Correlator()
    first = correlator.correlate(report(), 0.0)
    assert first is not None
    assert (first.name, first.count) == ("", 1)
    correlator.written(first, "a.1")
    again = correlator.correlate(dataclasses.replace(report(), stamp="t2"), 1.0)
    assert again is not None
    assert (again.name, again.count, again.first_stamp) == ("a.1", 2, "t")
    other = correlator.correlate(report(message="other"), 1.0)
    assert other is not None
    assert (other.name, other.count) == ("", 1)


def test_many_different_messages_go_on_as_one() -> None:
    correlator = correlation.Correlator()
    writes = [correlator.correlate(report(message=f"m{number}"), 0.0) for number in range(12)]
    messages = [write.message for write in writes if write is not None]
    assert messages[8:] == ["m8", *(f"(combined from similar events): m{n}" for n in (9, 10, 11))]
    assert [write.count for write in writes if write is not None][8:] == [1, 1, 2, 3]
    later = correlator.correlate(report(message="m99"), 601.0)
    assert later is not None
    assert later.message == "m99", "ten minutes later they are no longer similar"


def test_more_than_25_are_counted_and_not_written() -> None:
    correlator = correlation.Correlator()
    writes = [correlator.correlate(report(), 0.0) for _ in range(30)]
    assert [write is not None for write in writes] == [True] * 25 + [False] * 5
    assert correlator.correlate(report(name="b"), 0.0) is not None, "each object by itself"
    assert correlator.correlate(report(type="Normal"), 0.0) is not None, "each type by itself"
    assert correlator.correlate(report(), 299.0) is None
    after = correlator.correlate(report(), 301.0)
    assert after is not None
    assert after.count == 32, "what was not written is in the sum"


def test_memory_is_bounded() -> None:
    correlator = correlation.Correlator(remembered=10)
    for number in range(100):
        correlator.correlate(report(name=f"c{number}"), 0.0)
    assert len(correlator._series) == len(correlator._similar) == len(correlator._spam) == 10


SUPERSEDES = {"Done": ["Started"], "Failed": ["Started"]}
CLASS = kinds.STORAGE_CLASSES.reference("fast")


def normal(reason: str, name: str = "a") -> correlation.Report:
    return report(reason, type="Normal", name=name, on=CLASS)


def taken(burst: bursts.Bursts, now: float, *, drain: bool = False) -> list[str]:
    """Reasons and names of what comes out; sums with their count."""
    found = []
    while (one := burst.take(now, drain=drain)) is not None:
        if isinstance(one, bursts.Summary):
            found.append(f"sum {one.report.reason} {one.count} on {one.report.regarding.name}")
        else:
            found.append(f"{one.reason} {one.regarding.name}")
    return found


def test_what_is_overtaken_while_it_is_held_is_dropped() -> None:
    burst = bursts.Bursts(SUPERSEDES, limit=100)
    burst.add(normal("Started"), 0.0)
    burst.add(normal("Started", "b"), 0.1)
    assert taken(burst, 0.5) == []
    assert burst.next_due() == 1.0
    burst.add(normal("Done"), 0.6)
    assert taken(burst, 0.6) == ["Done a"]
    assert burst.next_due() == 1.1
    assert taken(burst, 1.1) == ["Started b"]
    burst.add(normal("Done", "b"), 1.2)
    assert taken(burst, 1.2) == ["Done b"]
    assert (burst.superseded, burst.next_due(), len(burst)) == (1, None, 0)


def test_a_failure_overtakes_too_and_warnings_go_first() -> None:
    burst = bursts.Bursts(SUPERSEDES, limit=100)
    burst.add(normal("Other", "x"), 0.0)
    burst.add(normal("Started"), 0.0)
    burst.add(report("Failed"), 0.0)
    assert taken(burst, 5.0) == ["Failed a", "Other x"]


def test_a_held_event_can_be_overtaken_until_it_is_taken() -> None:
    burst = bursts.Bursts(SUPERSEDES, limit=100)
    burst.add(normal("Started"), 0.0)
    burst.add(normal("Done"), 60.0)
    assert taken(burst, 60.0) == ["Done a"]


def test_draining_waits_for_nothing() -> None:
    burst = bursts.Bursts(SUPERSEDES, limit=100)
    burst.add(normal("Started"), 0.0)
    assert taken(burst, 0.0, drain=True) == ["Started a"]


def test_a_handful_keeps_its_own_events_and_a_crowd_is_summed_up() -> None:
    burst = bursts.Bursts(SUPERSEDES, limit=5000)
    for number in range(1000):
        burst.add(normal("Done", f"c{number}"), 0.0)
    assert taken(burst, 0.0) == [f"Done c{number}" for number in range(40)]
    assert burst.next_due() == 1.0
    assert taken(burst, 1.0) == ["sum Done 960 on fast"]
    for number in range(10):
        burst.add(normal("Done", f"d{number}"), 2.0)
    assert taken(burst, 2.0) == ["Done d0"], "the budget grows again by one in two seconds"
    assert taken(burst, 5.9) == []
    assert taken(burst, 6.0) == ["sum Done 9 on fast"]
    assert burst.folded == 969


def test_a_sum_says_how_many_and_which_was_the_last() -> None:
    burst = bursts.Bursts({}, limit=100)
    for number in range(43):
        burst.add(normal("Done", f"c{number}"), 0.0)
    for _ in range(40):
        burst.take(0.0)
    summary = burst.take(0.0, drain=True)
    assert isinstance(summary, bursts.Summary)
    assert "Done on 3 more objects" in summary.report.message
    assert "PersistentVolumeClaim shop/c42: m" in summary.report.message
    first = summary.series
    for number in range(99):
        burst.add(normal("Done", f"d{number}"), 1000.0)
    while not isinstance(found := burst.take(1000.0, drain=True), bursts.Summary):
        assert found is not None
    assert found.series != first, "after a long silence a new sum begins"
    assert "on 59 more objects" in found.report.message


def test_events_without_a_place_for_a_sum_and_warnings_are_never_summed_up() -> None:
    burst = bursts.Bursts({}, limit=1000)
    for number in range(100):
        burst.add(report("Failed", name=f"w{number}", on=CLASS), 0.0)
        burst.add(dataclasses.replace(normal("Done", f"n{number}"), summary_on=None), 0.0)
    assert len(taken(burst, 0.0)) == 200


def test_when_there_is_no_room_the_oldest_normal_event_goes() -> None:
    burst = bursts.Bursts(SUPERSEDES, limit=3)
    burst.add(report("Failed", name="w"), 0.0)
    burst.add(normal("Other", "x"), 0.0)
    burst.add(normal("Started", "y"), 0.0)
    burst.add(normal("Other", "z"), 0.0)
    burst.add(report("Failed", name="v"), 0.0)
    assert taken(burst, 9.0) == ["Failed w", "Failed v", "Other z"]
    for number in range(5):
        burst.add(report("Failed", name=f"w{number}"), 0.0)
    assert taken(burst, 9.0) == ["Failed w2", "Failed w3", "Failed w4"]
    assert burst.dropped == 4


@settings(max_examples=100)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["Started", "Done", "Failed"]),
            st.sampled_from("abc"),
            st.floats(0, 3),
            st.booleans(),
        ),
        max_size=60,
    )
)
def test_every_event_is_accounted_for(steps: list[tuple[str, str, float, bool]]) -> None:
    burst = bursts.Bursts(SUPERSEDES, limit=20)
    now, out, warnings, added = 0.0, 0, 0, 0
    for reason, name, passed, take in steps:
        now += passed
        is_warning = reason == "Failed"
        held = len(burst)
        burst.add(report(reason, name=name) if is_warning else normal(reason, name), now)
        added += 1
        warnings += is_warning
        if len(burst) <= held and reason == "Started":
            added -= 1  # the same, held already
        if take:
            out += sum(not one.startswith("sum") for one in taken(burst, now))
        assert len(burst) <= 20
    out += sum(not one.startswith("sum") for one in taken(burst, now, drain=True))
    accounted = out + burst.superseded + burst.folded + burst.dropped
    assert accounted == pytest.approx(added, abs=burst.dropped)
