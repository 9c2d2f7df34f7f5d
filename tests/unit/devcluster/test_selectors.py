"""Selectors as query strings spell them."""

from typing import Any

import pytest
from bitts.kube import objects
from bitts.kube import selectors as kube
from devcluster import errors, selectors
from devcluster.resources import Registry
from hypothesis import given
from hypothesis import strategies as st

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
        ("", "metadata.name=a=b", "field selector"),
        ("", "metadata.name=a\\", "field selector"),
    ],
)
def test_wrong_selectors_are_refused(label: str, field: str, words: str) -> None:
    with pytest.raises(errors.ApiError, match=words) as caught:
        selectors.compile_selectors(PODS, label=label, field=field)
    assert caught.value.code == 400


KEYS = st.from_regex(
    r"(?:[a-z]{1,4}/)?[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,3}[A-Za-z0-9])?", fullmatch=True
)
VALUES = st.from_regex(r"(?:[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,3}[A-Za-z0-9])?)?", fullmatch=True)
LABELS = st.dictionaries(KEYS, VALUES, max_size=4)
TEXTS = st.text(st.sampled_from("ab,=\\!()<> \n\té") | st.characters(codec="utf-8"), max_size=12)


@st.composite
def near(draw: st.DrawFn, keys: st.SearchStrategy[str] = KEYS) -> tuple[Any, dict[str, str]]:
    """A label selector, and labels that have much to do with it."""
    labels = draw(LABELS)
    known = st.sampled_from(sorted(labels)) if labels else keys
    key, value = known | keys, st.sampled_from([*labels.values(), "other"]) | VALUES
    equal = draw(st.dictionaries(key, value, max_size=2))
    sets = st.tuples(key, st.sampled_from(["In", "NotIn"]), st.lists(value, min_size=1, max_size=3))
    nothing: st.SearchStrategy[list[str]] = st.just([])
    bare = st.tuples(key, st.sampled_from(["Exists", "DoesNotExist"]), nothing)
    expressions = [
        objects.LabelSelectorRequirement(key=one, operator=operator, values=tuple(values))
        for one, operator, values in draw(st.lists(sets | bare, max_size=3))
    ]
    return objects.LabelSelector(match_labels=equal, match_expressions=tuple(expressions)), labels


def query(selector: objects.LabelSelector) -> str:
    """A label selector as a query spells it."""
    words = [kube.label_query(selector.match_labels)] if selector.match_labels else []
    for one in selector.match_expressions:
        listed = f"({', '.join(one.values or ())})"
        words.append(
            {
                "In": f"{one.key} in {listed}",
                "NotIn": f"{one.key} notin {listed}",
                "Exists": one.key,
                "DoesNotExist": f"!{one.key}",
            }[one.operator]
        )
    return ",".join(words)


@given(near())
def test_a_query_chooses_what_the_selector_chooses(case: tuple[Any, dict[str, str]]) -> None:
    selector, labels = case
    compiled = selectors.compile_selectors(PODS, label=query(selector))
    assert compiled({"metadata": {"labels": labels}}) is kube.matches_labels(selector, labels)


@given(name=TEXTS, node=TEXTS, other=TEXTS)
def test_a_field_query_chooses_that_value_and_no_other(name: str, node: str, other: str) -> None:
    asked = kube.field_query({"metadata.name": name, "spec.nodeName": node})
    compiled = selectors.compile_selectors(PODS, field=asked)
    assert compiled({"metadata": {"name": name}, "spec": {"nodeName": node}})
    found = {"metadata": {"name": name}, "spec": {"nodeName": other}}
    assert compiled(found) is (node == other)


@given(label=TEXTS, field=TEXTS | TEXTS.map("metadata.name={}".format))
def test_whatever_is_asked_for_is_answered_or_refused(label: str, field: str) -> None:
    code = 0
    try:
        compiled = selectors.compile_selectors(PODS, label=label, field=field)
        assert compiled(POD) in (True, False)
    except errors.ApiError as error:
        code = error.code
    assert code in (0, 400)
