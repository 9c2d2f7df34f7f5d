"""Changes to send to the API server, as data.

The rule: a write carries only what it changes, and where a stale view could do harm it
carries a guard. A finalizer is added or removed as one list element, never by sending the
list back: someone else's finalizer added meanwhile would be lost.

Formats: RFC 6902 (JSON patch), RFC 7386 (merge patch), Kubernetes strategic merge patch.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from bitts.kube import objects

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_MERGE_PATCH = "application/strategic-merge-patch+json"


@dataclasses.dataclass(frozen=True, slots=True)
class Patch:
    """A patch body and the media type that says how to read it."""

    content_type: str
    body: Mapping[str, Any] | Sequence[Mapping[str, Any]]


def merge(body: Mapping[str, Any], *, resource_version: str = "") -> Patch:
    """A merge patch: maps merge, ``None`` removes, lists are replaced whole.

    With ``resource_version`` the server answers Conflict if the object has changed.
    """
    return Patch(MERGE_PATCH, _guarded(body, resource_version))


def strategic(body: Mapping[str, Any], *, resource_version: str = "") -> Patch:
    """A strategic merge patch: as merge, but lists with a merge key merge by element.

    Built-in types only; custom resources refuse it.
    """
    return Patch(STRATEGIC_MERGE_PATCH, _guarded(body, resource_version))


def json_patch(operations: Sequence[Mapping[str, Any]]) -> Patch:
    """A JSON patch: all operations apply, or none (Invalid)."""
    return Patch(JSON_PATCH, tuple(operations))


def test(path: str, value: object) -> dict[str, Any]:
    """JSON patch operation: fail unless the value at ``path`` is this one."""
    return {"op": "test", "path": path, "value": value}


def add(path: str, value: object) -> dict[str, Any]:
    """JSON patch operation: set a map entry, or insert a list element."""
    return {"op": "add", "path": path, "value": value}


def replace(path: str, value: object) -> dict[str, Any]:
    """JSON patch operation: replace a value that must exist."""
    return {"op": "replace", "path": path, "value": value}


def remove(path: str) -> dict[str, Any]:
    """JSON patch operation: remove a value that must exist."""
    return {"op": "remove", "path": path}


def pointer(*parts: str | int) -> str:
    """An RFC 6901 pointer from its unescaped parts."""
    escaped = (str(part).replace("~", "~0").replace("/", "~1") for part in parts)
    return "".join(f"/{part}" for part in escaped)


def annotations(changes: Mapping[str, str | None], *, resource_version: str = "") -> Patch:
    """Set annotations, or remove those given as ``None``."""
    return merge({"metadata": {"annotations": dict(changes)}}, resource_version=resource_version)


def labels(changes: Mapping[str, str | None], *, resource_version: str = "") -> Patch:
    """Set labels, or remove those given as ``None``."""
    return merge({"metadata": {"labels": dict(changes)}}, resource_version=resource_version)


def add_finalizer(seen: objects.Object, name: str) -> Patch | None:
    """Add one finalizer to the object as seen; ``None`` if it is there.

    Guarded by the list as seen, so that it is never added twice and never overwrites
    another one. An object without finalizers has no list to compare with: there the
    resourceVersion is the guard. Invalid means that the view was stale.
    """
    metadata = seen.metadata
    if name in metadata.finalizers:
        return None
    if metadata.finalizers:
        guard = test("/metadata/finalizers", list(metadata.finalizers))
        return json_patch([*_same_object(seen), guard, add("/metadata/finalizers/-", name)])
    guard = test("/metadata/resourceVersion", metadata.resource_version)
    return json_patch([guard, add("/metadata/finalizers", [name])])


def remove_finalizer(seen: objects.Object, name: str) -> Patch | None:
    """Remove one finalizer from the object as seen; ``None`` if it is not there.

    Guarded by the element at the index as seen; Invalid means that the view was stale.
    """
    if name not in seen.metadata.finalizers:
        return None
    path = pointer("metadata", "finalizers", seen.metadata.finalizers.index(name))
    return json_patch([*_same_object(seen), test(path, name), remove(path)])


def _same_object(seen: objects.Object) -> list[dict[str, Any]]:
    # A name can be taken again by another object, which is none of our business.
    return [test("/metadata/uid", seen.metadata.uid)] if seen.metadata.uid else []


def _guarded(body: Mapping[str, Any], resource_version: str) -> Mapping[str, Any]:
    if not resource_version:
        return body
    metadata = {**body.get("metadata", {}), "resourceVersion": resource_version}
    return {**body, "metadata": metadata}
