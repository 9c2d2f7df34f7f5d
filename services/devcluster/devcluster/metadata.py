"""What the server alone decides about an object: identity, generation, deletion marks.

Pure functions over plain values. Source: API conventions, "Metadata" and "Spec and Status";
the graceful rules of pods follow the pod resource of Kubernetes 1.37.
"""

import collections.abc
import datetime as dt
import random
import re
import uuid
from dataclasses import dataclass
from typing import Any

from devcluster import errors
from devcluster.errors import Cause
from devcluster.resources import Object, Resource

_SUFFIX_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
SUBDOMAIN_RULE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.',"
    " and must start and end with an alphanumeric character"
)
LABEL_RULE = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-',"
    " and must start and end with an alphanumeric character"
)
_LABEL_NAMED = frozenset({"Namespace", "Service"})
_PATH_NAMED = frozenset({"Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"})
_QUALIFIED = re.compile(r"([a-z0-9.-]{1,253}/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_FIXED = ("name", "namespace", "uid", "creationTimestamp", "deletionTimestamp",
          "deletionGracePeriodSeconds", "generateName", "selfLink")  # fmt: skip
_WRITABLE = ("labels", "annotations", "managedFields", "ownerReferences", "finalizers")
_OWNER = ("apiVersion", "kind", "name", "uid")
_ANNOTATIONS = 256 << 10
_POD_GRACE = 30
_THROWS = 8


