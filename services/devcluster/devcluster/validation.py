"""The rules of the kinds we touch: what a field must hold, and what may not change (pure).

Rules are small functions made by ``needs``, ``one_of``, ``fixed`` … and listed per resource, so
that the tables at the end read like the rules themselves. Source: the validation of the API
types in Kubernetes 1.37; texts agree where clients show or match them.
"""

import base64
import binascii
import collections.abc
import re
from typing import Any

from bitts.kube import quantity

from devcluster import crds, errors
from devcluster.errors import Cause
from devcluster.resources import Object, Resource
from devcluster.tables import at

Rule = collections.abc.Callable[[Object], collections.abc.Iterable[Cause]]
Change = collections.abc.Callable[[Object, Object], collections.abc.Iterable[Cause]]

ACCESS_MODES = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
_IMMUTABLE = "field is immutable"
_NO_SOURCE = (
    *("capacity", "accessModes", "claimRef", "persistentVolumeReclaimPolicy", "mountOptions"),
    *("storageClassName", "volumeMode", "nodeAffinity", "volumeAttributesClassName"),
)
"""Fields of a volume's spec that say nothing about where its data is."""
_BETA_CLASS = "volume.beta.kubernetes.io/storage-class"


def on_create(resource: Resource, obj: Object) -> list[Cause]:
    """List what is wrong with a new object."""
    if resource.custom:
        return crds.check_value(resource, obj)
    return [cause for rule in RULES.get(resource.plural, ()) for cause in rule(obj)]


def on_update(resource: Resource, old: Object, new: Object, subresource: str) -> list[Cause]:
    """List what is wrong with a change; status is free within the rules of its fields."""
    if resource.custom:
        return crds.check_value(resource, new)
    if subresource == "status":
        return [cause for rule in STATUS_RULES.get(resource.plural, ()) for cause in rule(new)]
    causes = [cause for rule in RULES.get(resource.plural, ()) for cause in rule(new)]
    changes = CHANGES.get(resource.plural, ())
    return causes + [cause for change in changes for cause in change(old, new)]


# ---- rule makers


def needs(*paths: str) -> Rule:
    """Fields that must be given and not be empty."""
    return lambda obj: (errors.required(path) for path in paths if at(path)(obj) in ("", [], {}))


def one_of(path: str, *known: str) -> Rule:
    """A field, where given, is one of the known words."""

    def rule(obj: Object) -> collections.abc.Iterator[Cause]:
        value = at(path, None)(obj)
        if value is not None and value not in known:
            yield errors.unsupported(path, value, known)

    return rule


def maps(*paths: str) -> Rule:
    """Fields that, where given, are maps of strings."""

    def rule(obj: Object) -> collections.abc.Iterator[Cause]:
        for path in paths:
            value = at(path, {})(obj)
            if not isinstance(value, dict):
                yield errors.invalid_value(path, value, "must be a map")
                continue
            for key, one in value.items():
                if not isinstance(one, str):
                    yield errors.invalid_value(f"{path}[{key}]", one, "must be a string")

    return rule


def amount(path: str, *, shown: str = "", is_required: bool = False) -> Rule:
    """A quantity above zero."""
    field = shown or path

    def rule(obj: Object) -> collections.abc.Iterator[Cause]:
        value = at(path, None)(obj)
        if value is None:
            if is_required:
                yield errors.required(field)
            return
        try:
            is_positive = quantity.parse(str(value)).nanos > 0
        except quantity.QuantityError:
            yield errors.invalid_value(field, value, "must be a quantity such as 1Gi")
            return
        if not is_positive:
            yield errors.invalid_value(field, value, "must be greater than zero")

    return rule


def longest(path: str, limit: int) -> Rule:
    """A text of at most so many bytes."""

    def rule(obj: Object) -> collections.abc.Iterator[Cause]:
        if len(str(at(path)(obj)).encode()) > limit:
            text = f"Too long: may not be more than {limit} bytes"
            yield Cause(path, "FieldValueTooLong", text)

    return rule


def fixed(*paths: str) -> Change:
    """Fields that never change."""

    def change(old: Object, new: Object) -> collections.abc.Iterator[Cause]:
        for path in paths:
            cell = at(path, None)
            if cell(old) != cell(new):
                yield errors.invalid_value(path, cell(new), _IMMUTABLE)

    return change


