"""The cache shows what the watch says, with our own writes over it until it says those too."""

import pytest
from bitts.kube import cache as caches
from bitts.kube import objects
from bitts.kube.watching import Change

Claims = caches.Cache[objects.PersistentVolumeClaim]
Told = list[tuple[str | None, str | None]]


def claim(
    version: str | int, name: str = "a", uid: str = "u", volume: str = ""
) -> objects.PersistentVolumeClaim:
    return objects.PersistentVolumeClaim(
        metadata=objects.ObjectMeta(
            name=name, namespace="ns", uid=uid, resource_version=str(version)
        ),
        spec=objects.PersistentVolumeClaimSpec(volume_name=volume),
    )


def watched(cache: Claims) -> tuple[Told, Told]:
    """Versions (old, new) of foreign changes and of own ones."""
    foreign: Told = []
    own: Told = []

    def note(told: Told, old: objects.Object | None, new: objects.Object | None) -> None:
        versions = [one.metadata.resource_version if one else None for one in (old, new)]
        told.append((versions[0], versions[1]))

    cache.subscribe(
        lambda old, new: note(foreign, old, new), own_writes=lambda old, new: note(own, old, new)
    )
    return foreign, own


def version(cache: Claims, key: str = "ns/a") -> str | None:
    found = cache.get(key)
    return found.metadata.resource_version if found else None


@pytest.fixture
def cache() -> Claims:
    made = Claims()
    made.replace([claim(5)], "5", made.mark())
    return made


def test_events_are_applied_and_told(cache: Claims) -> None:
    foreign, own = watched(cache)
    cache.apply(Change.MODIFIED, claim(6))
    cache.apply(Change.ADDED, claim(7, "b"))
    cache.apply(Change.DELETED, claim(8))
    assert foreign == [("5", "6"), (None, "7"), ("6", None)]
    assert own == []
    assert list(cache.keys()) == ["ns/b"]
    assert [one.key for one in cache.items()] == ["ns/b"]
    assert (len(cache), "ns/b" in cache, "ns/a" in cache) == (1, True, False)


def test_an_own_write_shows_at_once_and_its_echo_is_no_change(cache: Claims) -> None:
    foreign, own = watched(cache)
    cache.overlay(claim(9, volume="mine"))
    assert version(cache) == "9"
    cache.apply(Change.MODIFIED, claim(9, volume="mine"))
    assert (foreign, own) == ([], [("5", "9")])
    assert cache.unconfirmed == 0


def test_a_change_by_others_below_an_own_write_is_told_but_does_not_show(cache: Claims) -> None:
    foreign, _ = watched(cache)
    cache.overlay(claim(9))
    cache.apply(Change.MODIFIED, claim(7))
    assert version(cache) == "9"
    assert foreign == [("9", "9")]
    cache.apply(Change.MODIFIED, claim(11))
    assert version(cache) == "11"
    assert foreign[1:] == [("9", "11")]


@pytest.mark.parametrize("late", [claim(5), claim(4), claim(6)], ids=["same", "older", "passed"])
def test_a_write_that_the_watch_has_passed_is_no_news(
    cache: Claims, late: objects.PersistentVolumeClaim
) -> None:
    cache.apply(Change.ADDED, claim(6, "b"))
    cache.overlay(late)
    assert (version(cache), cache.unconfirmed) == ("5", 0)


def test_a_write_to_what_was_deleted_meanwhile_makes_no_ghost(cache: Claims) -> None:
    cache.apply(Change.DELETED, claim(8))
    cache.overlay(claim(7))
    assert cache.get("ns/a") is None


def test_two_own_writes_whose_answers_cross(cache: Claims) -> None:
    cache.overlay(claim(9))
    cache.overlay(claim(8))
    assert version(cache) == "9"
    cache.apply(Change.MODIFIED, claim(8))
    assert version(cache) == "9"


def test_an_own_deletion_hides_until_the_watch_confirms_it(cache: Claims) -> None:
    foreign, own = watched(cache)
    cache.overlay_deleted(claim(5))
    assert cache.get("ns/a") is None
    cache.apply(Change.MODIFIED, claim(6))
    assert cache.get("ns/a") is None
    cache.apply(Change.DELETED, claim(7))
    assert (foreign, own, cache.unconfirmed) == ([], [("5", None)], 0)


