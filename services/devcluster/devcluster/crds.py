"""CustomResourceDefinitions: the resources they declare, and the values these accept (pure).

Schemas are checked for type, required, enum and nullable; fields that a structural schema does
not know are pruned, defaults are filled in. CEL rules and conversion webhooks are not run.
Source: "Extend the Kubernetes API with CustomResourceDefinitions", structural schemas.
"""

import collections.abc
from typing import Any

from devcluster import errors
from devcluster.errors import Cause
from devcluster.resources import Object, Resource

Schema = collections.abc.Mapping[str, Any]
_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "object": (dict,),
    "array": (list,),
}
_KEEP = "x-kubernetes-preserve-unknown-fields"


def rows(crd: Object) -> list[Resource]:
    """Return a row for each served version, the stored one first."""
    spec, names = crd["spec"], crd["spec"]["names"]
    versions = [v for v in spec["versions"] if v.get("served") or v.get("storage")]
    versions.sort(key=lambda version: not version.get("storage"))
    plural = f"{names['plural']}.{spec['group']}"
    return [
        Resource(
            group=spec["group"],
            version=version["name"],
            plural=names["plural"],
            kind=names["kind"],
            namespaced=spec["scope"] == "Namespaced",
            short_names=tuple(names.get("shortNames") or ()),
            categories=tuple(names.get("categories") or ()),
            subresources=("status",) if "status" in (version.get("subresources") or {}) else (),
            fields=tuple(f["jsonPath"].lstrip(".") for f in version.get("selectableFields") or ()),
            unconditional=False,
            view_of="" if version.get("storage") else plural,
            singular=names.get("singular", ""),
            custom=True,
            schema=(version.get("schema") or {}).get("openAPIV3Schema") or {},
            columns=tuple(version.get("additionalPrinterColumns") or ()),
        )
        for version in versions
    ]


def complete(crd: Object) -> None:
    """Fill in names and the status of a definition, which is served at once."""
    spec = crd.get("spec") or {}
    names = spec.setdefault("names", {})
    names.setdefault("singular", str(names.get("kind", "")).lower())
    names.setdefault("listKind", f"{names.get('kind', '')}List")
    spec.setdefault("conversion", {"strategy": "None"})
    now = crd["metadata"]["creationTimestamp"]
    conditions = [
        {"type": kind, "status": "True", "reason": reason, "message": message}
        | {"lastTransitionTime": now}
        for kind, reason, message in (
            ("NamesAccepted", "NoConflicts", "no conflicts found"),
            ("Established", "InitialNamesAccepted", "the initial names have been accepted"),
        )
    ]
    stored = [v.get("name") for v in spec.get("versions") or () if v.get("storage")]
    crd["status"] = {"conditions": conditions, "acceptedNames": names, "storedVersions": stored}


def check_definition(crd: Object) -> collections.abc.Iterator[Cause]:
    """Tell what is wrong with a definition."""
    spec = crd.get("spec") or {}
    names = spec.get("names") or {}
    for path, value in (("group", spec.get("group")), ("names.plural", names.get("plural")),
                        ("names.kind", names.get("kind"))):  # fmt: skip
        if not value:
            yield errors.required(f"spec.{path}")
    if spec.get("scope") not in ("Cluster", "Namespaced"):
        yield errors.unsupported("spec.scope", spec.get("scope"), ("Cluster", "Namespaced"))
    wanted = f"{names.get('plural')}.{spec.get('group')}"
    if crd["metadata"].get("name") != wanted:
        why = f'must be spec.names.plural+"."+spec.group, which is {wanted}'
        yield errors.invalid_value("metadata.name", crd["metadata"].get("name"), why)
    versions = spec.get("versions") or []
    if sum(bool(version.get("storage")) for version in versions) != 1:
        why = "must have exactly one version marked as storage version"
        yield errors.invalid_value("spec.versions", [v.get("name") for v in versions], why)
    for index, version in enumerate(versions):
        yield from _check_version(version, f"spec.versions[{index}]")
        schema = (version.get("schema") or {}).get("openAPIV3Schema")
        if not schema:
            path = f"spec.versions[{index}].schema.openAPIV3Schema"
            yield errors.required(path, "schemas are required")