# ---- rules of single kinds


def _access_modes(obj: Object) -> collections.abc.Iterator[Cause]:
    modes = at("spec.accessModes", ())(obj)
    if not modes:
        yield errors.required("spec.accessModes", "at least 1 access mode is required")
    for mode in modes:
        if mode not in ACCESS_MODES:
            yield errors.unsupported("spec.accessModes", mode, ACCESS_MODES)
    if "ReadWriteOncePod" in modes and len(set(modes)) > 1:
        why = "may not use ReadWriteOncePod with other access modes"
        yield errors.forbidden_value("spec.accessModes", why)


def _source(obj: Object) -> collections.abc.Iterator[Cause]:
    spec = obj.get("spec") or {}
    sources = [name for name in spec if name not in _NO_SOURCE and spec[name] is not None]
    if not sources:
        yield errors.required("spec", "must specify a volume type")
    for name in sources[1:]:
        yield errors.forbidden_value(f"spec.{name}", "may not specify more than 1 volume type")
    csi = spec.get("csi")
    if csi is None:
        return
    for name in ("driver", "volumeHandle"):
        if not csi.get(name):
            yield errors.required(f"spec.csi.{name}")
    for name, value in csi.items():
        if name.endswith("SecretRef") and isinstance(value, dict):
            for part in ("name", "namespace"):
                if not value.get(part):
                    yield errors.required(f"spec.csi.{name}.{part}")


def _affinity(obj: Object) -> collections.abc.Iterator[Cause]:
    affinity = at("spec.nodeAffinity", None)(obj)
    if affinity is None:
        return
    path = "spec.nodeAffinity.required"
    if affinity.get("required") is None:
        yield errors.required(path, "must specify required node constraints")
    elif not affinity["required"].get("nodeSelectorTerms"):
        hint = "must have at least one node selector term"
        yield errors.required(f"{path}.nodeSelectorTerms", hint)


def _attachment_source(obj: Object) -> collections.abc.Iterator[Cause]:
    source = at("spec.source", {})(obj)
    given = [n for n in ("inlineVolumeSpec", "persistentVolumeName") if source.get(n) is not None]
    why = "must specify exactly one of inlineVolumeSpec and persistentVolumeName"
    if not given:
        yield errors.required("spec.source", why)
    elif len(given) > 1:
        yield errors.forbidden_value("spec.source", why)


def _csi_node_drivers(obj: Object) -> collections.abc.Iterator[Cause]:
    seen: set[str] = set()
    for index, driver in enumerate(at("spec.drivers", ())(obj)):
        path, name = f"spec.drivers[{index}]", driver.get("name")
        if not name:
            yield errors.required(f"{path}.name")
        elif name in seen:
            yield errors.duplicate(f"{path}.name", name)
        if not driver.get("nodeID"):
            yield errors.required(f"{path}.nodeID")
        count = (driver.get("allocatable") or {}).get("count")
        if count is not None and count < 0:
            why = "must be greater than or equal to 0"
            yield errors.invalid_value(f"{path}.allocatable.count", count, why)
        seen.add(str(name))


def _csi_node_changes(old: Object, new: Object) -> collections.abc.Iterator[Cause]:
    before = {driver["name"]: driver for driver in at("spec.drivers", ())(old)}
    for driver in at("spec.drivers", ())(new):
        known = before.get(driver["name"])
        # How many volumes fit may be corrected; which node this is may not.
        if known and {**known, "allocatable": None} != {**driver, "allocatable": None}:
            yield errors.invalid_value("spec.drivers", driver, _IMMUTABLE)


def _claim_changes(old: Object, new: Object) -> collections.abc.Iterator[Cause]:
    before, after = dict(old["spec"]), dict(new["spec"])
    is_bound = at("status.phase")(new) == "Bound"
    if not before.get("volumeName"):
        before["volumeName"] = after.get("volumeName")
    if before.get("storageClassName") is None and after.get("storageClassName") is not None:
        beta = (old["metadata"].get("annotations") or {}).get(_BETA_CLASS)
        if beta in (None, after["storageClassName"]):
            before["storageClassName"] = after["storageClassName"]
    if is_bound:
        before["volumeAttributesClassName"] = after.get("volumeAttributesClassName")
        before["resources"] = _with_request(before, after)
    if _present(before) != _present(after):
        why = "spec is immutable after creation except resources.requests"
        why += " and volumeAttributesClassName for bound claims"
        yield errors.forbidden_value("spec", why)
    yield from _size_changes(old, new)


