"""The rules of claims, volumes, attachments and CSINodes that need more than a table (pure)."""

import collections.abc

from bitts.kube import quantity

from devcluster import errors, metadata, rules, selector_rules
from devcluster.errors import Cause
from devcluster.resources import Object
from devcluster.tables import at

VOLUME_MODES = ("Block", "Filesystem")
ACCESS_MODES = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
_NOT_INLINE = {
    *("capacity", "claimRef", "persistentVolumeReclaimPolicy", "storageClassName", "volumeMode"),
}
_NO_SOURCE = (
    *("capacity", "accessModes", "claimRef", "persistentVolumeReclaimPolicy", "mountOptions"),
    *("storageClassName", "volumeMode", "nodeAffinity", "volumeAttributesClassName"),
)
"""Fields of a volume's spec that say nothing about where its data is."""
_LIFECYCLES = ("Ephemeral", "Persistent")
_UPWARDS = "must not contain '..'"
_LONGEST_NODE_ID = 256
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


def _data_source(obj: Object) -> collections.abc.Iterator[Cause]:
    """What a claim's volume is filled from: named in full, and the same in both fields."""
    first, second = at("spec.dataSource", None)(obj), at("spec.dataSourceRef", None)(obj)
    for name, found in (("dataSource", first), ("dataSourceRef", second)):
        if found is None:
            continue
        path, kind = f"spec.{name}", found.get("kind")
        for part in ("name", "kind"):
            if not found.get(part):
                yield errors.required(f"{path}.{part}")
        if kind and not found.get("apiGroup") and kind != "PersistentVolumeClaim":
            why = "must be 'PersistentVolumeClaim' when referencing the default apiGroup"
            yield errors.invalid_value(path, kind, why)
    if first is not None and second is not None and not second.get("namespace"):
        parts = ("apiGroup", "kind", "name")
        if [first.get(p) or "" for p in parts] != [second.get(p) or "" for p in parts]:
            yield errors.invalid_value("spec", {}, "must match dataSourceRef")


_CLAIM = (
    access_modes,
    rules.amount(
        "spec.resources.requests.storage", shown="spec.resources[storage]", is_required=True
    ),
    rules.one_of("spec.volumeMode", *VOLUME_MODES),
    rules.subdomain("spec.storageClassName"),
    rules.subdomain("spec.volumeAttributesClassName"),
    selector_rules.label_selector("spec.selector"),
    _data_source,
)


def claim(obj: Object) -> collections.abc.Iterator[Cause]:
    """All rules of a claim, or of a pod's template for one."""
    return (cause for rule in _CLAIM for cause in rule(obj))


def capacity(obj: Object) -> collections.abc.Iterator[Cause]:
    """A volume has a size and nothing else."""
    given = at("spec.capacity", {})(obj)
    if given.keys() - {"storage"}:
        yield errors.unsupported("spec.capacity", given, ["storage"])


def source(obj: Object) -> collections.abc.Iterator[Cause]:
    """Exactly one place where the data is, and for CSI what identifies it."""
    spec = obj.get("spec") or {}
    sources = [name for name in spec if name not in _NO_SOURCE and spec[name] is not None]
    if not sources:
        yield errors.required("spec", "must specify a volume type")
    for name in sources[1:]:
        yield errors.forbidden_value(f"spec.{name}", "may not specify more than 1 volume type")
    if ".." in str((spec.get("hostPath") or {}).get("path")).split("/"):
        yield errors.invalid_value("spec.hostPath.path", spec["hostPath"]["path"], _UPWARDS)
    csi = spec.get("csi")
    if csi is None:
        if spec.get("volumeAttributesClassName"):
            why = "has to be specified when using volumeAttributesClassName"
            yield errors.required("spec.csi", why)
        return
    for name in ("driver", "volumeHandle"):
        if not csi.get(name):
            yield errors.required(f"spec.csi.{name}")
    for name, value in csi.items():
        # The one of staging is not looked at by Kubernetes either.
        is_checked = name.endswith("SecretRef") and name != "nodeStageSecretRef"
        if is_checked and isinstance(value, dict):
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
    else:
        yield from selector_rules.node_selector(path)(obj)


def attachment_source(obj: Object) -> collections.abc.Iterator[Cause]:
    """What is attached: a volume by name, or one described inline."""
    found = at("spec.source", {})(obj)
    given = [n for n in ("inlineVolumeSpec", "persistentVolumeName") if found.get(n) is not None]
    why = "must specify exactly one of inlineVolumeSpec and persistentVolumeName"
    if not given:
        yield errors.required("spec.source", why)
    elif len(given) > 1:
        yield errors.forbidden_value("spec.source", why)
    for name in sorted((found.get("inlineVolumeSpec") or {}).keys() & _NOT_INLINE):
        why = "may not be specified in the context of inline volumes"
        yield errors.forbidden_value(f"spec.source.inlineVolumeSpec.{name}", why)


def csi_node_drivers(obj: Object) -> collections.abc.Iterator[Cause]:
    """Drivers with names and node ids, each once."""
    seen: set[str] = set()
    for index, driver in enumerate(at("spec.drivers", ())(obj)):
        path, name = f"spec.drivers[{index}]", driver.get("name")
        if not name:
            yield errors.required(f"{path}.name")
        elif name in seen:
            yield errors.duplicate(f"{path}.name", name)
        elif not metadata.is_subdomain(name.lower(), 63):
            yield errors.invalid_value(f"{path}.name", name, metadata.SUBDOMAIN_RULE)
        if not driver.get("nodeID"):
            yield errors.required(f"{path}.nodeID")
        elif len(driver["nodeID"]) > _LONGEST_NODE_ID:
            why = f"must be {_LONGEST_NODE_ID} characters or less"
            yield errors.invalid_value(f"{path}.nodeID", driver["nodeID"], why)
        yield from _topology_keys(path, driver.get("topologyKeys") or ())
        count = (driver.get("allocatable") or {}).get("count")
        if count is not None and count < 0:
            why = "must be greater than or equal to 0"
            yield errors.invalid_value(f"{path}.allocatable.count", count, why)
        seen.add(str(name))


def _topology_keys(
    path: str, keys: collections.abc.Sequence[str]
) -> collections.abc.Iterator[Cause]:
    for place, key in enumerate(keys):
        if key in keys[:place]:
            yield errors.duplicate(path, key)
        if not metadata.is_qualified(key):
            yield errors.invalid_value(path, key, "name part must be a qualified name")


def csi_driver(obj: Object) -> collections.abc.Iterator[Cause]:
    """What a driver says of itself."""
    for mode in at("spec.volumeLifecycleModes", ())(obj):
        if mode not in _LIFECYCLES:
            yield errors.unsupported("spec.volumeLifecycleModes", mode, _LIFECYCLES)
    audiences: list[str] = []
    for index, token in enumerate(at("spec.tokenRequests", ())(obj)):
        path, seconds = f"spec.tokenRequests[{index}]", token.get("expirationSeconds")
        if token.get("audience", "") in audiences:
            yield errors.duplicate(f"{path}.audience", token.get("audience", ""))
        audiences.append(token.get("audience", ""))
        if seconds is not None and seconds < 600:
            why = "may not specify a duration less than 10 minutes"
            yield errors.invalid_value(f"{path}.expirationSeconds", seconds, why)
    period = at("spec.nodeAllocatableUpdatePeriodSeconds", None)(obj)
    if period is not None and period < 10:
        path = "spec.nodeAllocatableUpdatePeriodSeconds"
        yield errors.invalid_value(path, period, "must be greater than or equal to 10 seconds")


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
