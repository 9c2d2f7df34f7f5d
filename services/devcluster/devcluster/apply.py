"""Server-side apply: who owns which field, conflicts, and what an apply takes away again (pure).

managedFields exist on an object from its first apply on; what was written before it belongs to
the object's creator, as Kubernetes does for objects older than the feature. Source:
"Server-Side Apply" of the API reference.
"""

from dataclasses import dataclass, replace
from typing import Any

from devcluster import errors, fields
from devcluster.fields import Leaves, Path, Schema
from devcluster.resources import Object

BEFORE_FIRST_APPLY = "before-first-apply"


@dataclass(frozen=True, slots=True)
class Applied:
    """An apply request; ``creator`` owns what the live object has if nobody does yet."""

    api_version: str
    manager: str
    patch: Object
    subresource: str = ""
    force: bool = False
    creator: str = ""


@dataclass(frozen=True, slots=True)
class Owner:
    """One entry of managedFields."""

    manager: str
    operation: str
    subresource: str
    api_version: str
    time: str
    paths: frozenset[Path]

    @property
    def identity(self) -> tuple[str, str, str]:
        """Return what makes two entries the same owner."""
        return (self.manager, self.operation, self.subresource)

    def entry(self) -> Object:
        """Return the managedFields entry."""
        found = {"manager": self.manager, "operation": self.operation}
        found |= {"apiVersion": self.api_version, "time": self.time, "fieldsType": "FieldsV1"}
        if self.subresource:
            found["subresource"] = self.subresource
        return {**found, "fieldsV1": fields.to_tree(self.paths)}


def owners_of(obj: Object) -> list[Owner]:
    """Read managedFields."""
    return [
        Owner(
            entry.get("manager", ""),
            entry.get("operation", ""),
            entry.get("subresource", ""),
            entry.get("apiVersion", ""),
            entry.get("time", ""),
            frozenset(fields.from_tree(entry.get("fieldsV1"))),
        )
        for entry in obj["metadata"].get("managedFields") or ()
    ]


def create(request: Applied, schema: Schema, now: str) -> Object:
    """Return the object that an apply creates."""
    patch = _checked(request)
    leaves = fields.of_object(patch, schema, request.subresource or "main")
    metadata = {
        **(patch.get("metadata") or {}),
        "managedFields": [_own(request, leaves, now).entry()],
    }
    return {**patch, "metadata": metadata}


def onto(live: Object, request: Applied, schema: Schema, now: str) -> Object:
    """Return the live object after an apply; raises ApiError 409 with one cause per conflict."""
    patch = _checked(request)
    part = request.subresource or "main"
    wanted = fields.of_object(patch, schema, part)
    owners = owners_of(live) or _inherited(live, request, schema, now)
    own = _own(request, wanted, now)
    others = [owner for owner in owners if owner.identity != own.identity]
    before = next((owner for owner in owners if owner.identity == own.identity), None)
    merged = fields.combine(live, _without_foreign_part(patch, part), "", schema)
    others = _settle_conflicts(request, others, _changed(live, merged, schema) & own.paths)
    dropped = _dropped(before, own, others)
    result = fields.without(merged, dropped, schema) if dropped else merged
    if before and before.paths == own.paths and result == live:
        own = before
    entries = [owner.entry() for owner in _in_order(owners, [*others, own]) if owner.paths]
    metadata = {**result["metadata"], "managedFields": entries}
    return {**result, "metadata": metadata}


def _changed(old: Object, new: Object, schema: Schema) -> set[Path]:
    """Return the fields that are new or have another value."""
    before, after = fields.of_object(old, schema), fields.of_object(new, schema)
    return {path for path, value in after.items() if path not in before or before[path] != value}


def _in_order(known: list[Owner], owners: list[Owner]) -> list[Owner]:
    """Sort owners as they stand in the object, new ones last."""
    places = {owner.identity: place for place, owner in enumerate(known)}
    return sorted(owners, key=lambda owner: places.get(owner.identity, len(places)))


