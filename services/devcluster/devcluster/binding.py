"""What ``pods/binding`` writes: the node and, at once, that the pod is scheduled (pure)."""

from devcluster import errors
from devcluster.resources import Object


def change(pod: Object, node: str, now: str) -> Object:
    """Return the merge patch that binds a pod; raises ApiError 409 if that cannot be any more."""
    name = pod["metadata"]["name"]
    why = ""
    if bound_to := pod["spec"].get("nodeName"):
        why = f'pod {name} is already assigned to node "{bound_to}"'
    elif "deletionTimestamp" in pod["metadata"]:
        why = f"pod {name} is being deleted, cannot be assigned to a host"
    if why:
        raise errors.conflict("", "pods/binding", name, why)
    old = (pod.get("status") or {}).get("conditions") or ()
    kept = [one for one in old if one["type"] != "PodScheduled"]
    scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": now}
    return {"spec": {"nodeName": node}, "status": {"conditions": [*kept, scheduled]}}
