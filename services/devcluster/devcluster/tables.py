"""Tables as ``kubectl get`` shows them, and objects reduced to their metadata (pure).

Columns are those of Kubernetes 1.37 for the kinds we serve. Source: API concepts,
"Receiving resources as Tables".
"""

import collections.abc
import datetime as dt
import re
from typing import Any

from devcluster.resources import Object, Resource

Cell = collections.abc.Callable[[Object], Any]
Column = tuple[str, Cell]
"""Title and cell; a title that starts with * is shown by ``-o wide`` only."""

_MODES = {
    "ReadWriteOnce": "RWO",
    "ReadOnlyMany": "ROX",
    "ReadWriteMany": "RWX",
    "ReadWriteOncePod": "RWOP",
}
_BETA_CLASS = "volume.beta.kubernetes.io/storage-class"
_DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"


def at(path: str, absent: Any = "") -> Cell:
    """Return a cell with the value at a dotted path."""
    names = path.split(".")

    def cell(obj: Object) -> Any:
        value: Any = obj
        for name in names:
            value = value.get(name) if isinstance(value, dict) else None
        return absent if value is None else value

    return cell


def age_of(time: str) -> str:
    """Return how long ago a timestamp is, as kubectl writes it."""
    try:
        then = dt.datetime.fromisoformat(time)
    except (TypeError, ValueError):
        return "<unknown>"
    seconds = int((dt.datetime.now(dt.UTC) - then).total_seconds())
    return duration(seconds) if seconds >= 0 else "0s"


