"""Latencies as text, and what is drawn from them."""

import random
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st
from local_driver import latencies
from local_driver.latencies import LONGEST, Exponential, Latency, Normal, Percentiles, Uniform

MILLISECONDS = st.integers(0, 3_600_000)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", Uniform(0.0, 0.0)),
        ("50ms", Uniform(0.05, 0.05)),
        ("10ms..1m", Uniform(0.01, 60.0)),
        ("normal:50ms/10ms", Normal(0.05, 0.01)),
        ("exponential:2s", Exponential(2.0)),
        ("p50:5ms", Percentiles((0.5,), (0.005,))),
        ("p0:0,p99.5:200ms,p100:1s", Percentiles((0.0, 0.995, 1.0), (0.0, 0.2, 1.0))),
    ],
)
def test_distributions_are_read(text: str, expected: Latency) -> None:
    assert latencies.parse(text) == expected


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("soon", "'soon' .* write 50ms, .* normal:50ms/10ms, exponential:50ms"),
        ("", "'' "),
        ("-5ms", "between 0 and 1h"),
        ("2h", "between 0 and 1h"),
        ("2s..1s", "shorter time comes first"),
        ("1s..", "''"),
        ("gamma:5ms", "unknown latency 'gamma'"),
        ("normal:5ms", "a mean and a deviation"),
        ("normal:5ms/x", "'x'"),
        ("exponential:", "''"),
        ("p101:5ms", "'p101:5ms' is no percentile"),
        ("pnan:5ms", "is no percentile"),
        ("p:5ms", "is no percentile"),
        ("p50:5ms,q99:9ms", "'q99:9ms' is no percentile"),
        ("p50:5ms,p50:9ms", "must grow"),
        ("p50:5ms,p99:4ms", "must grow"),
        ("p50:", "latency ''"),
    ],
)
def test_a_wrong_one_says_what_is_possible(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        latencies.parse(text)


@given(st.one_of(st.text(max_size=30), st.from_regex(r"[a-z]{0,11}:?[p0-9:/.,ms]{0,20}")))
def test_any_text_is_a_latency_or_a_refusal(text: str) -> None:
    try:
        found = latencies.parse(text)
    except ValueError:
        return
    assert all(0 <= found.draw(random.Random(seed)) <= LONGEST for seed in range(20))


@given(
    st.lists(
        st.tuples(st.integers(0, 100_000), MILLISECONDS), min_size=1, max_size=8,
        unique_by=lambda point: point[0],
    ),
    st.floats(0, 1),
)  # fmt: skip
def test_percentiles_are_what_the_table_says(points: list[tuple[int, int]], share: float) -> None:
    percents = sorted(percent for percent, _ in points)
    times = sorted(time for _, time in points)
    table = list(zip(percents, times, strict=True))
    text = ",".join(f"p{percent / 1000:.3f}:{time}ms" for percent, time in table)
    found = latencies.parse(text)
    assert isinstance(found, Percentiles)
    for percent, time in table:
        assert found.at(percent / 1000 / 100) == pytest.approx(time / 1000)
    assert times[0] / 1000 <= found.at(share) * (1 + 1e-9) + 1e-9
    assert found.at(share) <= times[-1] / 1000 * (1 + 1e-9)
    assert found.at(share) <= found.at(1.0) * (1 + 1e-9)


def draws(text: str) -> list[float]:
    found, dice = latencies.parse(text), random.Random(1)
    return sorted(found.draw(dice) for _ in range(4000))


def test_draws_have_the_shape_that_was_asked_for() -> None:
    normal = draws("normal:50ms/10ms")
    assert statistics.fmean(normal) == pytest.approx(0.05, rel=0.05)
    assert statistics.stdev(normal) == pytest.approx(0.01, rel=0.1)
    exponential = draws("exponential:50ms")
    assert statistics.fmean(exponential) == pytest.approx(0.05, rel=0.1)
    assert statistics.median(exponential) == pytest.approx(0.0347, rel=0.1)
    table = draws("p0:0,p50:5ms,p99:200ms")
    assert sum(one <= 0.005 for one in table) / len(table) == pytest.approx(0.5, abs=0.03)
    assert table[-1] == 0.2
    assert min(draws("normal:1ms/1s")) == 0.0
