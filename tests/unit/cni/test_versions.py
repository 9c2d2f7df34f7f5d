"""Order and membership of versions."""

import pytest
from bitts.cni import versions


@pytest.mark.parametrize(
    ("text", "expected"),
    [("", (0, 1, 0)), ("1", (1, 0, 0)), ("0.4", (0, 4, 0)), ("1.1.0", (1, 1, 0))],
)
def test_missing_parts_are_zero_and_nothing_is_the_first_version(
    text: str, expected: object
) -> None:
    assert versions.parse(text) == expected


@pytest.mark.parametrize("text", ["1.0.0.0", "1.x", "1.0.0-rc1", "1.²"])
def test_other_than_three_numbers_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="version"):
        versions.parse(text)


@pytest.mark.parametrize(
    ("version", "offered", "expected"),
    [
        ("0.4.0", [], "0.4.0"),
        ("9.0.0", [], "9.0.0"),
        ("0.4.0", ["0.3.1", "1.0.0", "1.1.0", "7.0.0"], "1.1.0"),
        ("1.0.0", ["0.4.0"], "1.0.0"),
        ("8.0.0", ["9.0.0"], "8.0.0"),
    ],
)
def test_the_highest_known_version_offered_is_spoken(
    version: str, offered: list[str], expected: object
) -> None:
    assert versions.chosen(version, offered) == expected


def test_every_version_has_a_shape() -> None:
    assert all(versions.family(each) for each in versions.ALL)
    assert versions.family("") is versions.Family.FLAT
    assert versions.family("1.0") is None
