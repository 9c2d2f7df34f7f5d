"""The rules of claims, volumes, attachments and CSINodes that need more than a table (pure)."""

import collections.abc

from bitts.kube import quantity

from devcluster import errors, rules
from devcluster.errors import Cause
from devcluster.resources import Object
from devcluster.tables import at

ACCESS_MODES = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
_NO_SOURCE = (
    *("capacity", "accessModes", "claimRef", "persistentVolumeReclaimPolicy", "mountOptions"),
    *("storageClassName", "volumeMode", "nodeAffinity", "volumeAttributesClassName"),
)
"""Fields of a volume's spec that say nothing about where its data is."""
_BETA_CLASS = "volume.beta.kubernetes.io/storage-class"


def access_modes(obj: Object) -> collections.abc.Iterator[Cause]:
    """At least one known mode; ReadWriteOncePod stands alone."""
    modes = at("spec.accessModes", ())(obj)
    if not modes:
        yield errors.required("spec.accessModes", "at least 1 access mode is required")
    for mode in modes:
        if mode not in ACCESS_MODES:
            yield errors.unsupported("spec.accessModes", mode, ACCESS_MODES)
    if "ReadWriteOncePod" in modes and len(set(modes)) > 1:
        why = "may not use ReadWriteOncePod with other access modes"
        yield errors.forbidden_value("spec.accessModes", why)


def source(obj: Object) -> collections.abc.Iterator[Cause]:
    """Exactly one place where the data is, and for CSI what identifies it."""
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


def affinity(obj: Object) -> collections.abc.Iterator[Cause]:
    """A node affinity that is given selects something."""
    given = at("spec.nodeAffinity", None)(obj)
    if given is None:
        return
    path = "spec.nodeAffinity.required"
    if given.get("required") is None:
        yield errors.required(path, "must specify required node constraints")
    elif not given["required"].get("nodeSelectorTerms"):
        hint = "must have at least one node selector term"
        yield errors.required(f"{path}.nodeSelectorTerms", hint)


def attachment_source(obj: Object) -> collections.abc.Iterator[Cause]:
    """What is attached: a volume by name, or one described inline."""
    found = at("spec.source", {})(obj)
    given = [n for n in ("inlineVolumeSpec", "persistentVolumeName") if found.get(n) is not None]
    why = "must specify exactly one of inlineVolumeSpec and persistentVolumeName"
    if not given:
        yield errors.required("spec.source", why)
    elif len(given) > 1:
        yield errors.forbidden_value("spec.source", why)


def csi_node_drivers(obj: Object) -> collections.abc.Iterator[Cause]:
    """Drivers with names and node ids, each once."""
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


def csi_node_changes(old: Object, new: Object) -> collections.abc.Iterator[Cause]:
    """A registered driver keeps its node id and topology keys."""
    before = {driver["name"]: driver for driver in at("spec.drivers", ())(old)}
    for driver in at("spec.drivers", ())(new):
        known = before.get(driver["name"])
        # How many volumes fit may be corrected; which node this is may not.
        if known and {**known, "allocatable": None} != {**driver, "allocatable": None}:
            yield errors.invalid_value("spec.drivers", driver, rules.IMMUTABLE)


def claim_changes(old: Object, new: Object) -> collections.abc.Iterator[Cause]:
    """A claim may grow, get its volume once, and change its attributes class when bound."""
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
    if present(before) != present(after):
        why = "spec is immutable after creation except resources.requests"
        why += " and volumeAttributesClassName for bound claims"
        yield errors.forbidden_value("spec", why)
    yield from _size_changes(old, new)


def _with_request(before: Object, after: Object) -> Object:
    requests = dict((before.get("resources") or {}).get("requests") or {})
    requests["storage"] = at("resources.requests.storage", None)(after)
    return {**(before.get("resources") or {}), "requests": requests}


def present(spec: Object) -> Object:
    """Leave out fields that are null."""
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


def volume_changes(old: Object, new: Object) -> collections.abc.Iterator[Cause]:
    """Where the data is never changes, nor which nodes reach it."""
    before = {k: v for k, v in old["spec"].items() if k not in _NO_SOURCE}
    after = {k: v for k, v in new["spec"].items() if k not in _NO_SOURCE}
    expand = "controllerExpandSecretRef"
    if "csi" in before and "csi" in after and expand not in before["csi"]:
        after["csi"] = {k: v for k, v in after["csi"].items() if k != expand}
    if before != after:
        why = "spec.persistentvolumesource is immutable after creation"
        yield errors.forbidden_value("spec.persistentvolumesource", why)
    nodes = at("spec.nodeAffinity", None)
    if nodes(old) is not None and nodes(old) != nodes(new):
        yield errors.invalid_value("spec.nodeAffinity", nodes(new), rules.IMMUTABLE)
