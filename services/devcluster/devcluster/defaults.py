"""Values that the server fills in when a client leaves them out.

Each function changes the object that it is given, which nobody else holds yet. Source: the
defaulting of the API types in Kubernetes 1.37.
"""

import base64
import collections.abc

from devcluster import crds, metadata
from devcluster.resources import Object, Resource

Fill = collections.abc.Callable[[Object], None]


def on_create(resource: Resource, obj: Object) -> None:
    """Fill in defaults and the first status of a new object."""
    fill(resource, obj)
    first = _FIRST_STATUS.get(resource.plural)
    if first is not None and not resource.custom:
        obj["status"] = first(obj)


def fill(resource: Resource, obj: Object) -> None:
    """Fill in defaults of the fields that clients write."""
    if resource.custom:
        return
    found = _FILL.get(resource.plural)
    if found is not None:
        found(obj)


def on_update(resource: Resource, old: Object, new: Object) -> None:
    """Fill in defaults again, and note when a phase changed."""
    fill(resource, new)
    if resource.qualified == "persistentvolumes":
        before, after = old.get("status") or {}, new.get("status") or {}
        if after and before.get("phase") != after.get("phase"):
            new["status"] = {**after, "lastPhaseTransitionTime": metadata.now()}


_SOURCES = {
    ("", "PersistentVolumeClaim"),
    ("snapshot.storage.k8s.io", "VolumeSnapshot"),
}


def _spec(obj: Object) -> Object:
    spec: Object = obj.setdefault("spec", {})
    return spec


def _claim(obj: Object) -> None:
    spec = _spec(obj)
    spec.setdefault("volumeMode", "Filesystem")
    source, reference = spec.get("dataSource"), spec.get("dataSourceRef")
    if source and not reference:
        # The older field takes these two only, and forgets others (KEP 1495).
        if (source.get("apiGroup") or "", source.get("kind")) in _SOURCES:
            spec["dataSourceRef"] = dict(source)
        else:
            del spec["dataSource"]
    elif reference and not source and not reference.get("namespace"):
        spec["dataSource"] = dict(reference)


def _volume(obj: Object) -> None:
    spec = _spec(obj)
    spec.setdefault("persistentVolumeReclaimPolicy", "Retain")
    spec.setdefault("volumeMode", "Filesystem")


def _storage_class(obj: Object) -> None:
    obj.setdefault("reclaimPolicy", "Delete")
    obj.setdefault("volumeBindingMode", "Immediate")


def _driver(obj: Object) -> None:
    spec = _spec(obj)
    spec.setdefault("attachRequired", True)
    spec.setdefault("fsGroupPolicy", "ReadWriteOnceWithFSType")
    for name in ("podInfoOnMount", "storageCapacity", "requiresRepublish", "seLinuxMount",
                 "preventPodSchedulingIfMissing"):  # fmt: skip
        spec.setdefault(name, False)
    if not spec.get("volumeLifecycleModes"):
        spec["volumeLifecycleModes"] = ["Persistent"]


def _node(obj: Object) -> None:
    _spec(obj)


def _csi_node(obj: Object) -> None:
    _spec(obj).setdefault("drivers", [])


def _pod(obj: Object) -> None:
    spec = _spec(obj)
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("terminationGracePeriodSeconds", 30)
    spec.setdefault("dnsPolicy", "ClusterFirst")
    spec.setdefault("serviceAccountName", "default")
    spec.setdefault("schedulerName", "default-scheduler")
    spec.setdefault("enableServiceLinks", True)
    spec.setdefault("securityContext", {})
    for container in (*spec.get("containers", ()), *spec.get("initContainers", ())):
        container.setdefault("imagePullPolicy", "IfNotPresent")
        container.setdefault("resources", {})
        container.setdefault("terminationMessagePath", "/dev/termination-log")
        container.setdefault("terminationMessagePolicy", "File")
        for port in container.get("ports", ()):
            port.setdefault("protocol", "TCP")


def _namespace(obj: Object) -> None:
    labels = obj["metadata"].setdefault("labels", {})
    labels.setdefault("kubernetes.io/metadata.name", obj["metadata"].get("name", ""))
    if not obj["metadata"].get("deletionTimestamp"):
        _spec(obj).setdefault("finalizers", ["kubernetes"])


def _secret(obj: Object) -> None:
    obj.setdefault("type", "Opaque")
    clear = obj.pop("stringData", None)
    if isinstance(clear, dict) and clear:
        encoded = {k: base64.b64encode(str(v).encode()).decode() for k, v in clear.items()}
        obj["data"] = {**(obj.get("data") or {}), **encoded}


def _service(obj: Object) -> None:
    spec = _spec(obj)
    spec.setdefault("type", "ClusterIP")
    spec.setdefault("sessionAffinity", "None")
    for port in spec.get("ports", ()):
        port.setdefault("protocol", "TCP")
        port.setdefault("targetPort", port.get("port"))


def _event(obj: Object) -> None:
    obj.setdefault("type", "Normal")


_FILL: dict[str, Fill] = {
    "persistentvolumeclaims": _claim,
    "persistentvolumes": _volume,
    "storageclasses": _storage_class,
    "csidrivers": _driver,
    "csinodes": _csi_node,
    "nodes": _node,
    "pods": _pod,
    "namespaces": _namespace,
    "secrets": _secret,
    "services": _service,
    "events": _event,
    "customresourcedefinitions": crds.complete,
}

_FIRST_STATUS: dict[str, collections.abc.Callable[[Object], Object]] = {
    "persistentvolumeclaims": lambda obj: {"phase": "Pending"},
    "persistentvolumes": lambda obj: {
        "phase": "Pending",
        "lastPhaseTransitionTime": metadata.now(),
    },
    "namespaces": lambda obj: {"phase": "Active"},
    "pods": lambda obj: {"phase": "Pending", "qosClass": "BestEffort"},
    "volumeattachments": lambda obj: {"attached": False},
    "nodes": lambda obj: obj.get("status") or {},
}