def test_the_next_object_of_a_name_ends_a_deletion(cache: Claims) -> None:
    cache.overlay_deleted(claim(5))
    cache.apply(Change.ADDED, claim(9, uid="next"))
    assert version(cache) == "9"
    cache.overlay_deleted(claim(5))
    assert version(cache) == "9", "what is another object is not hidden"


def test_an_own_object_after_a_deletion_that_the_watch_has_yet_to_tell(cache: Claims) -> None:
    cache.overlay_deleted(claim(5))
    cache.overlay(claim(9, uid="next"))
    cache.apply(Change.DELETED, claim(7))
    assert version(cache) == "9"
    cache.apply(Change.ADDED, claim(9, uid="next"))
    assert (version(cache), cache.unconfirmed) == ("9", 0)


def test_a_bookmark_ends_what_the_watch_will_never_show(cache: Claims) -> None:
    """An own object that the watch's selector leaves out."""
    foreign, _ = watched(cache)
    cache.overlay(claim(9, "foreign"))
    cache.overlay_deleted(claim(5))
    cache.advance("8")
    assert version(cache, "ns/foreign") == "9"
    cache.advance("9")
    assert version(cache, "ns/foreign") is None
    assert foreign == [("9", None)]
    assert version(cache) is None, "a deletion is confirmed by its event only"


def test_a_list_replaces_everything_and_tells_deletions_first(cache: Claims) -> None:
    cache.apply(Change.ADDED, claim(6, "b"))
    cache.apply(Change.ADDED, claim(7, "c", uid="c1"))
    foreign, _ = watched(cache)
    cache.replace([claim(6, "b"), claim(12, "c", uid="c2"), claim(13, "d")], "13", cache.mark())
    assert foreign == [("5", None), ("7", None), (None, "12"), (None, "13")]
    assert cache.synced.is_set()


def test_own_writes_and_a_list(cache: Claims) -> None:
    """A list knows what was written before it was asked for, and may not know the rest."""
    cache.overlay(claim(8, "before"))
    mark = cache.mark()
    cache.overlay(claim(9, "known"))
    cache.overlay(claim(12, "unknown"))
    cache.overlay_deleted(claim(5))
    cache.replace([claim(5)], "10", mark)
    assert sorted(cache.keys()) == ["ns/unknown"]
    cache.replace([claim(5)], "11", cache.mark())
    assert sorted(cache.keys()) == ["ns/a"], "asked for after the deletion: it did not happen"


def test_versions_that_are_no_decimals_compare_by_equality() -> None:
    cache = Claims()
    cache.replace([claim("x1")], "x1", cache.mark())
    cache.overlay(claim("x9"))
    cache.apply(Change.MODIFIED, claim("x5"))
    assert version(cache) == "x9"
    cache.apply(Change.MODIFIED, claim("x9"))
    assert cache.unconfirmed == 0
    cache.overlay(claim("x10"))
    cache.apply(Change.DELETED, claim("x12"))
    assert version(cache) is None


def test_indexes_follow_the_view(cache: Claims) -> None:
    cache.add_index("volume", lambda one: [one.spec.volume_name] if one.spec.volume_name else [])
    assert cache.by_index("volume", "pv") == []
    cache.apply(Change.MODIFIED, claim(6, volume="pv"))
    cache.overlay(claim(7, "b", volume="pv"))
    assert [one.key for one in cache.by_index("volume", "pv")] == ["ns/a", "ns/b"]
    cache.apply(Change.MODIFIED, claim(8, volume="other"))
    cache.overlay_deleted(claim(7, "b"))
    assert cache.by_index("volume", "pv") == []
    cache.add_index("late", lambda one: ["x"])
    assert [one.key for one in cache.by_index("late", "x")] == ["ns/a"]
    with pytest.raises(KeyError):
        cache.by_index("unknown", "x")


def test_a_failing_subscriber_does_not_stop_the_others(
    cache: Claims, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_old: object, _new: object) -> None:
        raise RuntimeError("mine")

    end = cache.subscribe(fail)
    foreign, _ = watched(cache)
    cache.apply(Change.MODIFIED, claim(6))
    assert foreign == [("5", "6")]
    assert "Subscriber of a cache failed" in caplog.text
    end()
    caplog.clear()
    cache.apply(Change.MODIFIED, claim(7))
    assert caplog.text == ""
