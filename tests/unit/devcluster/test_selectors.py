"""Selectors as query strings spell them."""

from typing import Any

import pytest
from devcluster import errors, selectors
from devcluster.resources import Registry

PODS = Registry().resource("pods")
POD: dict[str, Any] = {
    "metadata": {"name": "web-1", "namespace": "shop", "labels": {"app": "web", "tier": "front"}},
    "spec": {"nodeName": "n1", "hostNetwork": True},
    "status": {"phase": "Running"},
}


@pytest.mark.parametrize(
    ("label", "is_match"),
    [
        ("", True),
        ("app=web", True),
        ("app==web,tier=front", True),
        ("app=web,tier=back", False),
        ("app!=web", False),
        ("other!=web", True),
        ("app in (web, db)", True),
        ("app in (db),tier=front", False),
        ("app notin (db,cache)", True),
        ("missing notin (x)", True),
        ("app", True),
        ("missing", False),
        ("!missing", True),
        ("!app", False),
        ("example.com/role=x", False),
        ("app=", False),
    ],
)
def test_label_selectors(label: str, is_match: bool) -> None:
    assert selectors.compile_selectors(PODS, label=label)(POD) is is_match


@pytest.mark.parametrize(
    ("field", "is_match"),
    [
        ("metadata.name=web-1", True),
        ("metadata.name=web-1,metadata.namespace!=shop", False),
        ("spec.nodeName==n1", True),
        ("spec.nodeName=", False),
        ("status.podIP=", True),
        ("status.phase!=Succeeded,status.phase!=Failed", True),
        ("spec.hostNetwork=true", True),
    ],
)
def test_field_selectors(field: str, is_match: bool) -> None:
    assert selectors.compile_selectors(PODS, field=field)(POD) is is_match


def test_escaped_characters_are_part_of_the_value() -> None:
    named = {**POD, "spec": {"nodeName": "a,b=c"}}
    assert selectors.compile_selectors(PODS, field=r"spec.nodeName=a\,b\=c")(named)


def test_objects_without_labels_match_only_what_allows_absence() -> None:
    bare = {"metadata": {"name": "x", "labels": None}}
    assert selectors.compile_selectors(PODS, label="!app")(bare)
    assert not selectors.compile_selectors(PODS, label="app=web")(bare)


@pytest.mark.parametrize(
    ("label", "field", "words"),
    [
        ("a in b", "", "label selector"),
        ("a==b=c)(", "", "label selector"),
        ("", "spec.image=x", "field label not supported: spec.image"),
        ("", "metadata.name", "field selector"),
    ],
)
def test_wrong_selectors_are_refused(label: str, field: str, words: str) -> None:
    with pytest.raises(errors.ApiError, match=words) as caught:
        selectors.compile_selectors(PODS, label=label, field=field)
    assert caught.value.code == 400
