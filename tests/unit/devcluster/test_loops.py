"""The loops together, on the API they run on in the API server's process."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from bitts.core import ledger
from devcluster import api as apis
from devcluster import loops
from devcluster.loops import facts, names
from support import manifests, waiting
from support.manifests import DRIVER

Obj = dict[str, Any]


class World:
    """An API with its loops, and the few moves of those who are not there."""

    def __init__(self) -> None:
        self.api = apis.Api()
        self.ledger = ledger.Ledger()
        for name in ("ns", "kube-node-lease"):
            self.create(names.NAMESPACES, {"metadata": {"name": name}})

    def create(self, kind: names.Kind, obj: Obj) -> Obj:
        plain = {**obj, "metadata": dict(obj["metadata"])}
        for given in ("uid", "resourceVersion", "creationTimestamp"):
            plain["metadata"].pop(given, None)
        namespace = plain["metadata"].get("namespace", "")
        return self.api.create(self.api.resource(*kind), plain, namespace)

    def get(self, kind: names.Kind, key: str) -> Obj | None:
        namespace, name = facts.split(key)
        return self.api.get(self.api.resource(*kind), name, namespace)

    def delete(self, kind: names.Kind, key: str, **more: Any) -> None:
        namespace, name = facts.split(key)
        self.api.delete(self.api.resource(*kind), name, namespace, **more)

    def patch(self, kind: names.Kind, key: str, body: Obj, subresource: str = "") -> Obj:
        namespace, name = facts.split(key)
        resource = self.api.resource(*kind)
        return self.api.patch(resource, name, body, namespace, subresource=subresource)

    def ready_node(self, name: str) -> None:
        self.create(names.NODES, manifests.node(name))

    def provision(self, it: Obj) -> Obj:
        """What an external provisioner does for a claim."""
        made = manifests.volume(
            f"pvc-{facts.uid(it)}",
            claimRef=manifests.claim_ref(it),
            annotations={names.PROVISIONED_BY: DRIVER},
        )
        return self.create(names.VOLUMES, made)

    async def until(self, check: Callable[[], object], what: str) -> None:
        await waiting.until(lambda: bool(check()), what)

    async def until_phase(self, kind: names.Kind, key: str, phase: str) -> Obj:
        await self.until(lambda: facts.phase(self.get(kind, key) or {}) == phase, f"{key} {phase}")
        found = self.get(kind, key)
        assert found is not None
        return found


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = World()
    async with _running(made):
        yield made


@contextlib.asynccontextmanager
async def _running(made: World) -> AsyncIterator[None]:
    stop = asyncio.Event()

    async def serve() -> None:
        async with asyncio.TaskGroup() as group:
            loops.start(made.api, group, made.ledger)
            await stop.wait()
            raise asyncio.CancelledError

    task = asyncio.create_task(serve())
    yield
    stop.set()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def test_what_the_loops_did_and_why_is_noted(world: World) -> None:
    world.create(names.CLASSES, manifests.storage_class())
    it = world.create(names.CLAIMS, manifests.claim())
    await world.until(lambda: world.ledger.entry("binder", "ns/c"), "the binder's pass")
    asked = world.ledger.entry("binder", "ns/c")
    assert asked is not None
    assert asked.decision
    world.provision(it)
    await world.until_phase(names.CLAIMS, "ns/c", "Bound")
    bound = world.ledger.entry("binder", "ns/c")
    assert bound is not None
    assert (bound.phase, bound.failures) == (ledger.Phase.FINISHED, 0)


async def test_a_claim_is_bound_to_what_the_provisioner_makes_and_released(world: World) -> None:
    world.create(names.CLASSES, manifests.storage_class())
    it = world.create(names.CLAIMS, manifests.claim())
    await world.until(
        lambda: facts.annotation(world.get(names.CLAIMS, "ns/c") or it, names.PROVISIONER),
        "provisioner asked",
    )
    made = world.provision(it)
    bound = await world.until_phase(names.CLAIMS, "ns/c", "Bound")
    assert bound["spec"]["volumeName"] == made["metadata"]["name"]
    assert bound["status"]["capacity"] == {"storage": "1Gi"}
    assert facts.annotation(bound, names.BIND_COMPLETED) == "yes"
    assert facts.annotation(bound, names.BOUND_BY_CONTROLLER) == "yes"
    await world.until_phase(names.VOLUMES, made["metadata"]["name"], "Bound")
    world.delete(names.CLAIMS, "ns/c")
    await world.until(lambda: world.get(names.CLAIMS, "ns/c") is None, "claim gone")
    await world.until_phase(names.VOLUMES, made["metadata"]["name"], "Released")
    world.delete(names.VOLUMES, made["metadata"]["name"])
    await world.until(
        lambda: world.get(names.VOLUMES, made["metadata"]["name"]) is None, "volume gone"
    )


async def test_a_late_claim_follows_its_pod_and_is_kept_while_in_use(world: World) -> None:
    late = manifests.storage_class(volumeBindingMode="WaitForFirstConsumer")
    world.create(names.CLASSES, late)
    world.ready_node("n1")
    world.create(names.CLAIMS, manifests.claim())
    world.create(names.PODS, manifests.pod(claims=("c",)))

    def selected() -> str | None:
        return facts.annotation(world.get(names.CLAIMS, "ns/c") or {}, names.SELECTED_NODE)

    await world.until(lambda: selected() == "n1", "node selected")
    it = world.get(names.CLAIMS, "ns/c")
    assert it is not None
    world.provision(it)
    await world.until(
        lambda: facts.node_name(world.get(names.PODS, "ns/p") or {"spec": {}}) == "n1", "pod bound"
    )
    world.delete(names.CLAIMS, "ns/c")
    assert world.get(names.CLAIMS, "ns/c") is not None
    world.delete(names.PODS, "ns/p", grace=0)
    await world.until(lambda: world.get(names.CLAIMS, "ns/c") is None, "claim gone")


async def test_a_refused_node_is_replaced_by_another(world: World) -> None:
    world.create(names.CLASSES, manifests.storage_class(volumeBindingMode="WaitForFirstConsumer"))
    for name in ("n1", "n2"):
        world.ready_node(name)
    world.create(names.CLAIMS, manifests.claim())
    world.create(names.PODS, manifests.pod(claims=("c",)))

    def selected() -> str | None:
        return facts.annotation(world.get(names.CLAIMS, "ns/c") or {}, names.SELECTED_NODE)

    await world.until(selected, "node selected")
    assert selected() == "n1"
    gone = {"metadata": {"annotations": {names.SELECTED_NODE: None}}}
    world.patch(names.CLAIMS, "ns/c", gone)
    await world.until(lambda: selected() == "n2", "other node selected")


async def test_volumes_are_attached_for_pods_and_detached_after_them(world: World) -> None:
    world.create(names.CLASSES, manifests.storage_class())
    world.ready_node("n1")
    it = world.create(names.CLAIMS, manifests.claim())
    made = world.provision(it)
    world.create(names.PODS, manifests.pod(claims=("c",)))
    resource = world.api.resource(*names.ATTACHMENTS)
    await world.until(lambda: world.api.list(resource), "attachment")
    (attachment,) = world.api.list(resource)
    assert attachment["spec"]["source"] == {"persistentVolumeName": made["metadata"]["name"]}
    key = attachment["metadata"]["name"]
    world.patch(names.ATTACHMENTS, key, {"status": {"attached": True}}, "status")
    unique = f"kubernetes.io/csi/{DRIVER}^handle-{made['metadata']['name']}"

    def attached() -> list[str]:
        node = world.get(names.NODES, "n1") or {}
        return [one["name"] for one in node["status"].get("volumesAttached") or ()]

    await world.until(lambda: attached() == [unique], "node lists the volume")
    world.patch(names.NODES, "n1", {"status": {"volumesInUse": [unique]}}, "status")
    world.delete(names.PODS, "ns/p", grace=0)
    assert world.api.list(resource)
    world.patch(names.NODES, "n1", {"status": {"volumesInUse": None}}, "status")
    await world.until(lambda: not world.api.list(resource), "detached")
    await world.until(lambda: attached() == [], "node lists nothing")


async def test_owners_and_namespaces_take_their_content_along(world: World) -> None:
    template = {"spec": manifests.claim()["spec"]}
    it = manifests.pod()
    it["spec"]["volumes"] = [{"name": "s", "ephemeral": {"volumeClaimTemplate": template}}]
    world.create(names.PODS, it)
    await world.until(lambda: world.get(names.CLAIMS, "ns/p-s"), "ephemeral claim")
    world.delete(names.PODS, "ns/p")
    await world.until(lambda: world.get(names.CLAIMS, "ns/p-s") is None, "claim gone with its pod")
    world.create(names.CLAIMS, manifests.claim())
    world.create(names.PODS, manifests.pod(claims=("c",)))
    world.delete(names.NAMESPACES, "ns")
    await world.until(lambda: world.get(names.NAMESPACES, "ns") is None, "namespace gone")
    assert world.get(names.CLAIMS, "ns/c") is None


async def test_a_burst_of_claims_is_bound(world: World) -> None:
    count = 1000
    world.create(names.CLASSES, manifests.storage_class())
    for number in range(count):
        it = world.create(names.CLAIMS, manifests.claim(f"c{number}"))
        world.provision(it)
        if number % 50 == 0:
            await asyncio.sleep(0)
    await world.until_phase(names.CLAIMS, f"ns/c{count - 1}", "Bound")
    resource = world.api.resource(*names.CLAIMS)
    assert all(facts.phase(one) == "Bound" for one in world.api.list(resource))


async def test_what_an_earlier_process_left_is_taken_up() -> None:
    world = World()
    world.create(names.CLASSES, manifests.storage_class())
    world.ready_node("n1")
    it = world.create(names.CLAIMS, manifests.claim())
    world.provision(it)
    world.create(names.PODS, manifests.pod(claims=("c",)))
    dangling = manifests.owner(manifests.pod("gone"))
    world.create(names.CLAIMS, manifests.claim("orphan", ownerReferences=[dangling]))
    world.create(names.NAMESPACES, {"metadata": {"name": "going"}})
    world.delete(names.NAMESPACES, "going")
    async with _running(world):
        await world.until_phase(names.CLAIMS, "ns/c", "Bound")
        await world.until(
            lambda: facts.node_name(world.get(names.PODS, "ns/p") or {"spec": {}}) == "n1", "placed"
        )
        await world.until(lambda: world.get(names.CLAIMS, "ns/orphan") is None, "orphan gone")
        await world.until(lambda: world.get(names.NAMESPACES, "going") is None, "namespace gone")
