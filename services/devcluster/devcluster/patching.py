"""The three patch formats: JSON patch, JSON merge patch, strategic merge patch.

Pure functions: they return a new value that may share parts with the old one, and change
neither argument. Sources: RFC 6902, RFC 7386, API conventions "Strategic Merge Patch".
"""

import collections.abc
from typing import Any

from devcluster import errors

Json = Any
Path = tuple[str, ...]

LIST_KEYS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(
        ("containers", "initContainers", "ephemeralContainers", "volumes", "env"), ("name",)
    ),
    **dict.fromkeys(("imagePullSecrets", "drivers", "resourceClaims", "storageHealth"), ("name",)),
    **dict.fromkeys(("conditions", "addresses"), ("type",)),
    "ownerReferences": ("uid",),
    "volumeMounts": ("mountPath",),
    "volumeDevices": ("devicePath",),
    "hostAliases": ("ip",),
    "podIPs": ("ip",),
    "secrets": ("name",),
    "topologySpreadConstraints": ("topologyKey", "whenUnsatisfiable"),
}
"""Merge keys of lists that are maps, by field name: the same in every built-in kind we serve."""

PORT_KEYS = (("containerPort", "protocol"), ("port", "protocol"))
SETS = frozenset({"finalizers"})
"""Lists of scalars that merge as sets."""


def list_keys(field: str, items: collections.abc.Sequence[Json]) -> tuple[str, ...]:
    """Return the merge keys of a list of objects, empty when it is replaced as a whole."""
    if field == "ports":
        return next((k for k in PORT_KEYS if any(k[0] in _mapping(i) for i in items)), ())
    return LIST_KEYS.get(field, ())


def _mapping(value: Json) -> dict[str, Json]:
    return value if isinstance(value, dict) else {}


def merge(target: Json, patch: Json) -> Json:
    """Apply a JSON merge patch."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merge(result.get(name), value)
    return result


# ---- JSON patch


def json_patch(document: Json, operations: Json) -> Json:
    """Apply a JSON patch; raises ApiError 400 for nonsense, 422 where the document refuses."""
    if not isinstance(operations, list):
        raise errors.bad_request("a JSON patch is a list of operations")
    for operation in operations:
        if not isinstance(operation, dict):
            raise errors.bad_request("a JSON patch operation is an object with op and path")
        document = _operate(document, operation)
    return document


def _operate(document: Json, operation: dict[str, Json]) -> Json:
    kind, path = operation.get("op"), _pointer(operation.get("path"))
    match kind:
        case "add" | "replace":
            return _edit(document, path, kind, _value(operation))
        case "remove":
            return _edit(document, path, kind, None)
        case "test":
            if not same(_read(document, path), _value(operation)):
                raise _refused(f"testing path {operation['path']!r} failed")
            return document
        case "copy":
            return _edit(document, path, "add", _read(document, _pointer(operation.get("from"))))
        case "move":
            source = _pointer(operation.get("from"))
            if path[: len(source)] == source and path != source:
                raise _refused("a value cannot move into itself")
            moved = _read(document, source)
            return _edit(_edit(document, source, "remove", None), path, "add", moved)
    raise _refused(f"unknown JSON patch operation {kind!r}")


def same(left: Json, right: Json) -> bool:
    """JSON equality: Python's, but true is not 1."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same(v, right[k]) for k, v in left.items())
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same, left, right))
    return bool(left == right)


def _value(operation: dict[str, Json]) -> Json:
    if "value" not in operation:
        raise errors.bad_request(f"JSON patch operation {operation.get('op')!r} needs a value")
    return operation["value"]


def _pointer(text: Json) -> Path:
    if not isinstance(text, str) or (text and not text.startswith("/")):
        raise errors.bad_request(f"JSON pointer {text!r} must be empty or start with /")
    return tuple(part.replace("~1", "/").replace("~0", "~") for part in text.split("/")[1:])


def _refused(why: str) -> errors.ApiError:
    return errors.ApiError(
        422, "Invalid", f"the server rejected our request due to an error in our request: {why}"
    )


