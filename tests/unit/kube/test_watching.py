"""The bytes of a watch become events, or an error that says what they were instead."""

import json

import pytest
from bitts.kube import errors, kinds, watching
from hypothesis import given, settings
from hypothesis import strategies as st


@settings(max_examples=200)
@given(st.lists(st.binary(max_size=12)), st.binary(max_size=5), st.lists(st.integers(0, 40)))
def test_lines_are_found_wherever_the_stream_is_cut(
    lines: list[bytes], rest: bytes, cuts: list[int]
) -> None:
    whole = [line.replace(b"\n", b"x") for line in lines]
    rest = rest.replace(b"\n", b"x")
    stream = b"".join(line + b"\n" for line in whole) + rest
    places = sorted({min(cut, len(stream)) for cut in cuts} | {0, len(stream)})
    reader, found = watching.Lines(), []
    for start, end in zip(places, [*places[1:], len(stream)], strict=True):
        found += reader.feed(stream[start:end])
    assert found == [line for line in whole if line.strip()]
    if rest.strip():
        with pytest.raises(errors.AnswerLost):
            reader.close()
    else:
        reader.close()


def test_a_line_without_end_is_refused() -> None:
    reader = watching.Lines(longest=5)
    assert reader.feed(b"12345\n1234") == [b"12345"]
    with pytest.raises(errors.ServerError, match="longer than 5 bytes"):
        reader.feed(b"56")


def line(kind: str, body: object) -> bytes:
    return json.dumps({"type": kind, "object": body}).encode()


def test_changes_and_bookmarks() -> None:
    body = {"metadata": {"name": "n", "resourceVersion": "7"}}
    event = watching.parse(kinds.NODES, line("MODIFIED", body))
    assert event.object is not None
    assert (event.change, event.object.name, event.resource_version) == (
        watching.Change.MODIFIED,
        "n",
        "7",
    )
    mark = watching.parse(kinds.NODES, line("BOOKMARK", {"metadata": {"resourceVersion": "9"}}))
    assert (mark.object, mark.resource_version) == (None, "9")


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (line("ERROR", {"kind": "Status", "code": 410, "reason": "Expired"}), errors.Gone),
        (line("ERROR", {"code": 500, "message": "etcd"}), errors.ServerError),
        (line("OTHER", {"metadata": {}}), errors.ServerError),
        (line("ADDED", {"metadata": {"name": 5}}), errors.ServerError),
        (line("ADDED", None), errors.ServerError),
        (b"<html>", errors.ServerError),
        (b"{}", errors.ServerError),
    ],
    ids=["gone", "error", "unknown type", "wrong field", "null", "html", "empty"],
)
def test_what_comes_instead(data: bytes, expected: type[errors.ApiError]) -> None:
    with pytest.raises(expected):
        watching.parse(kinds.NODES, data)