def now() -> str:
    """Return the current time in whole seconds as objects spell it."""
    return dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def begin(
    resource: Resource,
    obj: Object,
    namespace: str,
    is_taken: collections.abc.Callable[[str], bool] = lambda name: False,
) -> Object:
    """Give a new object its identity; ``obj`` is ours to change. Raises ApiError 400.

    A generated name that ``is_taken`` is thrown again, as Kubernetes does, up to eight times.
    """
    metadata = obj.setdefault("metadata", {})
    if resource.namespaced:
        if metadata.setdefault("namespace", namespace) != namespace:
            what = "the namespace of the provided object does not match the namespace"
            raise errors.bad_request(f"{what} sent on the request")
    else:
        metadata.pop("namespace", None)
    if not metadata.get("name") and metadata.get("generateName"):
        metadata["name"] = _generated(metadata["generateName"], is_taken)
    if metadata.get("resourceVersion"):
        raise errors.bad_request("resourceVersion should not be set on objects to be created")
    for name in ("deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "resourceVersion"):
        metadata.pop(name, None)
    metadata["uid"] = str(uuid.UUID(int=random.getrandbits(128), version=4))
    metadata["creationTimestamp"] = now()
    metadata.pop("generation", None)
    if resource.generation or resource.custom:
        metadata["generation"] = 1
    if "status" in resource.subresources and resource.kind not in ("Node", "Pod"):
        obj.pop("status", None)
    return _ordered(resource, obj)


def _generated(prefix: str, is_taken: collections.abc.Callable[[str], bool]) -> str:
    name = prefix
    for _ in range(_THROWS):
        suffix = "".join(random.choices(_SUFFIX_ALPHABET, k=5))  # noqa: S311 - a name, no secret
        name = prefix[:58] + suffix
        if not is_taken(name):
            break
    return name


def _ordered(resource: Resource, obj: Object) -> Object:
    rest = {k: v for k, v in obj.items() if k not in ("kind", "apiVersion", "metadata")}
    head = {"kind": resource.kind, "apiVersion": resource.api_version}
    return {**head, "metadata": obj["metadata"], **rest}


def check(resource: Resource, metadata: Object) -> list[Cause]:
    """Check name, labels and finalizers."""
    causes = _check_name(resource, metadata.get("name"))
    causes += _check_owners(metadata.get("ownerReferences") or ())
    for key, value in (metadata.get("labels") or {}).items():
        if not is_qualified(key):
            causes.append(
                errors.invalid_value("metadata.labels", key, "name part must be a qualified name")
            )
        if not is_label_value(value):
            causes.append(errors.invalid_value("metadata.labels", value, "not a valid label value"))
    causes += _check_annotations(metadata.get("annotations") or {})
    for index, name in enumerate(metadata.get("finalizers") or ()):
        if not is_qualified(name):
            why = "name part must be a qualified name"
            causes.append(errors.invalid_value("metadata.finalizers", name, why))
        elif "/" not in name and name not in ("orphan", "foregroundDeletion"):
            why = "name is neither a standard finalizer name nor is it fully qualified"
            causes.append(errors.invalid_value(f"metadata.finalizers[{index}]", name, why))
    return causes


def _check_annotations(annotations: Object) -> list[Cause]:
    path = "metadata.annotations"
    why = "name part must be a qualified name"
    causes = [
        errors.invalid_value(path, key, why) for key in annotations if not is_qualified(key.lower())
    ]
    size = sum(len(key.encode()) + len(str(value).encode()) for key, value in annotations.items())
    if size > _ANNOTATIONS:
        text = f"Too long: may not be more than {_ANNOTATIONS} bytes"
        causes.append(Cause(path, "FieldValueTooLong", text))
    return causes


def _check_owners(owners: collections.abc.Sequence[Object]) -> list[Cause]:
    """Each owner is named in full, and at most one of them is the controller."""
    path = "metadata.ownerReferences"
    causes = [
        errors.required(f"{path}[{index}].{name}")
        for index, owner in enumerate(owners)
        for name in _OWNER
        if not owner.get(name)
    ]
    for index, owner in enumerate(owners):
        where = f"{path}[{index}]"
        if owner.get("apiVersion", "").count("/") > 1:
            why = "must be <group>/<version> or <version>"
            causes.append(errors.invalid_value(f"{where}.apiVersion", owner["apiVersion"], why))
        if (owner.get("apiVersion"), owner.get("kind")) == ("v1", "Event"):
            why = "/v1, Kind=Event is disallowed from being an owner"
            causes.append(errors.invalid_value(where, owner, why))
    leading = [f"{one.get('kind')}/{one.get('name')}" for one in owners if one.get("controller")]
    for other in leading[1:]:
        why = "Only one reference can have Controller set to true. Found "
        why += f'"true" in references for {leading[0]} and {other}'
        causes.append(errors.invalid_value(path, list(owners), why))
    return causes


def is_subdomain(name: str, limit: int = 253) -> bool:
    """Whether a text is a DNS subdomain of at most so many characters."""
    return len(name) <= limit and _SUBDOMAIN.fullmatch(name) is not None


def is_label(name: str) -> bool:
    """Whether a text is a DNS label."""
    return len(name) <= 63 and _LABEL.fullmatch(name) is not None


def is_label_value(value: str) -> bool:
    """Whether a label may have this value."""
    return _LABEL_VALUE.fullmatch(value) is not None


def is_qualified(name: str) -> bool:
    """Whether a text is a name, after a DNS subdomain and a slash or by itself."""
    return _QUALIFIED.fullmatch(name) is not None


def _check_name(resource: Resource, name: Any) -> list[Cause]:
    if not name:
        return [errors.required("metadata.name", "name or generateName is required")]
    if resource.kind in _PATH_NAMED:
        bad = "/" in name or "%" in name or name in (".", "..")
        return (
            [errors.invalid_value("metadata.name", name, "may not contain '/' or '%'")]
            if bad
            else []
        )
    pattern, limit, rule = _SUBDOMAIN, 253, SUBDOMAIN_RULE
    if resource.kind in _LABEL_NAMED:
        pattern, limit, rule = _LABEL, 63, LABEL_RULE
    if len(name) > limit:
        return [
            errors.invalid_value("metadata.name", name, f"must be no more than {limit} characters")
        ]
    return [] if pattern.fullmatch(name) else [errors.invalid_value("metadata.name", name, rule)]


def carry_over(resource: Resource, old: Object, new: Object, subresource: str) -> Object:
    """Return the new state with everything that this request may not change taken from the old.

    ``new`` is ours to change. Status and the rest are isolated both ways.
    """
    before, given = old["metadata"], new["metadata"]
    if subresource == "status":
        # A custom resource's status endpoint writes no metadata; built-in kinds' do.
        source = before if resource.custom else given
        kept = {name: source[name] for name in _WRITABLE if name in source}
        if resource.custom and "managedFields" in given:
            kept["managedFields"] = given["managedFields"]
        rest = {name: value for name, value in old.items() if name != "status"}
        new = rest | {"metadata": kept} | ({"status": new["status"]} if "status" in new else {})
    elif subresource == "binding":
        new = {**old, "spec": new["spec"], "status": new["status"], "metadata": given}
    elif subresource == "finalize":
        new = {**old, "spec": new.get("spec") or {}, "metadata": given}
    elif "status" in resource.subresources:
        new = {k: v for k, v in new.items() if k != "status"}
        if "status" in old:
            new["status"] = old["status"]
    after = new["metadata"] = dict(new["metadata"])
    for name in _FIXED:
        if name in before:
            after[name] = before[name]
        else:
            after.pop(name, None)
    if "managedFields" not in after and "managedFields" in before:
        after["managedFields"] = before["managedFields"]
    for name in _WRITABLE:
        if name in after and not after[name]:
            del after[name]
    _set_generation(resource, old, new)
    after["resourceVersion"] = before["resourceVersion"]
    return _ordered(resource, new)


def _set_generation(resource: Resource, old: Object, new: Object) -> None:
    generation = old["metadata"].get("generation")
    new["metadata"].pop("generation", None)
    if generation is None:
        return
    apart = ("metadata", "status", "apiVersion", "kind")
    if not resource.custom:
        changed = old.get("spec") != new.get("spec")
    else:
        changed = {k: v for k, v in old.items() if k not in apart} != {
            k: v for k, v in new.items() if k not in apart
        }
    new["metadata"]["generation"] = generation + changed


def check_update(old: Object, new: Object) -> list[Cause]:
    """Refuse finalizers that appear on an object which is being deleted."""
    if not old["metadata"].get("deletionTimestamp"):
        return []
    known = old["metadata"].get("finalizers") or ()
    added = [name for name in new["metadata"].get("finalizers") or () if name not in known]
    if not added:
        return []
    listed = ", ".join(f'"{name}"' for name in added)
    why = (
        "no new finalizers can be added if the object is being deleted,"
        f" found new finalizers []string{{{listed}}}"
    )
    return [errors.forbidden_value("metadata.finalizers", why)]


def is_gone(obj: Object) -> bool:
    """Whether nothing holds an object any longer that is marked for deletion."""
    metadata = obj["metadata"]
    marked = metadata.get("deletionTimestamp") and not metadata.get("finalizers")
    if not marked or metadata.get("deletionGracePeriodSeconds"):
        return False
    return obj["kind"] != "Namespace" or not (obj.get("spec") or {}).get("finalizers")


@dataclass(frozen=True, slots=True)
class DeleteOptions:
    """What a DELETE request may ask for; ``grace`` in seconds."""

    grace: int | None = None
    propagation: str = ""
    uid: str | None = None
    revision: str | None = None
    dry_run: bool = False


def mark_deleted(resource: Resource, old: Object, options: DeleteOptions) -> Object:
    """Return the object as a DELETE leaves it; whether it then ``is_gone`` is for the caller."""
    new = {**old, "metadata": dict(old["metadata"])}
    metadata = new["metadata"]
    grace = _grace(resource, old, options.grace)
    if "deletionTimestamp" not in metadata or grace < metadata.get("deletionGracePeriodSeconds", 0):
        end = dt.datetime.now(dt.UTC) + dt.timedelta(seconds=grace)
        metadata["deletionTimestamp"] = end.strftime("%Y-%m-%dT%H:%M:%SZ")
        metadata["deletionGracePeriodSeconds"] = grace
        if "generation" in metadata:
            metadata["generation"] += 1
    finalizers = [
        name
        for name in metadata.get("finalizers") or ()
        if name not in ("orphan", "foregroundDeletion")
    ]
    wanted = {"Orphan": "orphan", "Foreground": "foregroundDeletion"}.get(options.propagation)
    if wanted:
        finalizers.append(wanted)
    elif not options.propagation:
        finalizers = list(metadata.get("finalizers") or ())
    if finalizers:
        metadata["finalizers"] = finalizers
    else:
        metadata.pop("finalizers", None)
    if resource.kind == "Namespace" and (old.get("spec") or {}).get("finalizers"):
        new["status"] = {**(old.get("status") or {}), "phase": "Terminating"}
    return new


def _grace(resource: Resource, old: Object, asked: int | None) -> int:
    if resource.qualified != "pods":
        return 0
    spec, phase = old.get("spec") or {}, (old.get("status") or {}).get("phase")
    if not spec.get("nodeName") or phase in ("Succeeded", "Failed"):
        return 0
    default = spec.get("terminationGracePeriodSeconds")
    return asked if asked is not None else _POD_GRACE if default is None else default
