"""Marks a node not ready when its agent has stopped renewing the node's lease.

As kube-controller-manager's node lifecycle controller: the Ready condition becomes ``Unknown``
after the grace period, so that no pod is placed on a node whose agent was killed.
"""

import datetime as dt

from devcluster import api as apis
from devcluster import metadata
from devcluster.loops import actions, facts, keyed, names, views
from devcluster.loops.actions import Action, Again, Patch
from devcluster.loops.facts import Obj

GRACE = 40.0  # seconds without a renewal
NAMESPACE = "kube-node-lease"


def decide(node: Obj, silence: float, now: str) -> list[Action]:
    """``silence`` is how many seconds ago the agent last gave a sign of life."""
    conditions = (node.get("status") or {}).get("conditions") or []
    ready = next((c for c in conditions if c["type"] == "Ready"), None)
    if ready is None or ready["status"] != "True":
        return []
    if silence < GRACE:
        return [Again(GRACE - silence)]
    unknown = {
        "type": "Ready",
        "status": "Unknown",
        "reason": "NodeStatusUnknown",
        "message": "The node agent stopped posting node status.",
        "lastHeartbeatTime": ready.get("lastHeartbeatTime"),
        "lastTransitionTime": now,
    }
    rest = [c for c in conditions if c["type"] != "Ready"]
    return [
        Patch(names.NODES, facts.key(node), {"status": {"conditions": [*rest, unknown]}}, "status")
    ]


def silence(lease: Obj | None, now: dt.datetime) -> float:
    """Seconds since the lease was renewed; a node without one has no agent to judge."""
    renewed = ((lease or {}).get("spec") or {}).get("renewTime")
    if not renewed:
        return 0.0
    return (now - dt.datetime.fromisoformat(renewed)).total_seconds()


class NodeLifecycle:
    """Feeds nodes (``name``) through its queue, by timer."""

    def __init__(self, api: apis.Api, seen: views.Views) -> None:
        self._api = api
        self._views = seen
        self.loop = keyed.KeyedLoop("nodes", self._sync)
        self._performer = actions.Performer(api, "node-controller", self.loop.decided)
        seen.nodes.listen(self._changed)
        for node in seen.nodes.all():
            self.loop.add(facts.key(node))

    def _changed(self, _old: Obj | None, new: Obj | None) -> None:
        if new:
            self.loop.add(facts.key(new))

    def _sync(self, key: str) -> float | None:
        node = self._views.nodes.get(key)
        if node is None:
            return None
        lease = self._api.get(self._api.resource(*names.LEASES), key, NAMESPACE)
        age = silence(lease, dt.datetime.now(dt.UTC))
        return self._performer.perform(decide(node, age, metadata.now()))
