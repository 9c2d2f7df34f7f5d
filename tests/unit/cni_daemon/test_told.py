"""Answers known by their text: as good as the document, and written down as it."""

from cni_daemon import records
from cni_daemon.records import Entry, Key, Phase
from cni_daemon.told import Told

DOCUMENT = {"cniVersion": "1.0.0", "ips": [{"address": "10.0.0.5/24"}]}
TEXT = '{"cniVersion": "1.0.0",\n  "ips": [{"address": "10.0.0.5/24"}]}'


def test_a_text_is_the_document_that_it_says() -> None:
    told = Told(TEXT)
    assert told == DOCUMENT
    assert DOCUMENT == told  # noqa: SIM300 - the journal asks from this side
    assert told == Told(TEXT)
    assert told != {**DOCUMENT, "dns": {}}
    assert dict(told) == DOCUMENT
    assert len(told) == len(DOCUMENT)


def test_a_journal_that_is_written_anew_has_the_document() -> None:
    key = Key("net", "c1", "eth0", "bridge#1")
    entry = Entry(key, Phase.DONE, "n", "/run/netns/p", (1, 2), (), Told(TEXT))
    lines = [records.seal(each) for each in records.whole(entry)]
    found = records.fold(map(records.unseal, lines))[key]
    assert found == entry
    assert type(found.result) is dict
