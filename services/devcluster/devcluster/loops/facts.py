"""Facts read off single objects, so that no loop digs in nested dictionaries twice.

Objects are the API server's own dictionaries: shared, and never to be changed.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from devcluster.loops import names

Obj = dict[str, Any]


def key(obj: Mapping[str, Any]) -> str:
    """``namespace/name``, or the bare name of a cluster-scoped object."""
    meta = obj["metadata"]
    namespace = meta.get("namespace")
    return f"{namespace}/{meta['name']}" if namespace else str(meta["name"])


def split(object_key: str) -> tuple[str, str]:
    """Namespace (empty if cluster-scoped) and name of a key."""
    namespace, _, name = object_key.rpartition("/")
    return namespace, name


def uid(obj: Mapping[str, Any]) -> str:
    """The object's UID."""
    return str(obj["metadata"]["uid"])


def annotation(obj: Mapping[str, Any], name: str) -> str | None:
    """An annotation's value, or None."""
    value = (obj["metadata"].get("annotations") or {}).get(name)
    return None if value is None else str(value)


def finalizers(obj: Mapping[str, Any]) -> list[str]:
    """The object's finalizers."""
    return list(obj["metadata"].get("finalizers") or ())


def is_deleting(obj: Mapping[str, Any]) -> bool:
    """Whether deletion has been asked for."""
    return "deletionTimestamp" in obj["metadata"]


def phase(obj: Mapping[str, Any]) -> str:
    """``status.phase``, empty when not set yet."""
    return str((obj.get("status") or {}).get("phase") or "")


def class_name(obj: Mapping[str, Any]) -> str:
    """Storage class of a claim or volume; the beta annotation wins over the field."""
    beta = annotation(obj, names.CLASS_BETA)
    return beta if beta is not None else str(obj["spec"].get("storageClassName") or "")


def is_terminated(pod: Mapping[str, Any]) -> bool:
    """Whether all containers of the pod have ended for good."""
    return phase(pod) in {"Succeeded", "Failed"}


def node_name(pod: Mapping[str, Any]) -> str:
    """The node that a pod is bound to, or the empty string."""
    return str(pod["spec"].get("nodeName") or "")


def ephemeral_claim(pod: Mapping[str, Any], volume: Mapping[str, Any]) -> str:
    """Name of the claim made for a generic ephemeral volume."""
    return f"{pod['metadata']['name']}-{volume['name']}"


def claim_keys(pod: Mapping[str, Any]) -> list[str]:
    """Keys of every claim that the pod's volumes name, in their order."""
    namespace, found = pod["metadata"]["namespace"], []
    for volume in pod["spec"].get("volumes") or ():
        if source := volume.get("persistentVolumeClaim"):
            found.append(f"{namespace}/{source['claimName']}")
        elif "ephemeral" in volume:
            found.append(f"{namespace}/{ephemeral_claim(pod, volume)}")
    return found


def claim_ref_key(volume: Mapping[str, Any]) -> str | None:
    """Key of the claim that a volume is reserved for, or None."""
    ref = volume["spec"].get("claimRef")
    return f"{ref.get('namespace', '')}/{ref.get('name', '')}" if ref else None


def controller_owner(obj: Mapping[str, Any]) -> str | None:
    """UID of the owner that controls the object, or None."""
    owners: Iterable[Mapping[str, Any]] = obj["metadata"].get("ownerReferences") or ()
    return next((str(owner["uid"]) for owner in owners if owner.get("controller")), None)
