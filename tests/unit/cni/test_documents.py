"""JSON with Go's habits."""

import contextlib
import json
from typing import Any

import pytest
from bitts.cni import documents
from bitts.cni.documents import DocumentError, Fields
from hypothesis import given, settings
from hypothesis import strategies as st


def fields(text: str) -> Fields:
    return Fields(documents.parse(text))


def test_keys_match_whatever_their_case() -> None:
    assert fields('{"ISGATEWAY": true}').boolean("isGateway")
    assert fields('{"hostPort": 80}').integer("HostPort") == 80


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"name": "a", "Name": "b"}', "b"),
        ('{"Name": "b", "name": "a"}', "a"),
        ('{"name": "a", "Name": "b", "name": "c"}', "c"),
    ],
)
def test_the_last_spelling_wins(text: str, expected: object) -> None:
    assert fields(text).text("name") == expected


def test_null_and_absence_leave_the_default() -> None:
    found = fields('{"a": null}')
    assert found.text("a", "x") == found.text("b", "x") == "x"
    assert "a" in found
    assert "b" not in found


@pytest.mark.parametrize(
    ("text", "reader"),
    [
        ('{"v": "1"}', "integer"),
        ('{"v": 1.0}', "integer"),
        ('{"v": 1e3}', "integer"),
        ('{"v": true}', "integer"),
        ('{"v": 99999999999999999999}', "integer"),
        ('{"v": 1}', "text"),
        ('{"v": "true"}', "boolean"),
        ('{"v": {}}', "items"),
        ('{"v": [1]}', "texts"),
        ('{"v": [1]}', "objects"),
        ('{"v": []}', "nested"),
    ],
)
def test_a_wrong_type_is_an_error_that_names_the_field(text: str, reader: str) -> None:
    with pytest.raises(DocumentError, match="v"):
        getattr(fields(text), reader)("v")


@pytest.mark.parametrize(
    "text", ["", "{", "[NaN]", "{} {}", "[" * 100_000, '{"a": Infinity}', "1" * 5000, "\x00"]
)
def test_what_is_no_json_is_an_error(text: str) -> None:
    with pytest.raises(DocumentError):
        documents.parse(text)


@settings(max_examples=200)
@given(st.binary(max_size=200))
def test_any_bytes_are_parsed_or_refused(data: bytes) -> None:
    with contextlib.suppress(DocumentError):
        documents.parse(data)


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=10,
)


@settings(max_examples=100)
@given(_json)
def test_rendering_and_parsing_are_inverse(document: Any) -> None:
    assert documents.parse(documents.render(document)) == document
    assert json.loads(documents.render(document, compact=True)) == document


@settings(max_examples=100)
@given(
    _json, st.sampled_from(["text", "boolean", "integer", "items", "objects", "nested", "texts"])
)
def test_readers_never_fail_otherwise(document: Any, reader: str) -> None:
    with contextlib.suppress(DocumentError):
        getattr(Fields({"v": document}), reader)("V")


@pytest.mark.parametrize("value", [-1, 10, 2**62])
def test_a_number_out_of_range_is_told_from_one_of_the_wrong_type(value: int) -> None:
    with pytest.raises(documents.OutOfRangeError, match=rf"^a\.n: {value} is not between 0 and 9$"):
        Fields({"n": value}, "a").integer("n", low=0, high=10)
    for wrong in (True, 1.5, "1", 2**63):
        with pytest.raises(DocumentError, match=r"^a\.n: cannot unmarshal") as caught:
            Fields({"n": wrong}, "a").integer("n", low=0, high=10)
        assert not isinstance(caught.value, documents.OutOfRangeError)


def test_a_path_has_no_zero_byte() -> None:
    assert Fields({"p": "/a b"}).path("P") == "/a b"
    assert Fields({}).path("p", "x") == "x"
    with pytest.raises(documents.OutOfRangeError, match=r"^p: .* has a zero byte in it$"):
        Fields({"p": "/a\0b"}).path("p")
