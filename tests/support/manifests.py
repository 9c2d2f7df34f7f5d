"""Plain Kubernetes objects for tests: complete enough to create, and as a server stores them."""

from typing import Any

Obj = dict[str, Any]
NOW = "2026-01-02T03:04:05Z"
DRIVER = "d.csi.example.com"


def meta(name: str, namespace: str = "", **more: Any) -> Obj:
    """Metadata as the server would have completed it; the UID is ``uid-<name>``."""
    found = {"name": name, "uid": f"uid-{name}", "resourceVersion": "1", "creationTimestamp": NOW}
    return {**found, **({"namespace": namespace} if namespace else {}), **more}


def claim(name: str = "c", *, size: str = "1Gi", status: Obj | None = None, **more: Any) -> Obj:
    """A claim in namespace ``ns``; ``annotations``, ``finalizers``… go to metadata, see _META."""
    metadata, spec = _split(more)
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": meta(name, "ns", **metadata),
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": size}},
            "storageClassName": "fast",
            **spec,
        },
        "status": status or {"phase": "Pending"},
    }


def volume(name: str = "v", *, size: str = "1Gi", phase: str = "Available", **more: Any) -> Obj:
    """A CSI volume of class ``fast``."""
    metadata, spec = _split(more)
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": meta(name, **metadata),
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "capacity": {"storage": size},
            "csi": {"driver": DRIVER, "volumeHandle": f"handle-{name}"},
            "persistentVolumeReclaimPolicy": "Delete",
            "storageClassName": "fast",
            **spec,
        },
        "status": {"phase": phase},
    }


def storage_class(name: str = "fast", **more: Any) -> Obj:
    """A class of DRIVER."""
    metadata, rest = _split(more)
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": meta(name, **metadata),
        "provisioner": DRIVER,
        "volumeBindingMode": "Immediate",
        "reclaimPolicy": "Delete",
        **rest,
    }


def pod(
    name: str = "p", *, claims: tuple[str, ...] = (), phase: str = "Pending", **more: Any
) -> Obj:
    """A pod in namespace ``ns`` that mounts each claim at ``/<claim>``."""
    metadata, spec = _split(more)
    volumes = [{"name": c, "persistentVolumeClaim": {"claimName": c}} for c in claims]
    mounts = [{"name": c, "mountPath": f"/{c}"} for c in claims]
    container = {"name": "main", "image": "none", "command": ["true"], "volumeMounts": mounts}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": meta(name, "ns", **metadata),
        "spec": {"containers": [container], "volumes": volumes, **spec},
        "status": {"phase": phase},
    }


def node(name: str = "n1", *, ready: bool = True, status: Obj | None = None, **more: Any) -> Obj:
    """A node that is ready unless told otherwise."""
    metadata, spec = _split(more)
    metadata.setdefault("labels", {"kubernetes.io/hostname": name})
    condition = {"type": "Ready", "status": "True" if ready else "False"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": meta(name, **metadata),
        "spec": spec,
        "status": {"conditions": [condition], **(status or {})},
    }


def csi_node(name: str = "n1", *, driver: str = DRIVER, count: int | None = None) -> Obj:
    """A CSINode with one driver."""
    entry: Obj = {"name": driver, "nodeID": name, "topologyKeys": []}
    if count is not None:
        entry["allocatable"] = {"count": count}
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSINode",
        "metadata": meta(name),
        "spec": {"drivers": [entry]},
    }


def csi_driver(name: str = DRIVER, **spec: Any) -> Obj:
    """A CSIDriver object."""
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSIDriver",
        "metadata": meta(name),
        "spec": spec,
    }


def owner(obj: Obj, **more: Any) -> Obj:
    """An owner reference to an object."""
    found = {"apiVersion": obj["apiVersion"], "kind": obj["kind"]}
    return {**found, "name": obj["metadata"]["name"], "uid": obj["metadata"]["uid"], **more}


def claim_ref(obj: Obj, **more: Any) -> Obj:
    """A volume's reference to a claim."""
    found = obj["metadata"]
    ref = {"kind": "PersistentVolumeClaim", "apiVersion": "v1", "resourceVersion": "1"}
    names = {key: found[key] for key in ("namespace", "name", "uid")}
    return {**ref, **names, **more}


def fresh(obj: Obj) -> Obj:
    """An object as a client sends it: without what the server gives it."""
    given = {"uid", "resourceVersion", "creationTimestamp"}
    kept = {key: value for key, value in obj["metadata"].items() if key not in given}
    return {**obj, "metadata": kept}


_META = {
    "annotations",
    "labels",
    "finalizers",
    "ownerReferences",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "creationTimestamp",
    "uid",
}


def _split(fields: Obj) -> tuple[Obj, Obj]:
    metadata = {key: value for key, value in fields.items() if key in _META}
    return metadata, {key: value for key, value in fields.items() if key not in _META}
