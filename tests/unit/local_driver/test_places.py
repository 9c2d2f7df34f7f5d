"""Nodes found by IDs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from local_driver import places, snapshots, volumes

NAMES = st.text(min_size=1, max_size=40)


@given(node=NAMES, name=NAMES)
def test_every_kind_of_id_tells_its_node_and_its_name(node: str, name: str) -> None:
    for made in (volumes.volume_id, snapshots.snapshot_id, snapshots.group_id):
        assert places.of_id(made(node, name)) == places.of_node(node)
        assert places.digest_of_id(made(node, name)) == places.digest(name)


@pytest.mark.parametrize("text", ["", "v-1", "x-35971be6-" + "0" * 32, "35971be6-" + "g" * 32])
def test_what_is_no_id_tells_nothing(text: str) -> None:
    assert places.of_id(text) == ""
    assert places.digest_of_id(text) == ""
