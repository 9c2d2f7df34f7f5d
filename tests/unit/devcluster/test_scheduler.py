"""Where pods go, and where their late-bound volumes are made, as tables."""

from typing import Any

import pytest
from devcluster.loops import fit, names, scheduler
from devcluster.loops.actions import Action, Again, Emit, Patch
from support import manifests
from support.manifests import DRIVER, NOW, claim, csi_driver, csi_node, node, pod, volume

Obj = dict[str, Any]
LATE = manifests.storage_class(volumeBindingMode="WaitForFirstConsumer")
STATIC = manifests.storage_class(
    volumeBindingMode="WaitForFirstConsumer", provisioner=names.NO_PROVISIONER
)
BOUND = {names.BIND_COMPLETED: "yes"}
ON_N2 = {
    "required": {
        "nodeSelectorTerms": [
            {
                "matchExpressions": [
                    {"key": "kubernetes.io/hostname", "operator": "In", "values": ["n2"]}
                ]
            }
        ]
    }
}


def nodes(*names_: str, **more: Any) -> list[fit.NodeSeen]:
    return [fit.NodeSeen(node(name), csi_node(name), **more) for name in names_]


def pending(name: str = "c", storage_class: Obj = LATE, **more: Any) -> fit.ClaimSeen:
    """A claim that waits for its first consumer."""
    fields = {key: more.pop(key) for key in ("free", "capacities", "driver") if key in more}
    return fit.ClaimSeen(f"ns/{name}", claim(name, **more), None, storage_class, **fields)


def bound(
    name: str = "c", user: str = "", modes: str = "ReadWriteOnce", **more: Any
) -> fit.ClaimSeen:
    """A claim with its volume."""
    it = claim(name, annotations=BOUND, volumeName=f"v-{name}", accessModes=[modes])
    made = volume(f"v-{name}", phase="Bound", **more)
    return fit.ClaimSeen(f"ns/{name}", it, made, LATE, user=user)


def decide(
    *claims: fit.ClaimSeen, on: list[fit.NodeSeen] | None = None, **more: Any
) -> list[Action]:
    refused = more.pop("refused", {})
    where = nodes("n1", "n2") if on is None else on
    return scheduler.decide(scheduler.Seen(pod(**more), claims, where, refused, NOW))


def chosen(plan: list[Action]) -> str:
    """The node that a plan binds the pod to."""
    bound, told = plan
    assert isinstance(bound, Patch)
    assert bound.subresource == "binding"
    assert isinstance(told, Emit)
    assert told.reason == "Scheduled"
    return str(bound.body["spec"]["nodeName"])


def refusal(plan: list[Action]) -> str:
    """Why a plan leaves the pod unscheduled."""
    condition, event, *_ = plan
    assert isinstance(condition, Patch)
    assert condition.body["status"]["conditions"][-1]["reason"] == "Unschedulable"
    assert isinstance(event, Emit)
    assert event.reason == "FailedScheduling"
    return event.message


def selected(name: str, key: str = "ns/c") -> Patch:
    return Patch(names.CLAIMS, key, {"metadata": {"annotations": {names.SELECTED_NODE: name}}})


def test_a_pod_without_volumes_goes_to_the_least_loaded_node() -> None:
    busy, idle = nodes("n1", pods=3), nodes("n2")
    plan = decide(on=busy + idle)
    assert chosen(plan) == "n2"
    condition = {"type": "PodScheduled", "status": "True", "lastTransitionTime": NOW}
    assert plan[0] == Patch(
        names.PODS,
        "ns/p",
        {"spec": {"nodeName": "n2"}, "status": {"conditions": [condition]}},
        "binding",
    )


def test_who_has_the_driver_does_not_matter_unless_the_driver_insists() -> None:
    without = [fit.NodeSeen(node("n1"))]
    assert chosen(decide(bound(), on=without + nodes("n2", pods=9))) == "n1"


@pytest.mark.parametrize(
    ("seen", "why"),
    [
        pytest.param(fit.NodeSeen(node(ready=False)), "were not ready", id="not ready"),
        pytest.param(fit.NodeSeen(node(unschedulable=True)), "unschedulable", id="cordoned"),
        pytest.param(fit.NodeSeen(node(labels={})), "node affinity/selector", id="label missing"),
    ],
)
def test_unfit_nodes_say_why(seen: fit.NodeSeen, why: str) -> None:
    plan = decide(on=[seen], nodeSelector={"kubernetes.io/hostname": "n1"})
    assert why in refusal(plan)
    assert refusal(plan).startswith("0/1 nodes are available")


def test_no_node_at_all() -> None:
    assert refusal(decide(on=[])) == "0/0 nodes are available: no nodes"


def test_required_node_affinity_is_obeyed() -> None:
    wants = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": ON_N2["required"]}}
    assert chosen(decide(affinity=wants)) == "n2"


def test_the_same_refusal_is_written_once() -> None:
    it = pod()
    it["status"]["conditions"] = [
        {"type": "PodScheduled", "status": "False", "message": "0/0 nodes are available: no nodes"}
    ]
    assert scheduler.decide(scheduler.Seen(it, [], [], {}, NOW)) == []


