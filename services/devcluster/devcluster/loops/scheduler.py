"""Places pods on ready nodes, and decides with the pod where its late-bound volumes are made.

As upstream: a node is chosen first; unbound claims of the pod get it written down (a free
volume is reserved, or ``selected-node`` asks the provisioner), and only when all are bound is
the pod bound to the node. A provisioner that takes ``selected-node`` off again says that it
cannot serve that node: the pod tries others first, and that one again after a pause.
"""

import collections
import dataclasses
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from devcluster import api as apis
from devcluster import binding, metadata
from devcluster.loops import actions, binder, facts, fit, keyed, names, views
from devcluster.loops.actions import Action, Again, Emit, Patch
from devcluster.loops.facts import Obj

PAUSE_START, PAUSE_MAX = 1.0, 10.0  # seconds that a node stays refused
RWOP = "ReadWriteOncePod"


@dataclass(frozen=True, slots=True)
class Seen:
    """A pod without a node, its claims and all nodes."""

    pod: Obj
    claims: Sequence[fit.ClaimSeen]
    nodes: Sequence[fit.NodeSeen]
    refused: Mapping[str, float]  # node → seconds until it may be tried again
    now: str


def decide(seen: Seen) -> list[Action]:
    """Bind the pod, or have its claims bound, or say why neither is possible."""
    if problem := _claims_problem(seen.claims):
        return _unschedulable(seen, problem)
    fits = [fit.on_node(seen.pod, seen.claims, node) for node in seen.nodes]
    possible = [place for place in fits if not place.problem]
    if not possible:
        return _unschedulable(seen, _summary(fits))
    load = {node.name: node.pods for node in seen.nodes}
    fresh = [place for place in possible if place.node not in seen.refused]
    if not fresh:
        pause = min(seen.refused[place.node] for place in possible)
        text = f"{_summary(fits)}: provisioning failed on those that fit"
        return [*_unschedulable(seen, text), Again(pause)]
    best = min(fresh, key=lambda place: (load[place.node], place.node))
    return _place(seen, best)


def _claims_problem(claims: Sequence[fit.ClaimSeen]) -> str | None:
    """What keeps the pod off every node."""
    for seen in claims:
        claim, name = seen.claim, facts.split(seen.key)[1]
        if claim is None:
            return f'persistentvolumeclaim "{name}" not found'
        if facts.phase(claim) == "Lost":
            return f'persistentvolumeclaim "{name}" bound to non-existent persistentvolume'
        if facts.is_deleting(claim):
            return f'persistentvolumeclaim "{name}" is being deleted'
        if seen.user and RWOP in claim["spec"]["accessModes"]:
            return f'persistentvolumeclaim "{name}" is ReadWriteOncePod and used by "{seen.user}"'
        if not seen.is_bound and not _waits_for_pod(seen):
            return "pod has unbound immediate PersistentVolumeClaims"
    return None


def _waits_for_pod(seen: fit.ClaimSeen) -> bool:
    mode = (seen.storage_class or {}).get("volumeBindingMode")
    return mode == "WaitForFirstConsumer"


def _summary(fits: Sequence[fit.Fit]) -> str:
    counts = collections.Counter(place.problem for place in fits if place.problem)
    reasons = ", ".join(f"{count} node(s) {why}" for why, count in sorted(counts.items()))
    usable = sum(not place.problem for place in fits)
    return f"{usable}/{len(fits)} nodes are available: {reasons or 'no nodes'}"


def _unschedulable(seen: Seen, why: str) -> list[Action]:
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    condition |= {"message": why, "lastTransitionTime": seen.now}
    known = (seen.pod.get("status") or {}).get("conditions") or ()
    if any(c["type"] == "PodScheduled" and c.get("message") == why for c in known):
        return []
    body: Obj = {"status": {"conditions": [*_other_conditions(seen.pod), condition]}}
    return [
        Patch(names.PODS, facts.key(seen.pod), body, "status"),
        Emit(seen.pod, "FailedScheduling", why, "Warning"),
    ]


def _other_conditions(pod: Obj) -> list[Obj]:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return [condition for condition in conditions if condition["type"] != "PodScheduled"]


def _place(seen: Seen, place: fit.Fit) -> list[Action]:
    if all(claim.is_bound for claim in seen.claims):
        return _bind_pod(seen, place.node)
    claims = {claim.key: claim.claim for claim in seen.claims}
    plan: list[Action] = []
    for key, volume in place.static:
        body: Obj = {
            "metadata": {"annotations": {names.BOUND_BY_CONTROLLER: "yes"}},
            "spec": {"claimRef": binder.claim_ref(claims[key] or {})},
        }
        plan.append(Patch(names.VOLUMES, volume, body))
    for key in place.dynamic:
        body = {"metadata": {"annotations": {names.SELECTED_NODE: place.node}}}
        plan.append(Patch(names.CLAIMS, key, body))
    return plan


def _bind_pod(seen: Seen, node: str) -> list[Action]:
    key = facts.key(seen.pod)
    text = f"Successfully assigned {key} to {node}"
    return [
        Patch(names.PODS, key, binding.change(seen.pod, node, seen.now), "binding"),
        Emit(seen.pod, "Scheduled", text),
    ]


