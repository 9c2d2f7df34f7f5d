"""Patches touch what is ours, and only on the object that we have seen."""

import copy
from typing import Any

import msgspec
import pytest
from bitts.kube import objects, patches
from hypothesis import given, settings
from hypothesis import strategies as st
from support import jsonpatches, kubefake

OURS = "our.example/finalizer"


def live(finalizers: list[str], uid: str = "u1", version: str = "7") -> kubefake.JsonObject:
    metadata: dict[str, Any] = {"name": "pv", "uid": uid, "resourceVersion": version}
    if finalizers:
        metadata["finalizers"] = finalizers
    return {"metadata": metadata}


def seen(body: kubefake.JsonObject) -> objects.PersistentVolume:
    return msgspec.convert(body, objects.PersistentVolume)


def applied(body: kubefake.JsonObject, patch: patches.Patch) -> list[str] | None:
    """The finalizers after the patch, ``None`` if a guard refused it."""
    operations = msgspec.json.decode(msgspec.json.encode(patch.body))
    try:
        result = kubefake.patched(copy.deepcopy(body), operations, patch.content_type)
    except kubefake.FailureError:
        return None
    found: list[str] = result["metadata"].get("finalizers", [])
    return found


def test_a_merge_patch_is_guarded_on_request() -> None:
    body = {"metadata": {"labels": {"a": None}}, "spec": {"x": 1}}
    assert patches.merge(body).body == body
    assert patches.merge(body, resource_version="5").body == {
        "metadata": {"labels": {"a": None}, "resourceVersion": "5"},
        "spec": {"x": 1},
    }
    assert body == {"metadata": {"labels": {"a": None}}, "spec": {"x": 1}}, "not changed itself"


def test_media_types() -> None:
    assert patches.merge({}).content_type == "application/merge-patch+json"
    assert patches.strategic({}).content_type == "application/strategic-merge-patch+json"
    assert patches.json_patch([]).content_type == "application/json-patch+json"


def test_annotations_and_labels() -> None:
    change = patches.annotations({"a": "1", "b": None}, resource_version="9")
    assert change.body == {
        "metadata": {"annotations": {"a": "1", "b": None}, "resourceVersion": "9"}
    }
    assert patches.labels({"a": "1"}).body == {"metadata": {"labels": {"a": "1"}}}


def test_pointers_escape_their_parts() -> None:
    assert (
        patches.pointer("metadata", "annotations", "a/b~c", 0) == "/metadata/annotations/a~1b~0c/0"
    )


def test_operations() -> None:
    document = {"a": {"b": [1, 2]}}
    operations = [
        patches.test("/a/b/0", 1),
        patches.add("/a/b/-", 3),
        patches.replace("/a/b/0", 9),
        patches.remove("/a/b/1"),
    ]
    assert jsonpatches.apply(document, operations) == {"a": {"b": [9, 3]}}


@pytest.mark.parametrize("others", [[], ["x"], ["x", "y"]], ids=["none", "one", "two"])
def test_add_and_remove_on_a_fresh_view(others: list[str]) -> None:
    body = live(others)
    add = patches.add_finalizer(seen(body), OURS)
    assert add is not None
    assert applied(body, add) == [*others, OURS]
    with_ours = live([OURS, *others])
    remove = patches.remove_finalizer(seen(with_ours), OURS)
    assert remove is not None
    assert applied(with_ours, remove) == others


def test_nothing_to_do_is_no_patch() -> None:
    assert patches.add_finalizer(seen(live([OURS])), OURS) is None
    assert patches.remove_finalizer(seen(live(["x"])), OURS) is None


def test_another_object_of_the_name_is_not_touched() -> None:
    for patch in (
        patches.add_finalizer(seen(live(["x"])), OURS),
        patches.remove_finalizer(seen(live([OURS])), OURS),
    ):
        assert patch is not None
        assert applied(live(["x", OURS], uid="u2"), patch) is None


names = st.lists(st.sampled_from(["a", "b", "c", OURS]), unique=True)


@settings(max_examples=200)
@given(names, names)
def test_no_foreign_finalizer_is_ever_lost_or_doubled(before: list[str], now: list[str]) -> None:
    """Whatever others did since: a patch does just our change, or is refused."""
    view = seen(live(before, version="7"))
    body = live(now, version="7" if now == before else "8")
    if (add := patches.add_finalizer(view, OURS)) is not None:
        after = applied(body, add)
        assert after is None or after == [*now, OURS]
    if (remove := patches.remove_finalizer(view, OURS)) is not None:
        after = applied(body, remove)
        assert after is None or (OURS in now and after == [one for one in now if one != OURS])