def track(
    old: Object, new: Object, schema: Schema, manager: str, subresource: str, now: str
) -> list[Any]:
    """Return managedFields after a write that was no apply: who changes a field owns it."""
    changed = _changed(old, new, schema)
    gone = fields.of_object(old, schema).keys() - fields.of_object(new, schema).keys()
    writer = Owner(manager, "Update", subresource, new["apiVersion"], now, frozenset(changed))
    kept, known = [], owners_of(new)
    for owner in known:
        if owner.identity != writer.identity:
            kept.append(replace(owner, paths=owner.paths - gone - changed))
            continue
        paths = owner.paths - gone
        writer = (
            replace(writer, paths=writer.paths | paths) if changed else replace(owner, paths=paths)
        )
    return [owner.entry() for owner in _in_order(known, [*kept, writer]) if owner.paths]


def _checked(request: Applied) -> Object:
    metadata = request.patch.get("metadata") or {}
    if metadata.get("managedFields"):
        raise errors.bad_request("metadata.managedFields must be nil")
    return {
        **request.patch,
        "metadata": {k: v for k, v in metadata.items() if k != "managedFields"},
    }


def _own(request: Applied, leaves: Leaves, now: str) -> Owner:
    about = (request.manager, "Apply", request.subresource, request.api_version, now)
    return Owner(*about, frozenset(leaves))


def _inherited(live: Object, request: Applied, schema: Schema, now: str) -> list[Owner]:
    time = live["metadata"].get("creationTimestamp", now)
    creator = request.creator or BEFORE_FIRST_APPLY
    parts = {"": fields.of_object(live, schema, "main")}
    parts["status"] = fields.of_object(live, schema, "status")
    version = live["apiVersion"]
    return [
        Owner(creator, "Update", part, version, time, frozenset(leaves))
        for part, leaves in parts.items()
        if leaves
    ]


def _settle_conflicts(request: Applied, others: list[Owner], disputed: set[Path]) -> list[Owner]:
    """Return the other owners after the dispute; forced applies take the fields over."""
    conflicts = [(owner, path) for owner in others for path in sorted(owner.paths & disputed)]
    if conflicts and not request.force:
        causes = [
            {
                "reason": "FieldManagerConflict",
                "message": f"conflict with {_described(owner)}",
                "field": fields.spell(path),
            }
            for owner, path in conflicts
        ]
        count = f"{len(causes)} conflict" + ("s" if len(causes) > 1 else "")
        listed = "; ".join(f"{cause['message']}: {cause['field']}" for cause in causes)
        text = f"Apply failed with {count}: {listed}"
        raise errors.ApiError(409, "Conflict", text, {"causes": causes})
    return [replace(owner, paths=owner.paths - disputed) for owner in others]


def _described(owner: Owner) -> str:
    part = f' with subresource "{owner.subresource}"' if owner.subresource else ""
    if owner.operation != "Update":  # an applier is known by its name alone
        return f'"{owner.manager}"{part}'
    when = f" at {owner.time}" if owner.time else ""
    return f'"{owner.manager}"{part} using {owner.api_version}{when}'


def _dropped(before: Owner | None, own: Owner, others: list[Owner]) -> set[Path]:
    """Return fields that this manager applied before, applies no more, and nobody else owns."""
    if before is None:
        return set()
    shared = frozenset().union(*(owner.paths for owner in others))
    dropped = set(before.paths - own.paths - shared)
    items = {path for path in dropped if path[-1] == "."}
    held = shared | own.paths
    return {
        path
        for path in dropped
        if path not in items or not any(other[: len(path) - 1] == path[:-1] for other in held)
    }


def _without_foreign_part(patch: Object, part: str) -> Object:
    """Leave out what this endpoint does not write: status, or everything but status."""
    head = ("apiVersion", "kind", "metadata")
    if part == "status":
        return {name: value for name, value in patch.items() if name in (*head, "status")}
    return {name: value for name, value in patch.items() if name != "status"}
