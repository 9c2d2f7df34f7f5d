"""Merge patches (RFC 7386) and JSON patches (RFC 6902), as a server applies them."""

from typing import Any


def merge(old: Any, patch: Any) -> Any:
    """RFC 7386."""
    if not isinstance(patch, dict):
        return patch
    new = dict(old) if isinstance(old, dict) else {}
    for key, value in patch.items():
        if value is None:
            new.pop(key, None)
        else:
            new[key] = merge(new.get(key), value)
    return new


def apply(document: Any, operations: list[dict[str, Any]]) -> Any:
    """RFC 6902: test, add, replace, remove."""
    for operation in operations:
        *parents, last = [
            part.replace("~1", "/").replace("~0", "~") for part in operation["path"].split("/")[1:]
        ]
        place = document
        for part in parents:
            place = place[int(part) if isinstance(place, list) else part]
        key: Any = int(last) if isinstance(place, list) and last != "-" else last
        match operation["op"]:
            case "test":
                assert place[key] == operation["value"], "test failed"
            case "add" if isinstance(place, list):
                place.insert(len(place) if last == "-" else key, operation["value"])
            case "add":
                place[key] = operation["value"]
            case "replace":
                assert place[key] is not None
                place[key] = operation["value"]
            case "remove":
                del place[key]
            case other:
                raise AssertionError(f"unknown operation {other}")
    return document
