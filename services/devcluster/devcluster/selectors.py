"""Label and field selectors as query strings spell them, compiled to one predicate over objects.

Source: "Labels and Selectors" (equality- and set-based requirements) and "Field Selectors".
"""

import collections.abc
import functools
import re
from typing import Any

from devcluster import errors
from devcluster.resources import Object, Resource

Predicate = collections.abc.Callable[[Object], bool]
_EVERYWHERE = ("metadata.name", "metadata.namespace")
_SET_BASED = re.compile(r"(\S+)\s+(in|notin)\s*\(([^()]*)\)")
_FIELDS = re.compile(r"(?:[^\\,]|\\.?)+", re.DOTALL)
_EQUALITY = re.compile(r"([^=!<>\s]+)(==|!=|=)((?:[^\\,=]|\\[\\,=])*)", re.DOTALL)
_LABEL_EQUALITY = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_./]*)\s*(==|!=|=)\s*([-A-Za-z0-9_.]*)")
_KEY = re.compile(r"(!?)\s*([A-Za-z0-9][-A-Za-z0-9_./]*)")


def matches_all(_: Object) -> bool:
    """Accept every object."""
    return True


@functools.lru_cache(maxsize=256)
def compile_selectors(resource: Resource, label: str = "", field: str = "") -> Predicate:
    """Return whether an object satisfies both selectors; raises ApiError 400."""
    tests = [_label_test(part) for part in _split(label)]
    tests += [_field_test(resource, part) for part in _FIELDS.findall(field)]
    if not tests:
        return matches_all
    if len(tests) == 1:
        return tests[0]
    return lambda obj: all(test(obj) for test in tests)


def _split(label: str) -> list[str]:
    """Split at commas outside parentheses."""
    return [part.strip() for part in re.split(r",(?![^()]*\))", label) if part.strip()]


def _labels(obj: Object) -> Object:
    return obj["metadata"].get("labels") or {}


def _label_test(part: str) -> Predicate:
    if found := _SET_BASED.fullmatch(part):
        key, operator, listed = found.groups()
        values = frozenset(value.strip() for value in listed.split(","))
        if operator == "in":
            return lambda obj: _labels(obj).get(key) in values
        return lambda obj: _labels(obj).get(key) not in values
    if found := _LABEL_EQUALITY.fullmatch(part):
        key, operator, value = found.groups()
        if operator == "!=":
            return lambda obj: _labels(obj).get(key) != value
        return lambda obj: _labels(obj).get(key) == value
    if found := _KEY.fullmatch(part):
        absent, key = found.groups()
        return lambda obj: (key in _labels(obj)) != bool(absent)
    raise errors.bad_request(f"unable to parse requirement: {part!r} is no label selector")


def _field_test(resource: Resource, part: str) -> Predicate:
    found = _EQUALITY.fullmatch(part)
    if not found:
        raise errors.bad_request(f"invalid field selector: {part!r}; can't understand it")
    field, operator, value = found.groups()
    if field not in _EVERYWHERE and field not in resource.fields:
        raise errors.bad_request(f"field label not supported: {field}")
    wanted, negated = re.sub(r"\\(.)", r"\1", value), operator == "!="
    path = tuple(field.split("."))
    return lambda obj: (field_text(obj, path) == wanted) != negated


def field_text(obj: Object, path: tuple[str, ...]) -> str:
    """Return the value at a path as selectors compare it; missing is empty."""
    value: Any = obj
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    if path == ("source",) and isinstance(value, dict):
        value = value.get("component")
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else str(value)