def _with_request(before: Object, after: Object) -> Object:
    requests = dict((before.get("resources") or {}).get("requests") or {})
    requests["storage"] = at("resources.requests.storage", None)(after)
    return {**(before.get("resources") or {}), "requests": requests}


def _present(spec: Object) -> Object:
    return {name: value for name, value in spec.items() if value is not None}


def _size_changes(old: Object, new: Object) -> collections.abc.Iterator[Cause]:
    size = at("spec.resources.requests.storage", "0")
    capacity = at("status.capacity.storage", "0")(old)
    try:
        before, after, real = (quantity.parse(str(v)) for v in (size(old), size(new), capacity))
    except quantity.QuantityError:
        return
    if after < before and after <= real:
        path = "spec.resources.requests.storage"
        yield errors.forbidden_value(path, "field can not be less than status.capacity")


def _volume_changes(old: Object, new: Object) -> collections.abc.Iterator[Cause]:
    before = {k: v for k, v in old["spec"].items() if k not in _NO_SOURCE}
    after = {k: v for k, v in new["spec"].items() if k not in _NO_SOURCE}
    expand = "controllerExpandSecretRef"
    if "csi" in before and "csi" in after and expand not in before["csi"]:
        after["csi"] = {k: v for k, v in after["csi"].items() if k != expand}
    if before != after:
        why = "spec.persistentvolumesource is immutable after creation"
        yield errors.forbidden_value("spec.persistentvolumesource", why)
    affinity = at("spec.nodeAffinity", None)
    if affinity(old) is not None and affinity(old) != affinity(new):
        yield errors.invalid_value("spec.nodeAffinity", affinity(new), _IMMUTABLE)


def _pod_changes(old: Object, new: Object) -> collections.abc.Iterator[Cause]:
    before, after = _fixed_part(old["spec"]), _fixed_part(new["spec"])
    if not before.get("nodeName"):
        before["nodeName"] = after.get("nodeName")
    if _present(before) != _present(after):
        why = "pod updates may not change fields other than `spec.containers[*].image`,"
        why += (
            "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only"
        )
        why += (
            " additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to"
        )
        why += " be set to 1 if it was previously negative)"
        yield errors.forbidden_value("spec", why)


def _fixed_part(spec: Object) -> Object:
    free = ("activeDeadlineSeconds", "tolerations", "schedulingGates")
    kept = {name: value for name, value in spec.items() if name not in free}
    for name in ("containers", "initContainers"):
        if name in kept:
            kept[name] = [{k: v for k, v in one.items() if k != "image"} for one in kept[name]]
    return kept


def _containers(obj: Object) -> collections.abc.Iterator[Cause]:
    containers = at("spec.containers", ())(obj)
    if not containers:
        yield errors.required("spec.containers")
    volumes = {volume.get("name") for volume in at("spec.volumes", ())(obj)}
    seen: set[Any] = set()
    for index, container in enumerate(containers):
        path, name = f"spec.containers[{index}]", container.get("name")
        if not name:
            yield errors.required(f"{path}.name")
        elif name in seen:
            yield errors.duplicate(f"{path}.name", name)
        seen.add(name)
        if not container.get("image"):
            yield errors.required(f"{path}.image")
        for kind in ("volumeMounts", "volumeDevices"):
            for place, mount in enumerate(container.get(kind) or ()):
                if mount.get("name") not in volumes:
                    field = f"{path}.{kind}[{place}].name"
                    yield Cause(field, "FieldValueNotFound", f'Not found: "{mount.get("name")}"')


_DATA_KEY = re.compile(r"[-._a-zA-Z0-9]{1,253}")
_KEY_RULE = "a valid config key must consist of alphanumeric characters, '-', '_' or '.'"


def _data_keys(obj: Object) -> collections.abc.Iterator[Cause]:
    for name in ("data", "binaryData"):
        for key in obj.get(name) or ():
            if not _DATA_KEY.fullmatch(key):
                yield errors.invalid_value(f"{name}[{key}]", key, _KEY_RULE)


