"""What is known of nodes, as text and as messages."""

import json

import pytest
from bitts.csi import v1
from hypothesis import given
from hypothesis import strategies as st
from local_driver import snapshots, volumes
from local_driver.cluster import known
from local_driver.documents import DocumentError

TEXT = st.text(max_size=20)
WORDS = st.dictionaries(TEXT, TEXT, max_size=3).map(lambda found: tuple(sorted(found.items())))
SIZE = st.integers(0, 1 << 62)
VOLUME = st.builds(
    known.KnownVolume,
    TEXT,
    SIZE,
    WORDS,
    TEXT,
    st.lists(TEXT, max_size=2).map(tuple),
)
SNAPSHOT = st.builds(known.KnownSnapshot, TEXT, TEXT, SIZE, SIZE, st.integers(0, 10**9), TEXT)
ACCOUNT = st.builds(
    known.Account,
    TEXT,
    st.lists(VOLUME, max_size=3).map(tuple),
    st.lists(SNAPSHOT, max_size=3).map(tuple),
)


@given(account=ACCOUNT)
def test_an_account_is_read_as_it_was_written(account: known.Account) -> None:
    assert known.decode_account(known.encode_account(account)) == account


@given(digest=TEXT, node=TEXT, since=st.floats(0, 1e10))
def test_an_intent_is_read_as_it_was_written(digest: str, node: str, since: float) -> None:
    intent = known.Intent(digest, node, since)
    assert known.decode_intent(known.encode_intent(intent)) == intent


@given(text=st.binary(max_size=80))
def test_whatever_else_is_refused(text: bytes) -> None:
    for decode in (known.decode_account, known.decode_intent):
        with pytest.raises(DocumentError):
            decode(text)


@pytest.mark.parametrize("field", ["id", "capacity", "context", "source", "attached"])
def test_a_damaged_volume_is_refused(field: str) -> None:
    account = known.Account("n", (known.KnownVolume("v", 1, (("a", "b"),)),))
    fields = json.loads(known.encode_account(account))
    fields["volumes"][0][field] = None
    with pytest.raises(DocumentError):
        known.decode_account(json.dumps(fields).encode())


@pytest.mark.parametrize(
    "source", ["", snapshots.snapshot_id("n", "s"), volumes.volume_id("n", "v")]
)
def test_a_volume_is_told_as_its_node_told_it(source: str) -> None:
    volume = known.KnownVolume("v", 7, (("backend", "image"),), source)
    message = known.volume_message(volume, {"k": "n"})
    assert message.accessible_topology == [v1.Topology(segments={"k": "n"})]
    assert known.volume_of(message) == volume


def test_a_snapshot_is_told_as_its_node_told_it() -> None:
    snapshot = known.KnownSnapshot("s", "v", 7, 1_700_000_000, 999_999_999, "g")
    message = known.snapshot_message(snapshot)
    assert message.ready_to_use
    assert known.snapshot(message) == snapshot


def test_an_abnormal_condition_is_kept_and_a_normal_one_is_nothing() -> None:
    def entry(*, abnormal: bool) -> v1.ListVolumesResponseEntry:
        status = v1.ListVolumesResponseVolumeStatus(
            published_node_ids=["n"],
            volume_condition=v1.VolumeCondition(abnormal=abnormal, message="m"),
        )
        return v1.ListVolumesResponseEntry(volume=v1.Volume(volume_id="v"), status=status)

    assert known.volume(entry(abnormal=True)) == known.KnownVolume("v", 0, (), "", ("n",), "m")
    assert known.volume(entry(abnormal=False)).problem == ""
