"""Who is released, as a table."""

import pytest
from cni_daemon import sandboxes
from cni_daemon.records import Entry, Key, Phase


def entry(container: str, phase: Phase = Phase.DONE, netns: str = "/run/netns/x") -> Entry:
    return Entry(Key("net", container, "eth0", "bridge#1"), phase, netns=netns)


@pytest.mark.parametrize(
    ("one", "is_suspect"),
    [
        (entry("gone"), True),
        (entry("known"), False),
        (entry("gone", Phase.BEGUN), False),
        (entry("gone", Phase.PLANNED), False),
        (entry("gone", Phase.LEAVING), False),
        (entry("gone", netns=""), False),
    ],
    ids=["unlisted", "listed", "begun", "planned", "leaving", "no namespace"],
)
def test_only_standing_attachments_of_unlisted_sandboxes_are_suspects(
    one: Entry, is_suspect: bool
) -> None:
    assert bool(sandboxes.suspects([one], frozenset({"known"}))) is is_suspect


def test_whoever_is_missed_waits_out_the_grace() -> None:
    one, other = entry("one"), entry("other")
    first = sandboxes.decide([one], {}, now=100.0, grace=30.0)
    assert first == sandboxes.Verdict((), {one.key: 100.0})
    second = sandboxes.decide([one, other], first.missed, now=129.0, grace=30.0)
    assert second == sandboxes.Verdict((), {one.key: 100.0, other.key: 129.0})
    third = sandboxes.decide([one, other], second.missed, now=130.0, grace=30.0)
    assert third == sandboxes.Verdict((one,), {other.key: 129.0})


def test_whoever_comes_back_starts_anew() -> None:
    one = entry("one")
    missed = sandboxes.decide([one], {}, now=0.0, grace=30.0).missed
    assert sandboxes.decide([], missed, now=10.0, grace=30.0).missed == {}
    assert sandboxes.decide([one], {}, now=40.0, grace=30.0).release == ()
