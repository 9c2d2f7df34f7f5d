"""Selectors choose what Kubernetes would choose."""

from typing import Any

import msgspec
import pytest
from bitts.kube import objects, selectors
from hypothesis import given
from hypothesis import strategies as st

LABELS = {"zone": "a", "disk": "ssd", "cores": "16"}


def requirement(key: str, operator: str, *values: str) -> objects.LabelSelectorRequirement:
    return objects.LabelSelectorRequirement(key=key, operator=operator, values=values)


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        (None, False),
        (objects.LabelSelector(), True),
        (objects.LabelSelector(match_labels={"zone": "a"}), True),
        (objects.LabelSelector(match_labels={"zone": "a", "disk": "hdd"}), False),
        (objects.LabelSelector(match_labels={"rack": ""}), False),
        (objects.LabelSelector(match_expressions=(requirement("zone", "In", "a", "b"),)), True),
        (objects.LabelSelector(match_expressions=(requirement("zone", "In"),)), False),
        (objects.LabelSelector(match_expressions=(requirement("zone", "NotIn", "b"),)), True),
        (objects.LabelSelector(match_expressions=(requirement("rack", "NotIn", "b"),)), True),
        (objects.LabelSelector(match_expressions=(requirement("zone", "Exists"),)), True),
        (objects.LabelSelector(match_expressions=(requirement("zone", "DoesNotExist"),)), False),
        (
            objects.LabelSelector(
                match_labels={"zone": "a"}, match_expressions=(requirement("rack", "Exists"),)
            ),
            False,
        ),
    ],
    ids=[
        "none",
        "empty",
        "equal",
        "one differs",
        "missing",
        "in",
        "in nothing",
        "not in",
        "missing is not in",
        "exists",
        "does not exist",
        "all parts",
    ],
)
def test_label_selectors(selector: objects.LabelSelector | None, *, expected: bool) -> None:
    assert selectors.matches_labels(selector, LABELS) is expected


def test_an_unknown_operator_is_named() -> None:
    selector = objects.LabelSelector(match_expressions=(requirement("zone", "Near", "a"),))
    with pytest.raises(selectors.SelectorError, match="'Near'"):
        selectors.matches_labels(selector, LABELS)


def node_term(
    *parts: tuple[str, str, tuple[str, ...]], fields: bool = False
) -> objects.NodeSelectorTerm:
    made = tuple(
        objects.NodeSelectorRequirement(key=key, operator=operator, values=values)
        for key, operator, values in parts
    )
    if fields:
        return objects.NodeSelectorTerm(match_fields=made)
    return objects.NodeSelectorTerm(match_expressions=made)


@pytest.mark.parametrize(
    ("terms", "expected"),
    [
        ((), False),
        ((node_term(),), False),
        ((node_term(("zone", "In", ("b",))), node_term(("disk", "In", ("ssd",)))), True),
        ((node_term(("zone", "In", ("a",)), ("disk", "In", ("hdd",))),), False),
        ((node_term(("cores", "Gt", ("8",))),), True),
        ((node_term(("cores", "Lt", ("8",))),), False),
        ((node_term(("zone", "Gt", ("8",))),), False),
        ((node_term(("rack", "Gt", ("8",))),), False),
        ((node_term(("cores", "Gt", ("1_0",))),), False),
        ((node_term(("cores", "Gt", ("8", "9"))),), False),
        ((node_term(("metadata.name", "In", ("n1",)), fields=True),), True),
        ((node_term(("metadata.name", "NotIn", ("n1",)), fields=True),), False),
    ],
    ids=[
        "no terms",
        "empty term",
        "one of the terms",
        "all of a term",
        "greater",
        "less",
        "no number",
        "missing number",
        "no number in Go",
        "two bounds",
        "by name",
        "not by name",
    ],
)
def test_node_selectors(terms: tuple[objects.NodeSelectorTerm, ...], *, expected: bool) -> None:
    selector = objects.NodeSelector(node_selector_terms=terms)
    assert selectors.matches_node(selector, "n1", LABELS) is expected
    affinity = objects.VolumeNodeAffinity(required=selector)
    volume = objects.PersistentVolume(spec=objects.PersistentVolumeSpec(node_affinity=affinity))
    assert selectors.reaches(volume, "n1", LABELS) is expected