def _base64_data(obj: Object) -> collections.abc.Iterator[Cause]:
    name = "data" if obj["kind"] == "Secret" else "binaryData"
    for key, value in (obj.get(name) or {}).items():
        try:
            base64.b64decode(value or "", validate=True)
        except (binascii.Error, TypeError, ValueError):
            yield errors.invalid_value(
                f"{name}[{key}]", "", "must be base64; use stringData for text"
            )


def _frozen_data(old: Object, new: Object) -> collections.abc.Iterator[Cause]:
    if not old.get("immutable"):
        return
    why = "field is immutable when `immutable` is set"
    if not new.get("immutable"):
        yield errors.forbidden_value("immutable", why)
    for name in ("data", "binaryData"):
        if old.get(name) != new.get(name):
            yield errors.forbidden_value(name, why)


def _event_namespace(obj: Object) -> collections.abc.Iterator[Cause]:
    about = (obj.get("involvedObject") or {}).get("namespace") or "default"
    if about != obj["metadata"].get("namespace"):
        path = "involvedObject.namespace"
        yield errors.invalid_value(path, about, "does not match event.namespace")


def _lease_numbers(obj: Object) -> collections.abc.Iterator[Cause]:
    for name, lowest in (("leaseDurationSeconds", 1), ("leaseTransitions", 0)):
        value = at(f"spec.{name}", None)(obj)
        if value is not None and (not isinstance(value, int) or value < lowest):
            why = "must be greater than 0" if lowest else "must be greater than or equal to 0"
            yield errors.invalid_value(f"spec.{name}", value, why)


_REQUEST = "spec.resources[storage]"
_VOLUME_MODES = ("Block", "Filesystem")

RULES: dict[str, tuple[Rule, ...]] = {
    "persistentvolumeclaims": (
        _access_modes,
        amount("spec.resources.requests.storage", shown=_REQUEST, is_required=True),
        one_of("spec.volumeMode", *_VOLUME_MODES),
    ),
    "persistentvolumes": (
        _access_modes,
        amount("spec.capacity.storage", shown="spec.capacity[storage]", is_required=True),
        _source,
        _affinity,
        one_of("spec.volumeMode", *_VOLUME_MODES),
        one_of("spec.persistentVolumeReclaimPolicy", "Delete", "Recycle", "Retain"),
    ),
    "storageclasses": (
        needs("provisioner"),
        maps("parameters"),
        one_of("reclaimPolicy", "Delete", "Retain"),
        one_of("volumeBindingMode", "Immediate", "WaitForFirstConsumer"),
    ),
    "volumeattachments": (needs("spec.attacher", "spec.nodeName"), _attachment_source),
    "csinodes": (_csi_node_drivers,),
    "csidrivers": (one_of("spec.fsGroupPolicy", "File", "None", "ReadWriteOnceWithFSType"),),
    "csistoragecapacities": (needs("storageClassName"),),
    "volumeattributesclasses": (needs("driverName", "parameters"), maps("parameters")),
    "pods": (_containers, one_of("spec.restartPolicy", "Always", "Never", "OnFailure")),
    "configmaps": (_data_keys, _base64_data, maps("data")),
    "secrets": (_data_keys, _base64_data),
    "events": (_event_namespace,),
    "leases": (_lease_numbers,),
    "customresourcedefinitions": (crds.check_definition,),
}

STATUS_RULES: dict[str, tuple[Rule, ...]] = {
    "volumeattachments": (
        longest("status.attachError.message", 1024),
        longest("status.detachError.message", 1024),
    ),
}

CHANGES: dict[str, tuple[Change, ...]] = {
    "persistentvolumeclaims": (_claim_changes, fixed("spec.volumeMode")),
    "persistentvolumes": (_volume_changes, fixed("spec.volumeMode")),
    "storageclasses": (fixed("parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"),),
    "volumeattachments": (fixed("spec"),),
    "csinodes": (_csi_node_changes,),
    "csidrivers": (fixed("spec.attachRequired", "spec.volumeLifecycleModes"),),
    "csistoragecapacities": (fixed("storageClassName", "nodeTopology"),),
    "volumeattributesclasses": (fixed("driverName", "parameters"),),
    "pods": (_pod_changes,),
    "configmaps": (_frozen_data,),
    "secrets": (_frozen_data, fixed("type")),
}
