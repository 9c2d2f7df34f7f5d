"""What goes with what: owners, dependents, namespaces, and the pods' own claims."""

import datetime as dt
from typing import Any

import pytest
from devcluster.loops import ephemeral, garbage, names, nodes
from devcluster.loops.actions import Again, Create, Delete, Emit, Patch
from devcluster.loops.garbage import Entry
from support.manifests import NOW, claim, meta, node, owner, pod

Obj = dict[str, Any]
OWNER = pod("owner")
DOOMED = pod("owner", deletionTimestamp=NOW, finalizers=[names.FOREGROUND])


def entry(obj: Obj) -> Entry:
    kind = names.PODS if obj["kind"] == "Pod" else names.CLAIMS
    return Entry(kind, obj)


def owned(*owners: Obj, **more: Any) -> Obj:
    return claim(ownerReferences=list(owners), **more)


def existing(*objs: Obj) -> dict[str, Entry]:
    return {obj["metadata"]["uid"]: entry(obj) for obj in objs}


GONE = [Delete(names.CLAIMS, "ns/c", "uid-c")]


@pytest.mark.parametrize(
    ("obj", "owners", "expected"),
    [
        pytest.param(claim(), {}, [], id="owned by nobody"),
        pytest.param(owned(owner(OWNER)), existing(OWNER), [], id="owner is there"),
        pytest.param(owned(owner(OWNER)), {}, GONE, id="owner is gone"),
        pytest.param(
            owned(owner(OWNER), owner(pod("q"))),
            existing(OWNER),
            [Patch(names.CLAIMS, "ns/c", {"metadata": {"ownerReferences": [owner(OWNER)]}})],
            id="one of two is gone",
        ),
        pytest.param(
            owned(owner(OWNER)),
            {"uid-owner": Entry(names.PODS, {"metadata": meta("owner", "other")})},
            GONE,
            id="owner in another namespace",
        ),
        pytest.param(
            owned(owner(OWNER)),
            {"uid-owner": Entry(names.NODES, {"metadata": meta("owner")})},
            [],
            id="owner without namespace",
        ),
        pytest.param(owned(owner(DOOMED)), existing(DOOMED), [], id="owner leaves, not blocked"),
        pytest.param(
            owned(owner(DOOMED, blockOwnerDeletion=True)), existing(DOOMED), GONE, id="blocks owner"
        ),
        pytest.param(owned(owner(OWNER), deletionTimestamp=NOW), {}, [], id="going already"),
    ],
)
def test_an_object_goes_with_its_last_owner(
    obj: Obj, owners: dict[str, Entry], expected: list[object]
) -> None:
    assert garbage.decide(entry(obj), owners, []) == expected


def test_foreground_deletion_waits_for_blocking_dependents() -> None:
    blocking = owned(owner(DOOMED, blockOwnerDeletion=True))
    assert garbage.decide(entry(DOOMED), {}, [entry(blocking)]) == GONE
    going = owned(owner(DOOMED, blockOwnerDeletion=True), deletionTimestamp=NOW)
    assert garbage.decide(entry(DOOMED), {}, [entry(going)]) == []
    let_go = [Patch(names.PODS, "ns/owner", {"metadata": {"finalizers": None}})]
    assert garbage.decide(entry(DOOMED), {}, [entry(owned(owner(DOOMED)))]) == let_go


def test_orphans_are_cut_loose() -> None:
    it = pod("owner", deletionTimestamp=NOW, finalizers=[names.ORPHAN, "a/b"])
    assert garbage.decide(entry(it), {}, [entry(owned(owner(it), owner(pod("q"))))]) == [
        Patch(names.CLAIMS, "ns/c", {"metadata": {"ownerReferences": [owner(pod("q"))]}}),
        Patch(names.PODS, "ns/owner", {"metadata": {"finalizers": ["a/b"]}}),
    ]


def namespace(**more: Any) -> Obj:
    return {"metadata": meta("ns", **more), "spec": {"finalizers": ["kubernetes"]}}


def test_a_namespace_is_emptied_then_let_go() -> None:
    going = namespace(deletionTimestamp=NOW)
    content = [entry(claim()), entry(pod(deletionTimestamp=NOW))]
    assert garbage.decide_namespace(namespace(), content) == []
    assert garbage.decide_namespace(going, content) == GONE
    assert garbage.decide_namespace(going, []) == [
        Patch(names.NAMESPACES, "ns", {"spec": {"finalizers": None}}, "finalize")
    ]


def test_a_large_namespace_is_emptied_in_batches() -> None:
    content = [entry(claim(f"c{n}")) for n in range(garbage.NAMESPACE_BATCH + 1)]
    plan = garbage.decide_namespace(namespace(deletionTimestamp=NOW), content)
    assert len(plan) == garbage.NAMESPACE_BATCH + 1
    assert plan[-1] == Again(0.0)


def test_a_pod_brings_its_ephemeral_claims() -> None:
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"accessModes": ["ReadWriteOnce"]}}
    it = pod()
    it["spec"]["volumes"] = [{"name": "s", "ephemeral": {"volumeClaimTemplate": template}}]
    (created,) = ephemeral.decide(it, lambda _key: None)
    assert isinstance(created, Create)
    made = created.body
    assert made["metadata"]["name"] == "p-s"
    assert made["metadata"]["labels"] == {"a": "b"}
    assert made["metadata"]["ownerReferences"] == [
        owner(it, controller=True, blockOwnerDeletion=True)
    ]
    made["metadata"]["uid"] = "x"
    assert ephemeral.decide(it, lambda _key: made) == []
    (event,) = ephemeral.decide(it, lambda _key: claim("p-s"))
    assert isinstance(event, Emit)
    it["metadata"]["deletionTimestamp"] = NOW
    assert ephemeral.decide(it, lambda _key: None) == []


def test_a_node_whose_agent_is_silent_is_not_ready() -> None:
    assert nodes.decide(node(ready=False), 99.0, NOW) == []
    assert nodes.decide(node(), 10.0, NOW) == [Again(nodes.GRACE - 10.0)]
    (patch,) = nodes.decide(node(), nodes.GRACE, NOW)
    assert isinstance(patch, Patch)
    (condition,) = patch.body["status"]["conditions"]
    assert condition["status"] == "Unknown"


def test_silence_is_counted_from_the_last_renewal() -> None:
    now = dt.datetime(2026, 1, 1, 0, 1, tzinfo=dt.UTC)
    lease = {"spec": {"renewTime": "2026-01-01T00:00:00.000000Z"}}
    assert nodes.silence(lease, now) == 60.0
    assert nodes.silence(None, now) == 0.0
