"""Quantities are exact, rounded up where bytes are needed, and written canonically."""

import fractions

import pytest
from bitts.kube import quantity
from hypothesis import given, settings
from hypothesis import strategies as st


@pytest.mark.parametrize(
    ("text", "count", "canonical"),
    [
        ("0", 0, "0"),
        ("0Gi", 0, "0"),
        ("1Gi", 2**30, "1Gi"),
        ("1.5Gi", 3 * 2**29, "1536Mi"),
        ("0.5Ki", 512, "512"),
        ("1023", 1023, "1023"),
        ("1024Ki", 2**20, "1Mi"),
        ("1000Ki", 1_024_000, "1000Ki"),
        ("1500m", 2, "1500m"),
        ("1m", 1, "1m"),
        ("0.1", 1, "100m"),
        (".5", 1, "500m"),
        ("5.", 5, "5"),
        ("1e3", 1000, "1e3"),
        ("1E3", 1000, "1e3"),
        ("12e2", 1200, "1200"),
        ("1e-3", 1, "1e-3"),
        ("1E", 10**18, "1E"),
        ("1Ei", 2**60, "1Ei"),
        ("2.5M", 2_500_000, "2500k"),
        ("1000000", 1_000_000, "1M"),
        ("100000", 100_000, "100k"),
        ("+1Mi", 2**20, "1Mi"),
        ("-1.5", -2, "-1500m"),
        ("-1Ki", -1024, "-1Ki"),
        ("1.1Ki", 1127, "1126400m"),
        ("0.1n", 1, "1n"),
        ("1e99", quantity.MAXIMUM, "9223372036854775807"),
        ("9e18", 9 * 10**18, "9e18"),
        ("16Ei", quantity.MAXIMUM, "9223372036854775807"),
        ("1e-99", 1, "1e-9"),
    ],
)
def test_known_quantities(text: str, count: int, canonical: str) -> None:
    assert quantity.to_bytes_ceil(text) == count
    assert str(quantity.parse(text)) == canonical


@pytest.mark.parametrize(
    "text", ["", "Gi", ".", "1 Gi", "1gi", "1KiB", "1K", "ten", "1e", "1e1.5", "--1", "1" * 70]
)
def test_what_is_no_quantity_is_refused_with_advice(text: str) -> None:
    with pytest.raises(quantity.QuantityError, match="write it as"):
        quantity.parse(text)


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0"), (1, "1"), (2**30, "1Gi"), (1_500_000_000, "1500000000"), (5 * 2**40, "5Ti")],
)
def test_capacities_as_kubernetes_writes_them(count: int, text: str) -> None:
    assert quantity.format_bytes_binary(count) == text


SUFFIXES = ["", "n", "u", "m", "k", "M", "G", "T", "Ki", "Mi", "Gi", "Ti", "e3", "E-2"]


@st.composite
def texts(draw: st.DrawFn) -> str:
    sign = draw(st.sampled_from(["", "-", "+"]))
    whole = draw(st.integers(0, 10**6))
    fraction = draw(st.sampled_from(["", ".5", ".25", ".125", ".001", ".000000001"]))
    return f"{sign}{whole}{fraction}{draw(st.sampled_from(SUFFIXES))}"


@settings(max_examples=200)
@given(texts())
def test_the_canonical_form_means_the_same_and_is_stable(text: str) -> None:
    parsed = quantity.parse(text)
    again = quantity.parse(str(parsed))
    assert again == parsed
    # A binary amount without a power of 1024 is written plain, which reads as a decimal one:
    # 656.25Ki is 672000, and 672000 is 672k.
    assert str(again) == str(parsed) or parsed.format is quantity.Format.BINARY
    assert hash(again) == hash(parsed)


@settings(max_examples=200)
@given(st.integers(-(2**60), 2**60))
def test_byte_counts_survive(count: int) -> None:
    assert quantity.to_bytes_ceil(quantity.format_bytes_binary(count)) == count


@settings(max_examples=100)
@given(st.integers(0, 10**9), st.integers(0, 10**9))
def test_order_is_that_of_the_amounts(one: int, other: int) -> None:
    left, right = quantity.parse(f"{one}m"), quantity.parse(f"{other}u")
    assert (left < right) == (fractions.Fraction(one, 1000) < fractions.Fraction(other, 10**6))
    assert (left >= right) != (left < right)