def _position(items: list[Json], name: str, limit: int) -> int:
    if not (name.isascii() and name.isdigit()) or (len(name) > 1 and name[0] == "0"):
        raise _refused(f"{name!r} is no list index")
    if int(name) > limit:
        raise _refused(f"index {name} is beyond a list of {len(items)}")
    return int(name)


def _read(document: Json, path: Path) -> Json:
    for name in path:
        if isinstance(document, list):
            document = document[_position(document, name, len(document) - 1)]
        elif isinstance(document, dict) and name in document:
            document = document[name]
        else:
            raise _refused(f"no value at {'/'.join(path)!r}")
    return document


def _edit(document: Json, path: Path, kind: str, value: Json) -> Json:
    if not path:
        return value
    name, rest = path[0], path[1:]
    if isinstance(document, dict):
        if (rest or kind != "add") and name not in document:
            raise _refused(f"no value at {'/'.join(path)!r}")
        changed = dict(document)
        if not rest and kind == "remove":
            del changed[name]
        else:
            changed[name] = _edit(document.get(name), rest, kind, value)
        return changed
    if isinstance(document, list):
        return _edit_list(document, name, rest, kind, value)
    raise _refused(f"no value at {'/'.join(path)!r}")


def _edit_list(items: list[Json], name: str, rest: Path, kind: str, value: Json) -> list[Json]:
    changed = list(items)
    if not rest and kind == "add":
        at = len(items) if name == "-" else _position(items, name, len(items))
        changed.insert(at, value)
        return changed
    at = _position(items, name, len(items) - 1)
    if not rest and kind == "remove":
        del changed[at]
    else:
        changed[at] = _edit(items[at], rest, kind, value)
    return changed


# ---- strategic merge patch


def strategic(target: Json, patch: Json, field: str = "") -> Json:
    """Apply a strategic merge patch to a built-in kind."""
    if isinstance(patch, list):
        return _strategic_list(target if isinstance(target, list) else [], patch, field)
    if not isinstance(patch, dict):
        return patch
    directive = patch.get("$patch")
    if directive == "delete":
        return {}
    if directive == "replace":
        return {name: value for name, value in patch.items() if name != "$patch"}
    result = dict(target) if isinstance(target, dict) else {}
    if "$retainKeys" in patch:
        kept = set(patch["$retainKeys"])
        result = {name: value for name, value in result.items() if name in kept}
    for name, value in patch.items():
        if name.startswith("$"):
            continue
        if value is None:
            result.pop(name, None)
        else:
            result[name] = strategic(result.get(name), value, name)
    return _list_directives(result, patch)


def _list_directives(result: dict[str, Json], patch: dict[str, Json]) -> dict[str, Json]:
    for name, value in patch.items():
        directive, _, field = name.partition("/")
        if directive == "$deleteFromPrimitiveList":
            result[field] = [item for item in result.get(field) or [] if item not in value]
        elif directive == "$setElementOrder":
            result[field] = _in_order(result.get(field) or [], value, field)
    return result


def _strategic_list(target: list[Json], patch: list[Json], field: str) -> list[Json]:
    if field in SETS:
        return list(dict.fromkeys([*target, *patch]))
    keys = list_keys(field, [*patch, *target])
    directives = [item for item in patch if _mapping(item).get("$patch") == "replace"]
    if not keys or directives:
        return [item for item in patch if item not in directives]
    key = keys[0]
    result = list(target)
    for item in patch:
        at = next(
            (i for i, old in enumerate(result) if _mapping(old).get(key) == item.get(key)), None
        )
        if item.get("$patch") == "delete":
            result = [old for old in result if _mapping(old).get(key) != item.get(key)]
        elif at is None:
            result.append(strategic(None, item))
        else:
            result[at] = strategic(result[at], item)
    return result


def _in_order(items: list[Json], order: list[Json], field: str) -> list[Json]:
    """Put items into the order that the client sees; ones it does not know stay behind."""
    keys = list_keys(field, [*order, *items])

    def identity(item: Json) -> Json:
        return _mapping(item).get(keys[0]) if keys and isinstance(item, dict) else item

    places = {str(identity(item)): place for place, item in enumerate(order)}
    return sorted(items, key=lambda item: places.get(str(identity(item)), len(places)))
