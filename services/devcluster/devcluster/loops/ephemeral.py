"""Generic ephemeral volumes: the pod brings a claim's template along and owns the claim.

The claim must exist before the scheduler can place the pod, hence a loop of the control plane.
Its owner reference makes the garbage collector delete it with the pod.
"""

from collections.abc import Callable

from devcluster import api as apis
from devcluster.loops import actions, facts, keyed, names, views
from devcluster.loops.actions import Action, Create, Emit
from devcluster.loops.facts import Obj


def decide(pod: Obj, existing: Callable[[str], Obj | None]) -> list[Action]:
    """Create the pod's missing claims; a stranger's claim of the same name is reported."""
    if facts.is_deleting(pod) or facts.is_terminated(pod):
        return []
    plan: list[Action] = []
    for volume in pod["spec"].get("volumes") or ():
        if "ephemeral" not in volume:
            continue
        body = _claim(pod, volume)
        found = existing(facts.key(body))
        if found is None:
            plan.append(Create(names.CLAIMS, body))
        elif facts.controller_owner(found) != facts.uid(pod):
            text = f'PVC "{facts.key(found)}" was not created for the pod; delete or rename it'
            plan.append(Emit(pod, "EphemeralVolumeClaimConflict", text, "Warning"))
    return plan


def _claim(pod: Obj, volume: Obj) -> Obj:
    template = volume["ephemeral"]["volumeClaimTemplate"]
    meta = pod["metadata"]
    owner = {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": meta["name"],
        "uid": meta["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
    inherited = template.get("metadata") or {}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": facts.ephemeral_claim(pod, volume),
            "namespace": meta["namespace"],
            **{name: inherited[name] for name in ("labels", "annotations") if name in inherited},
            "ownerReferences": [owner],
        },
        "spec": template["spec"],
    }


class Ephemeral:
    """Feeds pods (``ns/name``) that bring claims along through its queue."""

    def __init__(self, api: apis.Api, seen: views.Views) -> None:
        self._views = seen
        self.loop = keyed.KeyedLoop("ephemeral", self._sync)
        self._performer = actions.Performer(api, "ephemeral-volume-controller", self.loop.decided)
        seen.pods.listen(self._pod_changed)
        for pod in seen.pods.all():
            self._pod_changed(None, pod)

    def _pod_changed(self, _old: Obj | None, new: Obj | None) -> None:
        if new and any("ephemeral" in volume for volume in new["spec"].get("volumes") or ()):
            self.loop.add(facts.key(new))

    def _sync(self, key: str) -> float | None:
        pod = self._views.pods.get(key)
        return self._performer.perform(decide(pod, self._views.claims.get) if pod else [])
