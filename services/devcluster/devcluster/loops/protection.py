"""In-use protection: a claim or volume marked for deletion stays until nobody uses it.

Admission puts the finalizers on; this loop takes them off, and puts back those that somebody
took off an object that is not to go. As upstream, a pod counts as a user
from the moment it is bound to a node until its object is gone, finished or not; a pod that was
force-deleted (grace 0) counts no longer, so finalizers of its own cannot block the claim.
"""

from collections.abc import Sequence

from devcluster import api as apis
from devcluster.loops import actions, facts, keyed, names, views
from devcluster.loops.actions import Action, Patch
from devcluster.loops.facts import Obj


def decide_claim(claim: Obj, pods: Sequence[Obj]) -> list[Action]:
    """Guard the claim; release it if it is to go and no pod of those naming it uses it."""
    if not facts.is_deleting(claim):
        return _guard(names.CLAIMS, claim, names.CLAIM_FINALIZER)
    if any(is_user(pod, claim) for pod in pods):
        return []
    return _release(names.CLAIMS, claim, names.CLAIM_FINALIZER)


def decide_volume(volume: Obj) -> list[Action]:
    """Guard the volume; release it if it is to go and not bound to a claim."""
    if not facts.is_deleting(volume):
        return _guard(names.VOLUMES, volume, names.VOLUME_FINALIZER)
    if facts.phase(volume) == "Bound":
        return []
    return _release(names.VOLUMES, volume, names.VOLUME_FINALIZER)


def is_user(pod: Obj, claim: Obj) -> bool:
    """Whether a pod that names the claim keeps it from going."""
    shut_down = facts.is_deleting(pod) and pod["metadata"].get("deletionGracePeriodSeconds") == 0
    if not facts.node_name(pod) or shut_down:
        return False
    by_name = any(
        (volume.get("persistentVolumeClaim") or {}).get("claimName") == claim["metadata"]["name"]
        for volume in pod["spec"].get("volumes") or ()
    )
    return by_name or facts.controller_owner(claim) == facts.uid(pod)


def _guard(kind: names.Kind, obj: Obj, finalizer: str) -> list[Action]:
    held_by = facts.finalizers(obj)
    if finalizer in held_by:
        return []
    return [Patch(kind, facts.key(obj), {"metadata": {"finalizers": [*held_by, finalizer]}})]


def _release(kind: names.Kind, obj: Obj, finalizer: str) -> list[Action]:
    held_by = facts.finalizers(obj)
    if finalizer not in held_by:
        return []
    rest = [name for name in held_by if name != finalizer]
    return [Patch(kind, facts.key(obj), {"metadata": {"finalizers": rest or None}})]


class Protection:
    """Feeds claims (``ns/name``) and volumes (``name``) that need something through one queue."""

    def __init__(self, api: apis.Api, seen: views.Views) -> None:
        self._views = seen
        self.loop = keyed.KeyedLoop("protection", self._sync)
        self._performer = actions.Performer(api, "pvc-protection-controller", self.loop.decided)
        for view in (seen.claims, seen.volumes):
            view.listen(self._candidate)
            for obj in view.all():
                self._candidate(None, obj)
        seen.pods.listen(self._pod_changed)

    def _candidate(self, _old: Obj | None, new: Obj | None) -> None:
        if new is None:
            return
        own = names.CLAIM_FINALIZER if "/" in facts.key(new) else names.VOLUME_FINALIZER
        if facts.is_deleting(new) or own not in facts.finalizers(new):
            self.loop.add(facts.key(new))

    def _pod_changed(self, old: Obj | None, new: Obj | None) -> None:
        """Only a pod's end can release a claim."""
        if old and (new is None or facts.is_deleting(new)):
            for key in facts.claim_keys(old):
                self.loop.add(key)

    def _sync(self, key: str) -> float | None:
        if "/" in key:
            claim = self._views.claims.get(key)
            plan = decide_claim(claim, self._views.pods.by("claim", key)) if claim else []
        else:
            volume = self._views.volumes.get(key)
            plan = decide_volume(volume) if volume else []
        return self._performer.perform(plan)
