"""Go's notations of values, by table and by property."""

import math
import re
from fractions import Fraction

import pytest
from bitts.core import literals
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.parametrize("text", ["1", "t", "T", "true", "TRUE", "True"])
def test_true(text: str) -> None:
    assert literals.boolean(text) is True


@pytest.mark.parametrize("text", ["0", "f", "F", "false", "FALSE", "False"])
def test_false(text: str) -> None:
    assert literals.boolean(text) is False


@pytest.mark.parametrize("text", ["", "yes", "tRUE", "on", " true"])
def test_not_a_boolean(text: str) -> None:
    with pytest.raises(ValueError, match="true or false"):
        literals.boolean(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0), ("7", 7), ("-7", -7), ("+7", 7), ("0x1F", 31), ("-0x1f", -31), ("0X_1f", 31),
        ("0b101", 5), ("0B1_0", 2), ("0o17", 15), ("0O17", 15), ("017", 15), ("0_17", 15),
        ("00", 0), ("1_000_000", 1_000_000),
        ("9223372036854775807", 2**63 - 1), ("-9223372036854775808", -(2**63)),
    ],
)  # fmt: skip
def test_integer(text: str, value: int) -> None:
    assert literals.integer(text) == value


@pytest.mark.parametrize(
    "text",
    ["", "-", "x", "1.5", "1 ", " 1", "08", "0x", "0b2", "1__0", "_1", "1_", "0x1_", "--1", "٣",
     "9223372036854775808", "-9223372036854775809", "1\n"],
)  # fmt: skip
def test_not_an_integer(text: str) -> None:
    with pytest.raises(ValueError, match=r"whole number|too large"):
        literals.integer(text)


@pytest.mark.parametrize(
    ("text", "value"), [("0", 0), ("0x10", 16), ("18446744073709551615", 2**64 - 1)]
)
def test_unsigned(text: str, value: int) -> None:
    assert literals.unsigned(text) == value


@pytest.mark.parametrize("text", ["-1", "-0", "+1", "", "18446744073709551616"])
def test_not_an_unsigned(text: str) -> None:
    with pytest.raises(ValueError, match=r"negative|whole number|too large"):
        literals.unsigned(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("5", 5), ("-1", -1), ("+.5", 0.5), ("1.", 1), ("1e3", 1000), ("1E-2", 0.01),
        ("1_000.5", 1000.5), ("0x1p4", 16), ("-0x.8p1", -1), ("inf", math.inf),
        ("-Infinity", -math.inf),
    ],
)  # fmt: skip
def test_number(text: str, value: float) -> None:
    assert literals.number(text) == value


def test_not_a_number_is_a_number() -> None:
    assert math.isnan(literals.number("NaN"))


@pytest.mark.parametrize(
    "text",
    ["", ".", "e5", "1e", "five", "1,5", " 1", "1__0", "0x1", "0xp1", "0x.p1", "1e999", "0x1p9999"],
)
def test_no_number(text: str) -> None:
    with pytest.raises(ValueError, match=r"number|too large"):
        literals.number(text)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0), ("-0", 0), ("15s", 15), ("300ms", 0.3), ("1m30s", 90), ("1.5h", 5400),
        ("-2s", -2), ("+2s", 2), (".5s", 0.5), ("1.s", 1), ("1us", 1e-6), ("1µs", 1e-6),
        ("1μs", 1e-6), ("1ns", 1e-9), ("1h1m1s1ms", 3661.001), ("1s1h", 3601), ("0s", 0),
        ("2562047h47m16.854775807s", 9223372036.854775807),
        ("-2562047h47m16.854775808s", -9223372036.854775808), ("0.4ns", 0),
    ],
)  # fmt: skip
def test_duration(text: str, seconds: float) -> None:
    assert literals.duration(text) == pytest.approx(seconds, rel=1e-15)


@pytest.mark.parametrize(
    "text",
    ["", "15", "s", "1x", "1 s", "1s ", ".s", "-", "1s-1s", "1d", "١s", "1..5s", "00", "1S",
     "2562047h47m16.854775808s"],
)  # fmt: skip
def test_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match=r"units|too long"):
        literals.duration(text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"), (15, "15s"), (300, "5m0s"), (3600, "1h0m0s"), (90.5, "1m30.5s"), (0.3, "300ms"),
        (1.5e-6, "1.5µs"), (1e-9, "1ns"), (-2, "-2s"), (3661.001, "1h1m1.001s"), (100, "1m40s"),
    ],
)  # fmt: skip
def test_format_duration(seconds: float, text: str) -> None:
    assert literals.format_duration(seconds) == text


@given(st.integers(-(2**50), 2**50))
def test_a_written_duration_is_read_back(nanoseconds: int) -> None:
    seconds = nanoseconds / 1e9
    assert literals.duration(literals.format_duration(seconds)) == seconds


@given(st.lists(st.tuples(st.decimals(0, 1000, places=3), st.sampled_from("smh")), min_size=1))
def test_a_duration_is_the_sum_of_its_parts(parts: list[tuple[object, str]]) -> None:
    units = {"s": 1, "m": 60, "h": 3600}
    text = "".join(f"{amount}{unit}" for amount, unit in parts)
    expected = sum(Fraction(str(amount)) * units[unit] for amount, unit in parts)
    assert literals.duration(text) == pytest.approx(float(expected), abs=1e-9)


@given(st.text(max_size=20))
def test_any_text_is_read_or_refused_with_a_reason(text: str) -> None:
    readers = (
        literals.boolean, literals.integer, literals.unsigned, literals.number,
        literals.duration, literals.pairs, literals.gates, literals.vmodule,
    )  # fmt: skip
    messages = []
    for read in readers:
        try:
            read(text)
        except ValueError as error:
            messages.append(str(error))
    assert all(re.search(r"must|too", message) for message in messages)


def test_pairs() -> None:
    assert literals.pairs("a:b, c : d ,,e:") == {"a": "b", "c": "d", "e": ""}


@pytest.mark.parametrize("text", ["a", "a:b:c", "a:b,c", "a=b"])
def test_no_pairs(text: str) -> None:
    with pytest.raises(ValueError, match="exactly one colon"):
        literals.pairs(text)


def test_gates() -> None:
    assert literals.gates("A=true, B = 0,,") == {"A": True, "B": False}


@pytest.mark.parametrize(
    ("text", "message"), [("A", "Name=true"), ("A=maybe", "A must be true or false")]
)
def test_no_gates(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        literals.gates(text)


def test_vmodule() -> None:
    assert literals.vmodule("app=5,chan*=4,") == [("app", 5), ("chan*", 4)]


@pytest.mark.parametrize("text", ["app", "app=", "=5", "app=x", "app=-1"])
def test_no_vmodule(text: str) -> None:
    with pytest.raises(ValueError, match="pattern=N"):
        literals.vmodule(text)


@pytest.mark.parametrize(
    ("name", "near"),
    [("timeuot", "timeout"), ("worker_threads", "worker-threads"), ("completely-else", "")],
)
def test_nearest(name: str, near: str) -> None:
    assert literals.nearest(name, ["timeout", "worker-threads", "v"]) == near
