"""What selectors of labels, nodes and places may not be."""

from typing import Any

import pytest
from devcluster import selector_rules

ZONE = {"key": "zone", "operator": "In", "values": ["a"]}


def labels(**selector: Any) -> list[str]:
    return [str(one) for one in selector_rules.label_selector("at")({"at": selector})]


def nodes(**changes: Any) -> list[str]:
    selector = {"nodeSelectorTerms": [{"matchExpressions": [{**ZONE, **changes}]}]}
    return [str(one) for one in selector_rules.node_selector("at")({"at": selector})]


def places(*expressions: dict[str, Any], times: int = 1) -> list[str]:
    terms = [{"matchLabelExpressions": list(expressions)}] * times
    return [str(one) for one in selector_rules.topologies({"allowedTopologies": terms})]


def test_what_is_right_or_absent_has_no_mistakes() -> None:
    assert list(selector_rules.label_selector("at")({})) == []
    assert labels(matchLabels={"a.io/b": "c"}, matchExpressions=[ZONE]) == []
    assert (
        nodes() == nodes(operator="Gt", values=["3"]) == nodes(operator="Exists", values=[]) == []
    )
    assert places({"key": "zone", "values": ["a", "b"]}, {"key": "rack", "values": ["a"]}) == []


@pytest.mark.parametrize(
    ("selector", "field"),
    [
        ({"matchLabels": {"a b": "c"}}, "at.matchLabels: Invalid"),
        ({"matchLabels": {"a": "c d"}}, "at.matchLabels: Invalid"),
        ({"matchExpressions": [{**ZONE, "operator": "Gt"}]}, "[0].operator: Invalid"),
        ({"matchExpressions": [{**ZONE, "key": ""}]}, "[0].key: Invalid"),
    ],
)
def test_mistakes_in_labels(selector: dict[str, Any], field: str) -> None:
    assert any(field in one for one in labels(**selector))


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"key": "a b"}, "matchExpressions[0].key: Invalid"),
        ({"values": ["x y"]}, "values[0]: Invalid"),
        ({"values": []}, "values: Required"),
        ({"operator": "Exists"}, "values: Forbidden"),
        (
            {"operator": "Gt", "values": ["1", "2"]},
            "values: Required value: must be specified single",
        ),
        ({"operator": "Near"}, "operator: Invalid"),
    ],
)
def test_mistakes_in_nodes(changes: dict[str, Any], field: str) -> None:
    assert any(field in one for one in nodes(**changes))


@pytest.mark.parametrize(
    ("expressions", "times", "field"),
    [
        ([{"key": "z", "values": ["a", "a"]}], 1, "[0].values[1]: Duplicate"),
        ([{"key": "z", "values": []}], 1, "[0].values: Required"),
        ([{"key": "a b", "values": ["a"]}], 1, "[0].key: Invalid"),
        ([{"key": "z", "values": ["a"]}, {"key": "z", "values": ["b"]}], 1, "[1].key: Duplicate"),
        ([], 1, "allowedTopologies[0].matchLabelExpressions: Duplicate"),
        ([{"key": "z", "values": ["a"]}], 2, "allowedTopologies[1].matchLabelExpressions: Dupl"),
    ],
)
def test_mistakes_in_places(expressions: list[Any], times: int, field: str) -> None:
    assert any(field in one for one in places(*expressions, times=times))
