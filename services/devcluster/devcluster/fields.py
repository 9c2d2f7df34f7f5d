"""Which fields an object has, as sets of paths in the spelling of managedFields (pure).

A path is a tuple of ``f:name``, ``k:{"key":"value"}`` (item of a list that is a map) and
``v:value`` (item of a list that is a set); ``.`` last stands for the item itself. Source:
"Server-Side Apply", FieldsV1 of metav1.
"""

import collections.abc
from typing import Any

from devcluster import patching
from devcluster.store import decode, encode

Json = Any
Path = tuple[str, ...]
Leaves = dict[Path, Json]
Schema = collections.abc.Mapping[str, Json]
"""Structural schema of a custom resource; empty for built-in kinds, whose list keys are known."""

_OWN = ("name", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp",
        "deletionTimestamp", "deletionGracePeriodSeconds", "managedFields", "selfLink",
        "generateName")  # fmt: skip
_KEY_DEFAULTS = {"protocol": "TCP"}


def of_object(obj: Json, schema: Schema, part: str = "") -> Leaves:
    """Return the fields that managers can own; ``part`` limits them to status or all else."""
    metadata = {k: v for k, v in (obj.get("metadata") or {}).items() if k not in _OWN}
    body = {k: v for k, v in obj.items() if k not in ("apiVersion", "kind", "metadata")}
    if part:
        body = {k: v for k, v in body.items() if (k == "status") == (part == "status")}
    if metadata and part != "status":
        body["metadata"] = metadata
    found: Leaves = {}
    for name, value in body.items():
        _collect(value, (f"f:{name}",), name, child(schema, name), found)
    return found


def _collect(value: Json, path: Path, field: str, schema: Schema, found: Leaves) -> None:
    if isinstance(value, dict) and value:
        for name, inner in value.items():
            _collect(inner, (*path, f"f:{name}"), name, child(schema, name), found)
        return
    keys = list_type(value, field, schema)
    if keys is None:
        found[path] = value
        return
    for item in value:
        element = (*path, element_of(item, keys))
        found[(*element, ".") if keys else element] = None
        if keys:
            for name, inner in item.items():
                _collect(inner, (*element, f"f:{name}"), name, child(schema, name), found)


def child(schema: Schema, name: str) -> Schema:
    """Return the schema of a field, through list items too."""
    if name == "metadata":
        return {}  # the same in every kind, whatever a custom resource's schema says
    schema = schema.get("items") or schema
    properties = schema.get("properties") or {}
    found: Schema = properties.get(name) or schema.get("additionalProperties") or {}
    if schema and not found:
        return {"x-kubernetes-unknown": True}
    return found if isinstance(found, dict) else {"x-kubernetes-unknown": True}


def list_type(value: Json, field: str, schema: Schema) -> tuple[str, ...] | None:
    """Return the keys of a list that is a map, () for a set, None for anything atomic."""
    if not isinstance(value, list):
        return None
    kind = schema.get("x-kubernetes-list-type")
    if schema:
        if kind == "set":
            return ()
        keys = tuple(schema.get("x-kubernetes-list-map-keys") or ()) if kind == "map" else ()
    elif field in patching.SETS:
        return ()
    else:
        keys = patching.list_keys(field, value)
    fits = keys and all(isinstance(item, dict) and keys[0] in item for item in value)
    return keys if fits else None


def element_of(item: Json, keys: tuple[str, ...]) -> str:
    """Return the path element that identifies a list item."""
    if not keys:
        return "v:" + encode(item).decode()
    values = {key: item.get(key, _KEY_DEFAULTS.get(key)) for key in sorted(keys)}
    known = {key: value for key, value in values.items() if value is not None}
    return "k:" + encode(known).decode()


def to_tree(paths: collections.abc.Iterable[Path]) -> Json:
    """Return paths as FieldsV1."""
    root: Json = {}
    for path in sorted(paths):
        node = root
        for element in path:
            node = node.setdefault(element, {})
    return root


def from_tree(tree: Json) -> set[Path]:
    """Return the paths of a FieldsV1 value."""
    found: set[Path] = set()

    def walk(node: Json, path: Path) -> None:
        for element, inner in node.items():
            if inner:
                walk(inner, (*path, element))
            else:
                found.add((*path, element))

    walk(tree or {}, ())
    return found


def spell(path: Path) -> str:
    """Return a path as conflict messages show it: .spec.ports[port=80].name."""
    text = ""
    for element in path:
        if element == ".":
            continue
        kind, _, rest = element.partition(":")
        if kind == "f":
            text += f".{rest}"
        elif kind == "v":
            text += f"[={rest}]"
        else:
            pairs = (f"{key}={encode(value).decode()}" for key, value in decode(rest).items())
            text += f"[{','.join(pairs)}]"
    return text


def combine(live: Json, applied: Json, field: str = "", schema: Schema | None = None) -> Json:
    """Merge an applied configuration into the live value: maps and keyed lists item by item."""
    schema = schema or {}
    if isinstance(applied, dict):
        result = dict(live) if isinstance(live, dict) else {}
        for name, value in applied.items():
            result[name] = combine(result.get(name), value, name, child(schema, name))
        return result
    keys = list_type(applied, field, schema)
    if keys is None or not isinstance(live, list):
        return applied
    result_list = list(live)
    places = {element_of(item, keys): place for place, item in enumerate(live)}
    for item in applied:
        place = places.get(element_of(item, keys))
        if place is None:
            result_list.append(item)
        elif keys:
            result_list[place] = combine(live[place], item, "", schema.get("items"))
    return result_list


def without(value: Json, paths: collections.abc.Iterable[Path], schema: Schema) -> Json:
    """Return the value with fields and list items taken out; emptied parents go too."""
    return _prune(value, to_tree(paths), "", schema)


_GONE = object()


def _prune(value: Json, tree: Json, field: str, schema: Schema) -> Json:
    if not tree or "." in tree:
        return _GONE
    if isinstance(value, dict):
        kept = dict(value)
        for element, inner in tree.items():
            name = element[2:]
            if name in kept:
                part = _prune(kept[name], inner, name, child(schema, name))
                if part is _GONE:
                    del kept[name]
                else:
                    kept[name] = part
        return kept or _GONE
    keys = list_type(value, field, schema)
    if keys is None:
        return value
    items = []
    for item in value:
        element = element_of(item, keys)
        part = (
            _prune(item, tree[element], "", schema.get("items") or {}) if element in tree else item
        )
        if part is not _GONE:
            items.append(part)
    return items or _GONE
