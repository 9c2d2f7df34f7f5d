"""Label, field and node selectors: do they match, and how a query spells them (pure).

Sources: "Labels and Selectors", core/v1 NodeSelector, StorageClass allowedTopologies.
"""

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence

from bitts.kube import objects

Labels = Mapping[str, str]
Requirement = objects.LabelSelectorRequirement | objects.NodeSelectorRequirement


_INTEGER = re.compile(r"[+-]?[0-9]{1,19}")


class SelectorError(ValueError):
    """A selector uses an operator that does not exist, or values that it cannot have."""


def matches_labels(selector: objects.LabelSelector | None, labels: Labels) -> bool:
    """Whether labels satisfy a selector; none matches nothing, an empty one everything."""
    if selector is None:
        return False
    return all(labels.get(key) == value for key, value in selector.match_labels.items()) and all(
        _holds(one, labels) for one in selector.match_expressions
    )


def matches_node(selector: objects.NodeSelector | None, name: str, labels: Labels) -> bool:
    """Whether a node satisfies a node selector: one term, all its expressions.

    A missing selector matches every node; one without terms matches none.
    """
    if selector is None:
        return True
    return any(_term_matches(term, name, labels) for term in selector.node_selector_terms or ())


def reaches(volume: objects.PersistentVolume, name: str, labels: Labels) -> bool:
    """Whether a volume's node affinity allows a node."""
    affinity = volume.spec.node_affinity
    return affinity is None or matches_node(affinity.required, name, labels)


def topology_terms(allowed: Sequence[objects.TopologySelectorTerm]) -> tuple[Labels, ...]:
    """Each combination of values that ``allowedTopologies`` permits, in the given order.

    Within a term the values of all keys are combined; terms without expressions give
    nothing. Combinations that occur twice stay twice.
    """
    found: list[Labels] = []
    for term in allowed:
        expressions = term.match_label_expressions
        if not expressions:
            continue
        keys = [one.key for one in expressions]
        combinations = itertools.product(*(one.values or () for one in expressions))
        found += [dict(zip(keys, values, strict=True)) for values in combinations]
    return tuple(found)


def is_within(term: Labels, wider: Labels) -> bool:
    """Whether every segment of ``term`` is among the segments of ``wider``."""
    return all(wider.get(key) == value for key, value in term.items())


def affinity(topologies: Iterable[Labels]) -> dict[str, object]:
    """A volume's ``nodeAffinity`` for the topologies it is accessible from."""
    terms = [
        {
            "matchExpressions": [
                {"key": key, "operator": "In", "values": [value]}
                for key, value in sorted(topology.items())
            ]
        }
        for topology in topologies
        if topology
    ]
    return {"required": {"nodeSelectorTerms": terms}}


def label_query(labels: Labels) -> str:
    """Equality requirements as a ``labelSelector`` query parameter."""
    return ",".join(f"{key}={value}" for key, value in sorted(labels.items()))


def field_query(fields: Mapping[str, str]) -> str:
    """Equality requirements as a ``fieldSelector`` query parameter."""
    return ",".join(f"{key}={_escape(value)}" for key, value in sorted(fields.items()))


def _escape(value: str) -> str:
    # The field selector grammar's own escapes, not the URL's.
    for character in "\\,=":
        value = value.replace(character, f"\\{character}")
    return value


def _term_matches(term: objects.NodeSelectorTerm, name: str, labels: Labels) -> bool:
    if not term.match_expressions and not term.match_fields:
        return False
    return all(_holds(one, labels) for one in term.match_expressions) and all(
        _holds(one, {"metadata.name": name}) for one in term.match_fields
    )


def _holds(requirement: Requirement, labels: Labels) -> bool:
    value, values = labels.get(requirement.key), requirement.values or ()
    match requirement.operator:
        case "In":
            return value is not None and value in values
        case "NotIn":
            return value is None or value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt" as operator:
            return value is not None and _compares(operator, value, values)
        case other:
            raise SelectorError(
                f"selector on {requirement.key!r} has operator {other!r}: "
                "use In, NotIn, Exists, DoesNotExist, Gt or Lt"
            )


def _compares(operator: str, value: str, values: Sequence[str]) -> bool:
    if len(values) != 1 or not all(map(_INTEGER.fullmatch, (value, values[0]))):
        # The scheduler treats what is no number as not matching, too. Python would take more for
        # a number than Go does: "1_0", other scripts' digits.
        return False
    left, right = int(value), int(values[0])
    return left > right if operator == "Gt" else left < right