class Scheduler:
    """Feeds unscheduled pods (``ns/name``) through its queue."""

    def __init__(self, api: apis.Api, seen: views.Views) -> None:
        self._views = seen
        self.loop = keyed.KeyedLoop("scheduler", self._sync)
        self._performer = actions.Performer(api, "default-scheduler", self.loop.decided)
        self._refused: dict[
            str, dict[str, tuple[int, float]]
        ] = {}  # claim UID → node → times, until
        seen.pods.listen(self._pod_changed)
        seen.claims.listen(self._claim_changed)
        seen.volumes.listen(self._volume_changed)
        for view in (seen.nodes, seen.csi_nodes, seen.csi_drivers, seen.capacities, seen.classes):
            view.listen(self._cluster_changed)
        self._wake_all()

    def _wake_all(self) -> None:
        for key in self._views.pods.keys("state", "unscheduled"):
            self.loop.add(key)

    def _pod_changed(self, old: Obj | None, new: Obj | None) -> None:
        if new and not facts.node_name(new):
            self.loop.add(facts.key(new))
        elif old and facts.node_name(old) and (new is None or facts.is_terminated(new)):
            self._wake_all()  # it made room

    def _claim_changed(self, old: Obj | None, new: Obj | None) -> None:
        claim = new or old or {}
        if new is None:
            self._refused.pop(facts.uid(claim), None)
        elif old:
            self._note_refusal(old, new)
        for key in self._views.pods.keys("claim", facts.key(claim)):
            self.loop.add(key)

    def _note_refusal(self, old: Obj, new: Obj) -> None:
        """A provisioner that gives up on a node takes the annotation off the unbound claim."""
        node = facts.annotation(old, names.SELECTED_NODE)
        if not node or facts.annotation(new, names.SELECTED_NODE) or new["spec"].get("volumeName"):
            return
        refused = self._refused.setdefault(facts.uid(new), {})
        times = refused.get(node, (0, 0.0))[0] + 1
        pause = min(PAUSE_MAX, PAUSE_START * 2 ** (times - 1))
        refused[node] = (times, time.monotonic() + pause)

    def _volume_changed(self, _old: Obj | None, new: Obj | None) -> None:
        if new and facts.phase(new) == "Available":
            self._wake_all()

    def _cluster_changed(self, old: Obj | None, new: Obj | None) -> None:
        if old and new and _weight(old) == _weight(new):
            return  # a heartbeat
        self._wake_all()

    def _sync(self, key: str) -> float | None:
        pod = self._views.pods.get(key)
        if pod is None or facts.node_name(pod) or facts.is_deleting(pod):
            return None
        if pod["spec"].get("schedulerName", "default-scheduler") != "default-scheduler":
            return None
        claims = [self._claim(key, pod) for key in facts.claim_keys(pod)]
        nodes = [self._node(node) for node in self._views.nodes.all()]
        seen = Seen(pod, claims, nodes, self._refusals(claims), metadata.now())
        return self._performer.perform(decide(seen))

    def _refusals(self, claims: Sequence[fit.ClaimSeen]) -> dict[str, float]:
        now = time.monotonic()
        refused: dict[str, float] = {}
        for seen in claims:
            if seen.claim:
                for node, (_, until) in self._refused.get(facts.uid(seen.claim), {}).items():
                    if until > now:
                        refused[node] = max(refused.get(node, 0.0), until - now)
        return refused

    def _claim(self, key: str, pod: Obj) -> fit.ClaimSeen:
        claim = self._views.claims.get(key)
        if claim is None:
            return fit.ClaimSeen(key, None)
        volume = self._views.volumes.get(claim["spec"].get("volumeName") or "")
        class_name = facts.class_name(claim)
        storage_class = self._views.classes.get(class_name)
        users = (p for p in self._views.pods.by("claim", key) if facts.node_name(p))
        user = next((p for p in users if not facts.is_terminated(p) and p is not pod), None)
        seen = fit.ClaimSeen(
            key=key,
            claim=claim,
            volume=volume,
            storage_class=storage_class,
            free=self._views.volumes.by("free_class", class_name),
            capacities=self._views.capacities.by("storage_class", class_name),
            user=user["metadata"]["name"] if user else "",
        )
        driver = self._views.csi_drivers.get(seen.driver_name)
        return dataclasses.replace(seen, driver=driver)

    def _node(self, node: Obj) -> fit.NodeSeen:
        name = node["metadata"]["name"]
        return fit.NodeSeen(
            node=node,
            csi_node=self._views.csi_nodes.get(name),
            pods=self._views.pods.count("node", name),
            attached=lambda: self._attached(name),
        )

    def _attached(self, node: str) -> dict[str, frozenset[str]]:
        """Volumes by driver that the node's pods use or that are attached to it."""
        claims = (key for pod in self._views.pods.by("node", node) for key in facts.claim_keys(pod))
        found = [self._views.claims.get(key) for key in claims]
        used = {claim["spec"].get("volumeName", "") for claim in found if claim}
        for attachment in self._views.attachments.by("node", node):
            used.add(attachment["spec"]["source"].get("persistentVolumeName", ""))
        handles: dict[str, set[str]] = {}
        for name in used:
            source = ((self._views.volumes.get(name) or {}).get("spec") or {}).get("csi")
            if source:
                handles.setdefault(source["driver"], set()).add(source["volumeHandle"])
        return {driver: frozenset(names_) for driver, names_ in handles.items()}


def _weight(obj: Obj) -> object:
    """The parts of a node (or of anything else: all of it) that placing depends on."""
    if obj.get("kind") != "Node":
        return obj
    conditions = (obj.get("status") or {}).get("conditions") or ()
    ready = [c["status"] for c in conditions if c["type"] == "Ready"]
    return obj["metadata"].get("labels"), obj["spec"], ready