def _check_version(version: Object, path: str) -> collections.abc.Iterator[Cause]:
    if not version.get("name"):
        yield errors.required(f"{path}.name")
    for listed, wanted in (
        ("additionalPrinterColumns", ("name", "type", "jsonPath")),
        ("selectableFields", ("jsonPath",)),
    ):
        for index, one in enumerate(version.get(listed) or ()):
            for name in wanted:
                if not one.get(name):
                    yield errors.required(f"{path}.{listed}[{index}].{name}")


def admit(resource: Resource, obj: Object) -> Object:
    """Return a custom object without unknown fields and with defaults."""
    head: Object = {name: obj[name] for name in ("kind", "apiVersion", "metadata") if name in obj}
    body = {name: value for name, value in obj.items() if name not in head}
    pruned: Object = _prune(resource.schema, body, is_root=True)
    return {**head, **pruned}


def _prune(schema: Schema, value: Any, *, is_root: bool = False) -> Any:
    if isinstance(value, list) and isinstance(schema.get("items"), dict):
        return [_prune(schema["items"], item) for item in value]
    if not isinstance(value, dict) or schema.get("x-kubernetes-embedded-resource"):
        return value
    properties = schema.get("properties") or {}
    extra = schema.get("additionalProperties")
    keeps = bool(schema.get(_KEEP) or extra is True or not schema.get("type"))
    kept = {}
    for name, inner in value.items():
        if name in properties:
            kept[name] = _prune(properties[name], inner)
        elif isinstance(extra, dict):
            kept[name] = _prune(extra, inner)
        elif keeps:
            kept[name] = inner
    for name, part in properties.items():
        if "default" in part and kept.get(name) is None and not (is_root and name == "metadata"):
            kept[name] = _prune(part, part["default"])
    return kept


def check_value(resource: Resource, obj: Object) -> list[Cause]:
    """List what a custom object's schema refuses."""
    body = {k: v for k, v in obj.items() if k not in ("kind", "apiVersion", "metadata")}
    # What every object has is not the schema's business.
    schema = {**resource.schema, "required": [
        name for name in resource.schema.get("required") or ()
        if name not in ("kind", "apiVersion", "metadata")
    ]}  # fmt: skip
    return list(_check(schema, body, "")) if resource.schema else []


def _check(schema: Schema, value: Any, path: str) -> collections.abc.Iterator[Cause]:
    if value is None and (schema.get("nullable") or schema.get(_KEEP)):
        return
    if not _fits(schema, value):
        wanted = "integer or string" if "x-kubernetes-int-or-string" in schema else schema["type"]
        shown = value if isinstance(value, str | int | float) else type(value).__name__
        text = f'Invalid value: "{shown}": {path or "<nil>"} in body must be of type {wanted}'
        yield Cause(path, "FieldValueTypeInvalid", text)
        return
    known = schema.get("enum")
    if known and value not in known:
        yield errors.unsupported(path, value, map(str, known))
    if isinstance(value, dict):
        for name in schema.get("required") or ():
            if name not in value:
                yield errors.required(f"{path}.{name}".lstrip("."))
        properties, extra = schema.get("properties") or {}, schema.get("additionalProperties")
        for name, inner in value.items():
            part = properties.get(name) or (extra if isinstance(extra, dict) else None)
            if part:
                yield from _check(part, inner, f"{path}.{name}".lstrip("."))
    elif isinstance(value, list) and isinstance(schema.get("items"), dict):
        for index, item in enumerate(value):
            yield from _check(schema["items"], item, f"{path}[{index}]")


def _fits(schema: Schema, value: Any) -> bool:
    if schema.get("x-kubernetes-int-or-string"):
        return isinstance(value, int | str) and not isinstance(value, bool)
    wanted = _TYPES.get(str(schema.get("type", "")))
    if wanted is None:
        return True
    if isinstance(value, bool):
        return bool in wanted
    return isinstance(value, wanted)
