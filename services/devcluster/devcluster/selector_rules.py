"""What may stand in selectors: of labels, of nodes by labels, of places by topology (pure).

Source: apimachinery's validation of LabelSelector, core/v1 NodeSelector and
TopologySelectorTerm in Kubernetes 1.37.
"""

import collections.abc
from typing import Any

from devcluster import errors, metadata
from devcluster.errors import Cause
from devcluster.resources import Object
from devcluster.rules import Rule
from devcluster.tables import at

_SETS, _PRESENCE, _NUMBERS = ("In", "NotIn"), ("Exists", "DoesNotExist"), ("Gt", "Lt")
_KEY = "name part must consist of alphanumeric characters, '-', '_' or '.'"
_VALUE = "a valid label must be an empty string or consist of alphanumeric characters"

Causes = collections.abc.Iterator[Cause]


def label_selector(path: str) -> Rule:
    """A selector of labels, where given."""

    def rule(obj: Object) -> Causes:
        found = at(path, None)(obj) or {}
        for key, value in (found.get("matchLabels") or {}).items():
            if not metadata.is_qualified(key):
                yield errors.invalid_value(f"{path}.matchLabels", key, _KEY)
            if not metadata.is_label_value(value):
                yield errors.invalid_value(f"{path}.matchLabels", value, _VALUE)
        for index, one in enumerate(found.get("matchExpressions") or ()):
            yield from requirement(f"{path}.matchExpressions[{index}]", one, ())

    return rule


def node_selector(path: str) -> Rule:
    """A selector of nodes, where given, as volumes have it."""

    def rule(obj: Object) -> Causes:
        for index, term in enumerate(at(f"{path}.nodeSelectorTerms", ())(obj)):
            for place, one in enumerate(term.get("matchExpressions") or ()):
                where = f"{path}.nodeSelectorTerms[{index}].matchExpressions[{place}]"
                yield from requirement(where, one, _NUMBERS)

    return rule


def requirement(path: str, one: Object, more: tuple[str, ...]) -> Causes:
    """A key, an operator (``more`` are allowed too) and the values that go with it."""
    operator, values = one.get("operator"), one.get("values") or ()
    if operator in _SETS and not values:
        why = "must be specified when `operator` is 'In' or 'NotIn'"
        yield errors.required(f"{path}.values", why)
    elif operator in _PRESENCE and values:
        why = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
        yield errors.forbidden_value(f"{path}.values", why)
    elif operator in more and len(values) != 1:
        why = "must be specified single value when `operator` is 'Lt' or 'Gt'"
        yield errors.required(f"{path}.values", why)
    elif operator not in (*_SETS, *_PRESENCE, *more):
        yield errors.invalid_value(f"{path}.operator", operator, "not a valid selector operator")
    if not metadata.is_qualified(str(one.get("key") or "")):
        yield errors.invalid_value(f"{path}.key", one.get("key"), _KEY)
    for index, value in enumerate(values):
        if not metadata.is_label_value(value):
            yield errors.invalid_value(f"{path}.values[{index}]", value, _VALUE)


def topologies(obj: Object) -> Causes:
    """The allowedTopologies of a class: no key, value or term twice, and none without values."""
    terms: list[Any] = []
    for index, term in enumerate(obj.get("allowedTopologies") or ()):
        path = f"allowedTopologies[{index}].matchLabelExpressions"
        expressions = term.get("matchLabelExpressions") or ()
        yield from _places(path, expressions)
        pairs = {str(one.get("key")): sorted(one.get("values") or ()) for one in expressions}
        if not expressions or pairs in terms:
            yield errors.duplicate(path, "")
        terms.append(pairs)


def _places(path: str, expressions: collections.abc.Sequence[Object]) -> Causes:
    keys: set[str] = set()
    for index, one in enumerate(expressions):
        key, values = str(one.get("key") or ""), list(one.get("values") or ())
        if not values:
            yield errors.required(f"{path}[{index}].values")
        for place, value in enumerate(values):
            if value in values[:place]:
                yield errors.duplicate(f"{path}[{index}].values[{place}]", value)
        if key in keys:
            yield errors.duplicate(f"{path}[{index}].key", key)
        elif not metadata.is_qualified(key):
            yield errors.invalid_value(f"{path}[{index}].key", key, _KEY)
        keys.add(key)