def test_a_volume_without_affinity_is_reachable_everywhere() -> None:
    assert selectors.reaches(objects.PersistentVolume(), "n1", {})
    assert selectors.matches_node(None, "n1", {})


def allowed(*keys: tuple[str, tuple[str, ...]]) -> objects.TopologySelectorTerm:
    return objects.TopologySelectorTerm(
        match_label_expressions=tuple(
            objects.TopologySelectorLabelRequirement(key=key, values=values) for key, values in keys
        )
    )


def test_allowed_topologies_are_combined_within_a_term() -> None:
    terms = [
        allowed(("zone", ("a", "b")), ("rack", ("1", "2"))),
        allowed(),
        allowed(("zone", ("c",))),
    ]
    assert selectors.topology_terms(terms) == (
        {"zone": "a", "rack": "1"},
        {"zone": "a", "rack": "2"},
        {"zone": "b", "rack": "1"},
        {"zone": "b", "rack": "2"},
        {"zone": "c"},
    )


@pytest.mark.parametrize(
    ("term", "expected"),
    [({}, True), ({"zone": "a"}, True), ({"zone": "b"}, False), ({"rack": "1"}, False)],
    ids=["nothing", "part", "other value", "missing key"],
)
def test_is_within(term: dict[str, str], *, expected: bool) -> None:
    assert selectors.is_within(term, LABELS) is expected


def test_affinity_has_a_term_for_each_topology_with_segments() -> None:
    assert selectors.affinity([{"zone": "a", "rack": "1"}, {}]) == {
        "required": {
            "nodeSelectorTerms": [
                {
                    "matchExpressions": [
                        {"key": "rack", "operator": "In", "values": ["1"]},
                        {"key": "zone", "operator": "In", "values": ["a"]},
                    ]
                }
            ]
        }
    }


def test_queries() -> None:
    assert selectors.label_query({"b": "2", "a": "1"}) == "a=1,b=2"
    assert selectors.field_query({"metadata.name": "a,b=c\\d"}) == "metadata.name=a\\,b\\=c\\\\d"


WORDS = st.text(max_size=6) | st.sampled_from(["a", "1", "-7", "1_0", "+3", "٣", "9" * 30])
OPERATORS = ["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]
REQUIREMENTS = st.builds(
    lambda key, operator, values: (key, operator, tuple(values)),
    WORDS,
    st.sampled_from(OPERATORS) | st.text(max_size=4),
    st.lists(WORDS, max_size=3),
)


@given(st.dictionaries(WORDS, WORDS, max_size=3), st.lists(REQUIREMENTS, max_size=3))
def test_a_selector_is_judged_or_refused(
    labels: dict[str, str], parts: list[tuple[str, str, tuple[str, ...]]]
) -> None:
    label = objects.LabelSelector(
        match_expressions=tuple(requirement(key, word, *values) for key, word, values in parts)
    )
    node = objects.NodeSelector(node_selector_terms=(node_term(*parts),))
    try:
        answers = selectors.matches_labels(label, labels), selectors.matches_node(node, "n", labels)
    except selectors.SelectorError:
        assert any(word not in OPERATORS for _, word, _ in parts)
    else:
        assert answers[0] is answers[1] or not parts, "both read requirements alike"


OPPOSITES = st.sampled_from([("In", "NotIn"), ("Exists", "DoesNotExist")])


@given(st.dictionaries(WORDS, WORDS), WORDS, OPPOSITES, st.lists(WORDS))
def test_opposite_requirements_share_nothing_and_leave_nothing_out(
    labels: dict[str, str], key: str, words: tuple[str, str], values: list[str]
) -> None:
    one, other = (
        objects.LabelSelector(match_expressions=(requirement(key, word, *values),))
        for word in words
    )
    assert selectors.matches_labels(one, labels) is not selectors.matches_labels(other, labels)


@given(st.lists(st.dictionaries(WORDS, WORDS, min_size=1, max_size=3), max_size=3), st.data())
def test_an_affinity_allows_the_nodes_that_have_one_of_its_topologies(
    topologies: list[dict[str, str]], data: st.DataObject
) -> None:
    labels = data.draw(st.sampled_from([*topologies, {}]) | st.dictionaries(WORDS, WORDS))
    required: Any = selectors.affinity(topologies)["required"]
    found = msgspec.convert(required, objects.NodeSelector)
    allowed = any(selectors.is_within(one, labels) for one in topologies)
    assert selectors.matches_node(found, "n", labels) is allowed
