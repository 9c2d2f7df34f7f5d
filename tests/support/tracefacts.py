"""What is followed of objects, in words: the facts by which controllers and drivers agree. Pure.

Timestamps, conditions that are one program's own bookkeeping, and all that users write once are
left out.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any

Obj = dict[str, Any]
Path = tuple[str, ...]
"""A field as managedFields spell it."""
Facts = dict[Path, tuple[str, str]]
"""By their paths: the words for a fact, and its value (may be empty)."""

NODE_IDS = "csi.volume.kubernetes.io/nodeid"


def facts(obj: Obj) -> Facts:
    """Return what is followed of an object."""
    metadata = obj["metadata"]
    found: Facts = {}
    for name, value in (metadata.get("annotations") or {}).items():
        path = ("f:metadata", "f:annotations", f"f:{name}")
        if name == NODE_IDS:  # one annotation of all drivers of a node
            ids = json.loads(value).items()
            found |= {(*path, one): (f"{name} of {one}", node_id) for one, node_id in ids}
        else:
            found[path] = (name, value)
    for name in metadata.get("finalizers") or ():
        found["f:metadata", "f:finalizers", f'v:"{name}"'] = (f"finalizer {name}", "")
    for owner in metadata.get("ownerReferences") or ():
        words = f"owner {owner['kind']}/{owner['name']}"
        marks = [mark for mark in ("controller", "blockOwnerDeletion") if owner.get(mark)]
        key = json.dumps({"uid": owner["uid"]}, separators=(",", ":"))
        found["f:metadata", "f:ownerReferences", f"k:{key}"] = (words, " ".join(marks))
    if "deletionTimestamp" in metadata:
        found["f:metadata", "f:deletionTimestamp"] = ("deletion asked for", "")
    return found | _OF_KIND[obj["kind"]](obj)


def _of_claim(obj: Obj) -> Facts:
    status = obj.get("status") or {}
    return _some(
        (("f:spec", "f:volumeName"), "volumeName", obj["spec"].get("volumeName")),
        (("f:spec", "f:storageClassName"), "class", obj["spec"].get("storageClassName")),
        (("f:status", "f:phase"), "phase", status.get("phase")),
        (("f:status", "f:accessModes"), "accessModes", status.get("accessModes")),
        (("f:status", "f:capacity"), "capacity", (status.get("capacity") or {}).get("storage")),
    )


def _of_volume(obj: Obj) -> Facts:
    ref = obj["spec"].get("claimRef") or {}
    fields = [
        (("f:spec", "f:claimRef", f"f:{name}"), f"claimRef.{name}", ref.get(name))
        for name in ("apiVersion", "kind", "namespace", "name")
    ]
    fields += [
        (("f:spec", "f:claimRef", f"f:{name}"), f"claimRef.{name}", ref.get(name) and "set")
        for name in ("uid", "resourceVersion")
    ]
    phase = (obj.get("status") or {}).get("phase")
    return _some(*fields, (("f:status", "f:phase"), "phase", phase))


def _of_pod(obj: Obj) -> Facts:
    status = obj.get("status") or {}
    found = _some(
        (("f:spec", "f:nodeName"), "nodeName", obj["spec"].get("nodeName")),
        (("f:status", "f:phase"), "phase", status.get("phase")),
    )
    for one in status.get("conditions") or ():
        # That a pod could not be placed at first depends on who was quicker.
        if (one["type"], one["status"]) == ("PodScheduled", "True"):
            found["f:status", "f:conditions", 'k:{"type":"PodScheduled"}'] = ("scheduled", "")
    return found


def _of_attachment(obj: Obj) -> Facts:
    status = obj.get("status") or {}
    source = obj["spec"]["source"].get("persistentVolumeName")
    return _some(
        (("f:spec", "f:attacher"), "attacher", obj["spec"]["attacher"]),
        (("f:spec", "f:nodeName"), "node", obj["spec"]["nodeName"]),
        (("f:spec", "f:source"), "volume", source),
        (("f:status", "f:attached"), "attached", status.get("attached")),
        (("f:status", "f:attachmentMetadata"), "metadata", status.get("attachmentMetadata")),
    )


def _of_node(obj: Obj) -> Facts:
    status = obj.get("status") or {}
    found: Facts = {}
    for name, value in (obj["metadata"].get("labels") or {}).items():
        found["f:metadata", "f:labels", f"f:{name}"] = (f"label {name}", value)
    for name in status.get("volumesInUse") or ():
        found["f:status", "f:volumesInUse", name] = (f"in use {name}", "")
    for one in status.get("volumesAttached") or ():
        found["f:status", "f:volumesAttached", one["name"]] = (f"attached {one['name']}", "")
    return found


def _of_csi_node(obj: Obj) -> Facts:
    found: Facts = {}
    for one in obj["spec"].get("drivers") or ():
        key = json.dumps({"name": one["name"]}, separators=(",", ":"))
        keys = ",".join(one.get("topologyKeys") or ())
        words = f"driver {one['name']} as {one['nodeID']}"
        found["f:spec", "f:drivers", f"k:{key}"] = (words, keys)
    return found


_OF_KIND: Mapping[str, Callable[[Obj], Facts]] = {
    "PersistentVolumeClaim": _of_claim,
    "PersistentVolume": _of_volume,
    "Pod": _of_pod,
    "VolumeAttachment": _of_attachment,
    "Node": _of_node,
    "CSINode": _of_csi_node,
}


def _some(*fields: tuple[Path, str, object]) -> Facts:
    return {path: (words, str(value)) for path, words, value in fields if value not in (None, "")}


def difference(old: Obj | None, new: Obj) -> tuple[list[str], set[Path]]:
    """Return in words what a write changed, and the fields that it set."""
    before, after = facts(old) if old else {}, facts(new)
    is_set = {path for path, fact in after.items() if before.get(path) != fact}
    words = [_spell(after[path]) for path in is_set]
    words += [f"-{before[path][0]}" for path in before if path not in after]
    return words, is_set


def _spell(fact: tuple[str, str]) -> str:
    name, value = fact
    return f"{name}={value}" if value else name