@pytest.mark.parametrize(
    ("seen", "why"),
    [
        pytest.param(fit.ClaimSeen("ns/c", None), "not found", id="missing"),
        pytest.param(pending(status={"phase": "Lost"}), "non-existent", id="lost"),
        pytest.param(pending(deletionTimestamp=NOW), "being deleted", id="deleted"),
        pytest.param(
            pending(storage_class=manifests.storage_class()), "unbound immediate", id="immediate"
        ),
        pytest.param(bound(user="q", modes="ReadWriteOncePod"), 'used by "q"', id="one pod only"),
    ],
)
def test_a_claim_can_keep_the_pod_off_every_node(seen: fit.ClaimSeen, why: str) -> None:
    assert why in refusal(decide(seen))


def test_other_pods_may_share_other_modes() -> None:
    assert chosen(decide(bound(user="q"))) == "n1"


def test_a_volume_pins_the_pod_to_its_nodes() -> None:
    assert chosen(decide(bound(nodeAffinity=ON_N2))) == "n2"
    plan = decide(bound(nodeAffinity=ON_N2), on=nodes("n1"))
    assert "volume node affinity conflict" in refusal(plan)


def test_late_claims_are_told_the_node_before_the_pod_is_bound() -> None:
    assert decide(pending("a"), bound("b", nodeAffinity=ON_N2)) == [selected("n2", "ns/a")]


def test_a_claim_being_provisioned_keeps_its_node() -> None:
    waiting = pending(annotations={names.SELECTED_NODE: "n2"})
    assert decide(waiting) == []
    assert "selected node" in refusal(decide(waiting, on=nodes("n1")))


def test_free_volumes_are_reserved_each_once() -> None:
    free = [volume("v1", nodeAffinity=ON_N2), volume("v2", nodeAffinity=ON_N2, size="2Gi")]
    first, second = decide(pending("a", STATIC, free=free), pending("b", STATIC, free=free))
    assert isinstance(first, Patch)
    assert isinstance(second, Patch)
    assert (first.key, second.key) == ("v1", "v2")
    assert first.body["spec"]["claimRef"]["name"] == "a"
    assert first.body["metadata"]["annotations"] == {names.BOUND_BY_CONTROLLER: "yes"}


def test_static_classes_need_a_free_volume() -> None:
    assert "available persistent volumes" in refusal(decide(pending(storage_class=STATIC)))


def test_allowed_topologies_restrict_provisioning() -> None:
    key = "kubernetes.io/hostname"
    allowed = [{"matchLabelExpressions": [{"key": key, "values": ["n2"]}]}]
    assert decide(pending(storage_class={**LATE, "allowedTopologies": allowed})) == [selected("n2")]
    elsewhere = [{"matchLabelExpressions": [{"key": key, "values": ["n9"]}]}]
    plan = decide(pending(storage_class={**LATE, "allowedTopologies": elsewhere}))
    assert "allowed topologies" in refusal(plan)


def capacity(name: str, free: str, **more: Any) -> Obj:
    topology = {"matchLabels": {"kubernetes.io/hostname": name}}
    return {"capacity": free, "nodeTopology": topology, "storageClassName": "fast", **more}


@pytest.mark.parametrize(
    ("objects", "where"),
    [
        pytest.param([capacity("n1", "10Mi"), capacity("n2", "2Gi")], "n2", id="room on one"),
        pytest.param([capacity("n1", "1Gi")], "n1", id="only one reported"),
        pytest.param([capacity("n1", "9Gi", maximumVolumeSize="10Mi")], None, id="size limit"),
        pytest.param([], None, id="nothing reported"),
    ],
)
def test_published_capacity_is_believed(objects: list[Obj], where: str | None) -> None:
    seen = pending(driver=csi_driver(storageCapacity=True), capacities=objects)
    plan = decide(seen)
    if where:
        assert plan == [selected(where)]
    else:
        assert "did not have enough free storage" in refusal(plan)


def test_capacity_does_not_matter_to_other_drivers() -> None:
    assert decide(pending(driver=csi_driver())) == [selected("n1")]


def test_a_claim_whose_class_is_gone_fits_nowhere() -> None:
    seen = fit.ClaimSeen("ns/c", claim(), None, None)
    assert "storage class" in fit.on_node(pod(), [seen], nodes("n1")[0]).problem


def test_a_driver_may_insist_on_being_there() -> None:
    seen = pending(driver=csi_driver(preventPodSchedulingIfMissing=True))
    assert decide(seen, on=[fit.NodeSeen(node("n1")), *nodes("n2")]) == [selected("n2")]
    assert "CSI driver" in refusal(decide(seen, on=[fit.NodeSeen(node("n1"))]))


@pytest.mark.parametrize(
    ("there", "fits"),
    [
        pytest.param({"handle-v-c"}, True, id="already there"),
        pytest.param({"handle-v-c", "x"}, True, id="full with it"),
        pytest.param({"x"}, True, id="one place left"),
        pytest.param({"x", "y"}, False, id="full without it"),
    ],
)
def test_a_node_takes_only_so_many_volumes(there: set[str], fits: bool) -> None:
    attached = {DRIVER: frozenset(there)}
    full = [fit.NodeSeen(node(), csi_node(count=2), attached=lambda: attached)]
    plan = decide(bound(), on=full)
    if fits:
        assert chosen(plan) == "n1"
    else:
        assert "max volume count" in refusal(plan)


def test_a_refused_node_is_tried_last_and_after_a_pause() -> None:
    assert decide(pending(), refused={"n1": 5.0}) == [selected("n2")]
    plan = decide(pending(), refused={"n1": 5.0, "n2": 3.0})
    assert "provisioning failed" in refusal(plan)
    assert plan[-1] == Again(3.0)
