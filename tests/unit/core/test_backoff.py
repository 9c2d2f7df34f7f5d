"""Delays as tables."""

import pytest
from bitts.core import backoff
from hypothesis import given
from hypothesis import strategies as st


def test_delays_double_from_start_to_maximum() -> None:
    delays = [backoff.delay(failures, 1, 300) for failures in range(11)]
    assert delays == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]


@pytest.mark.parametrize(
    ("failures", "start", "maximum", "expected"),
    [
        pytest.param(0, 5, 3, 3, id="start above maximum"),
        pytest.param(7, 0, 300, 0, id="no start, no delay"),
        pytest.param(0, 0.5, 300, 0.5, id="fractions"),
        pytest.param(10**9, 1, 300, 300, id="too many failures to multiply out"),
    ],
)
def test_delay_at_its_edges(failures: int, start: float, maximum: float, expected: float) -> None:
    assert backoff.delay(failures, start, maximum) == expected


@given(st.integers(0, 5000), st.floats(0.001, 1000), st.floats(0.001, 10_000))
def test_delay_never_shrinks_and_never_exceeds_its_maximum(
    failures: int, start: float, maximum: float
) -> None:
    now, later = (backoff.delay(n, start, maximum) for n in (failures, failures + 1))
    assert 0 < now <= later <= maximum


def test_jitter_only_lengthens() -> None:
    assert backoff.jittered(5, 1.2, random=lambda: 0.0) == 5
    assert backoff.jittered(5, 1.2, random=lambda: 0.5) == 8


def test_spread_goes_both_ways() -> None:
    assert backoff.spread(1, 0.2, random=lambda: 0.0) == pytest.approx(0.8)
    assert backoff.spread(1, 0.2, random=lambda: 0.5) == pytest.approx(1)


def test_randomness_is_real_by_default() -> None:
    assert 5 <= backoff.jittered(5, 1) < 10
    assert 4 <= backoff.spread(5, 0.2) <= 6