def duration(seconds: int) -> str:
    """Return a duration in at most two units: 90s, 5m10s, 3h, 2d4h."""
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    if seconds < 120:
        return f"{seconds}s"
    if minutes < 10:
        return _pair(minutes, "m", seconds % 60, "s")
    if hours < 3:
        return f"{minutes}m"
    if hours < 8:
        return _pair(hours, "h", minutes % 60, "m")
    if hours < 48:
        return f"{hours}h"
    if days < 8:
        return _pair(days, "d", hours % 24, "h")
    if days < 730:
        return f"{days}d"
    return _pair(days // 365, "y", days % 365, "d") if days < 2920 else f"{days // 365}y"


def _pair(first: int, first_unit: str, second: int, second_unit: str) -> str:
    return f"{first}{first_unit}{second}{second_unit}" if second else f"{first}{first_unit}"


def _age(path: str = "metadata.creationTimestamp") -> Cell:
    value = at(path)
    return lambda obj: age_of(value(obj))


def _modes(path: str) -> Cell:
    value = at(path, ())
    return lambda obj: ",".join(_MODES.get(mode, mode) for mode in dict.fromkeys(value(obj)))


def _length(path: str) -> Cell:
    value = at(path, ())
    return lambda obj: len(value(obj))


def _text(path: str, absent: str) -> Cell:
    value = at(path)
    return lambda obj: str(value(obj) or absent)


def _status(obj: Object) -> str:
    if obj["metadata"].get("deletionTimestamp"):
        return "Terminating"
    return str((obj.get("status") or {}).get("phase") or "Unknown")


def _class_of(obj: Object) -> str:
    annotations = obj["metadata"].get("annotations") or {}
    return annotations.get(_BETA_CLASS) or (obj.get("spec") or {}).get("storageClassName") or ""


def _class_name(obj: Object) -> str:
    annotations = obj["metadata"].get("annotations") or {}
    default = annotations.get(_DEFAULT_CLASS) == "true"
    return f"{obj['metadata']['name']} (default)" if default else str(obj["metadata"]["name"])


def _claim_capacity(obj: Object) -> str:
    bound = (obj.get("spec") or {}).get("volumeName")
    return str(at("status.capacity.storage")(obj)) if bound else ""


def _claim_modes(obj: Object) -> str:
    bound = (obj.get("spec") or {}).get("volumeName")
    return str(_modes("status.accessModes")(obj)) if bound else ""


def _claim_of(obj: Object) -> str:
    claim = (obj.get("spec") or {}).get("claimRef") or {}
    return f"{claim.get('namespace', '')}/{claim.get('name', '')}" if claim else ""


def _containers(obj: Object) -> list[Object]:
    return list((obj.get("status") or {}).get("containerStatuses") or ())


def _pod_ready(obj: Object) -> str:
    total = len((obj.get("spec") or {}).get("containers") or ())
    return f"{sum(bool(one.get('ready')) for one in _containers(obj))}/{total}"


def _pod_status(obj: Object) -> str:
    if obj["metadata"].get("deletionTimestamp"):
        return "Terminating"
    status = obj.get("status") or {}
    reason = str(status.get("reason") or status.get("phase") or "Unknown")
    for one in _containers(obj):
        state = one.get("state") or {}
        part = state.get("waiting") or state.get("terminated") or {}
        reason = part.get("reason") or reason
    return reason


def _node_status(obj: Object) -> str:
    conditions = at("status.conditions", ())(obj)
    ready = any(c.get("type") == "Ready" and c.get("status") == "True" for c in conditions)
    known = any(c.get("type") == "Ready" for c in conditions)
    words = ["Ready" if ready else "NotReady" if known else "Unknown"]
    if (obj.get("spec") or {}).get("unschedulable"):
        words.append("SchedulingDisabled")
    return ",".join(words)


def _node_address(kind: str) -> Cell:
    def cell(obj: Object) -> str:
        for one in at("status.addresses", ())(obj):
            if one.get("type") == kind:
                return str(one.get("address"))
        return "<none>"

    return cell


def _event_object(obj: Object) -> str:
    about = obj.get("involvedObject") or obj.get("regarding") or {}
    return f"{str(about.get('kind', '')).lower()}/{about.get('name', '')}"


def _event_seen(obj: Object) -> str:
    series = obj.get("series") or {}
    names = ("lastTimestamp", "deprecatedLastTimestamp", "eventTime", "firstTimestamp")
    times = (series.get("lastObservedTime"), *(obj.get(name) for name in names))
    return age_of(next((time for time in times if time), ""))


def _ports(obj: Object) -> str:
    ports = at("spec.ports", ())(obj)
    return ",".join(f"{p.get('port')}/{p.get('protocol', 'TCP')}" for p in ports) or "<none>"


NAME: Column = ("Name", at("metadata.name"))
AGE: Column = ("Age", _age())

COLUMNS: dict[str, tuple[Column, ...]] = {
    "pods": (
        NAME,
        ("Ready", _pod_ready),
        ("Status", _pod_status),
        ("Restarts", lambda obj: str(sum(c.get("restartCount", 0) for c in _containers(obj)))),
        AGE,
        ("*IP", _text("status.podIP", "<none>")),
        ("*Node", _text("spec.nodeName", "<none>")),
    ),
    "persistentvolumeclaims": (
        NAME,
        ("Status", _status),
        ("Volume", at("spec.volumeName")),
        ("Capacity", _claim_capacity),
        ("Access Modes", _claim_modes),
        ("StorageClass", _class_of),
        ("VolumeAttributesClass", _text("spec.volumeAttributesClassName", "<unset>")),
        AGE,
        ("*VolumeMode", _text("spec.volumeMode", "<unset>")),
    ),
    "persistentvolumes": (
        NAME,
        ("Capacity", at("spec.capacity.storage")),
        ("Access Modes", _modes("spec.accessModes")),
        ("Reclaim Policy", at("spec.persistentVolumeReclaimPolicy")),
        ("Status", _status),
        ("Claim", _claim_of),
        ("StorageClass", _class_of),
        ("VolumeAttributesClass", _text("spec.volumeAttributesClassName", "<unset>")),
        ("Reason", at("status.reason")),
        AGE,
        ("*VolumeMode", _text("spec.volumeMode", "<unset>")),
    ),
    "storageclasses": (
        ("Name", _class_name),
        ("Provisioner", at("provisioner")),
        ("ReclaimPolicy", at("reclaimPolicy", "Delete")),
        ("VolumeBindingMode", at("volumeBindingMode", "Immediate")),
        ("AllowVolumeExpansion", at("allowVolumeExpansion", False)),
        AGE,
    ),
    "volumeattachments": (
        NAME,
        ("Attacher", at("spec.attacher")),
        ("PV", at("spec.source.persistentVolumeName")),
        ("Node", at("spec.nodeName")),
        ("Attached", at("status.attached", False)),
        AGE,
    ),
    "csinodes": (NAME, ("Drivers", _length("spec.drivers")), AGE),
    "csidrivers": (
        NAME,
        ("AttachRequired", at("spec.attachRequired", True)),
        ("PodInfoOnMount", at("spec.podInfoOnMount", False)),
        ("StorageCapacity", at("spec.storageCapacity", False)),
        ("Modes", lambda obj: ",".join(at("spec.volumeLifecycleModes", ())(obj))),
        AGE,
    ),
    "csistoragecapacities": (
        NAME,
        ("StorageClassName", at("storageClassName")),
        ("Capacity", at("capacity")),
    ),
    "volumeattributesclasses": (NAME, ("DriverName", at("driverName")), AGE),
    "nodes": (
        NAME,
        ("Status", _node_status),
        ("Roles", lambda obj: "<none>"),
        AGE,
        ("Version", at("status.nodeInfo.kubeletVersion")),
        ("*Internal-IP", _node_address("InternalIP")),
        ("*OS-Image", _text("status.nodeInfo.osImage", "<unknown>")),
        ("*Kernel-Version", _text("status.nodeInfo.kernelVersion", "<unknown>")),
    ),
    "events": (
        ("Last Seen", _event_seen),
        ("Type", at("type")),
        ("Reason", at("reason")),
        ("Object", _event_object),
        ("*Source", lambda obj: at("source.component")(obj) or at("reportingComponent")(obj)),
        ("Message", lambda obj: str(obj.get("message") or obj.get("note") or "").strip()),
        ("*First Seen", _age("firstTimestamp")),
        ("*Count", at("count", 1)),
        ("*Name", at("metadata.name")),
    ),
    "namespaces": (NAME, ("Status", at("status.phase")), AGE),
    "secrets": (NAME, ("Type", at("type")), ("Data", _length("data")), AGE),
    "configmaps": (
        NAME,
        ("Data", lambda obj: len(obj.get("data") or ()) + len(obj.get("binaryData") or ())),
        AGE,
    ),
    "services": (
        NAME,
        ("Type", at("spec.type", "ClusterIP")),
        ("Cluster-IP", _text("spec.clusterIP", "<none>")),
        ("External-IP", lambda obj: "<none>"),
        ("Port(s)", _ports),
        AGE,
    ),
    "leases": (NAME, ("Holder", at("spec.holderIdentity")), AGE),
    "customresourcedefinitions": (NAME, ("Created At", at("metadata.creationTimestamp"))),
}


def columns(resource: Resource) -> tuple[tuple[Object, Cell], ...]:
    """Return each column's definition and cell."""
    if resource.custom:
        return _custom_columns(resource)
    found = COLUMNS.get(resource.plural, (NAME, AGE))
    return tuple((_definition(title), cell) for title, cell in found)


def _definition(title: str, kind: str = "string") -> Object:
    name = title.removeprefix("*")
    form = "name" if name == "Name" else ""
    priority = 1 if title.startswith("*") else 0
    return {"name": name, "type": kind, "format": form, "description": "", "priority": priority}


def _custom_columns(resource: Resource) -> tuple[tuple[Object, Cell], ...]:
    found: list[tuple[Object, Cell]] = [(_definition("Name"), NAME[1])]
    for column in resource.columns:
        title = ("*" if column.get("priority") else "") + str(column.get("name", ""))
        kind = str(column.get("type", "string"))
        found.append((_definition(title, kind), _json_path(str(column.get("jsonPath", "")), kind)))
    return tuple(found) if resource.columns else (*found, (_definition("Age"), AGE[1]))


_STEP = re.compile(
    r"""\.((?:[^.\[\]\\]|\\.)+)|\[\?\(@\.([\w.]+)\s*==\s*["']([^"']*)["']\)\]|\[(\d+)\]"""
)


def _json_path(path: str, kind: str) -> Cell:
    """Return a cell for the part of JSONPath that printer columns use: names, indexes, filters."""
    steps = [found.groups() for found in _STEP.finditer(path)]

    def cell(obj: Object) -> Any:
        value: Any = obj
        for name, key, wanted, index in steps:
            if name and isinstance(value, dict):
                value = value.get(re.sub(r"\\(.)", r"\1", name))
            elif key and isinstance(value, list):
                value = next((v for v in value if str(at(key)(v)) == wanted), None)
            elif index and isinstance(value, list) and int(index) < len(value):
                value = value[int(index)]
            else:
                return None
        return age_of(value) if kind == "date" and value else value

    return cell


def partial(obj: Object) -> Object:
    """Return an object reduced to its metadata."""
    head = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1"}
    return {**head, "metadata": obj["metadata"]}


def table(resource: Resource, values: list[Object], metadata: Object, include: str) -> Object:
    """Return a Table of objects; ``include`` is None, Metadata or Object."""
    cells = columns(resource)
    shown: collections.abc.Callable[[Object], Object | None] = partial
    if include in ("None", "Object"):
        shown = (lambda obj: None) if include == "None" else (lambda obj: obj)
    rows = [{"cells": [cell(v) for _, cell in cells], "object": shown(v)} for v in values]
    head = {"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata}
    return {**head, "columnDefinitions": [definition for definition, _ in cells], "rows": rows}
