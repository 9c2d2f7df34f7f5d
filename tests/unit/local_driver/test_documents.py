"""Volumes as text and back."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from local_driver import documents
from local_driver.volumes import AccessType, Content, Volume

VOLUMES = st.builds(
    Volume,
    volume_id=st.text(),
    name=st.text(),
    serial=st.integers(1),
    node=st.text(),
    backend=st.text(),
    capacity=st.integers(0),
    access=st.frozensets(st.sampled_from(AccessType), min_size=1),
    filesystem=st.text(),
    content=st.sampled_from(Content),
    created=st.floats(0, 1e12),
    is_limited=st.booleans(),
)
SAMPLE = Volume(
    "id", "name", 1, "n", "image", 10, frozenset({AccessType.MOUNT}), "ext4", Content.BLANK, 1.5
)


@given(VOLUMES)
def test_every_volume_survives(volume: Volume) -> None:
    assert documents.decode(documents.encode(volume)) == volume


@given(st.integers(0, len(documents.encode(SAMPLE)) - 3))
def test_a_text_that_was_cut_short_is_no_volume(length: int) -> None:
    with pytest.raises(documents.DocumentError):
        documents.decode(documents.encode(SAMPLE)[:length])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        pytest.param({"format": 2}, "format 2", id="from the future"),
        pytest.param({"capacity": "10"}, "'capacity'", id="text for a number"),
        pytest.param({"capacity": True}, "'capacity'", id="truth for a number"),
        pytest.param({"serial": None}, "'serial'", id="null"),
        pytest.param({"access": ["mount", "tape"]}, "tape", id="unknown access"),
        pytest.param({"content": "gold"}, "gold", id="unknown content"),
        pytest.param({"limited": 1}, "'limited'", id="number for truth"),
    ],
)
def test_a_bad_field_is_named(change: dict[str, object], words: str) -> None:
    fields = json.loads(documents.encode(SAMPLE)) | change
    with pytest.raises(documents.DocumentError, match=words):
        documents.decode(json.dumps(fields).encode())


@pytest.mark.parametrize("text", [b"", b"[]", b"null", b"\xff\xfe"])
def test_other_texts_are_no_volumes(text: bytes) -> None:
    with pytest.raises(documents.DocumentError):
        documents.decode(text)
