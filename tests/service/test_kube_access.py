"""bitts.kube against an API server with real semantics: watches, patches, leases, events."""

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator, Mapping

import pytest
from bitts.kube import cache as caches
from bitts.kube import errors, events, finalizers, kinds, leases, objects, patches, reflector
from support import cluster as clusters
from support import waiting

FAULTS = pytest.mark.embedded(reason="injects faults into the API server")

CLAIMS = kinds.PERSISTENT_VOLUME_CLAIMS
OURS = "our.example/finalizer"


@contextlib.asynccontextmanager
async def running(name: str, work: object) -> AsyncIterator[asyncio.Task[None]]:
    task: asyncio.Task[None] = asyncio.create_task(work, name=name)  # type: ignore[arg-type]
    try:
        yield task
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError, leases.LeadershipLostError):
            await task


def claim(name: str) -> dict[str, object]:
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
        "storageClassName": "none-such",
    }
    return {"metadata": {"name": name}, "spec": spec}


def volume(name: str) -> dict[str, object]:
    spec = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "persistentVolumeReclaimPolicy": "Retain",
        "storageClassName": "none-such-either",
        "csi": {"driver": "d.example", "volumeHandle": name},
    }
    return {"metadata": {"name": name}, "spec": spec}


@FAULTS
async def test_a_cache_survives_dropped_watches_and_forgotten_history(
    cluster: clusters.Cluster,
) -> None:
    client = await cluster.client()
    space = cluster.namespace
    cache = caches.Cache[objects.PersistentVolumeClaim]()
    feed = reflector.Reflector(client, CLAIMS, cache, namespace=space, first_delay=0.05)
    await client.create(CLAIMS, claim("a"), space)
    async with running("reflector", feed.run()):
        await cache.synced.wait()
        assert f"{space}/a" in cache
        await waiting.until(lambda: feed.figures.watches == 1, "watching")
        await cluster.drop_watches()
        await client.create(CLAIMS, claim("b"), space)
        await waiting.until(lambda: f"{space}/b" in cache, "seen after the drop")
        assert feed.figures.lists == 1, "resumed"
        match = {"verb": "watch", "resource": "persistentvolumeclaims"}
        await cluster.faults(match=match, action="status", code=503)
        await cluster.drop_watches()
        await waiting.until(lambda: feed.figures.failures, "no watch any more")
        await client.delete(CLAIMS, "a", space)
        cache.overlay(await client.create(CLAIMS, claim("c"), space))
        await cluster.expire_history()
        await cluster.clear_faults()
        await waiting.until(lambda: feed.figures.lists == 2, "listed again")
        await waiting.until(lambda: not cache.unconfirmed, "own writes are confirmed")
        await waiting.until(lambda: f"{space}/a" not in cache, "the deletion is seen")
        assert sorted(cache.keys()) == [f"{space}/b", f"{space}/c"]


async def test_finalizers_against_stale_views(cluster: clusters.Cluster) -> None:
    client = await cluster.client()
    name = f"pv-{cluster.namespace}"
    stale = await client.create(kinds.PERSISTENT_VOLUMES, volume(name))
    bare = dataclass_without_finalizers(stale)
    other = patches.merge({"metadata": {"finalizers": ["foreign.example/a"]}})
    await client.patch(kinds.PERSISTENT_VOLUMES, name, other)
    for view in (stale, bare):
        added = await finalizers.ensure(client, kinds.PERSISTENT_VOLUMES, view, OURS)
        assert own(added) == ["foreign.example/a", OURS]
        removed = await finalizers.remove(client, kinds.PERSISTENT_VOLUMES, added, OURS)
        assert removed is not None
        assert own(removed) == ["foreign.example/a"]
    waits = await client.delete(kinds.PERSISTENT_VOLUMES, name, uid=stale.uid)
    assert waits is not None
    assert waits.deleting
    await finalizers.remove(client, kinds.PERSISTENT_VOLUMES, waits, "foreign.example/a")

    async def gone() -> bool:
        try:
            await client.get(kinds.PERSISTENT_VOLUMES, name)
        except errors.NotFound:
            return True
        return False

    await waiting.until(gone, "end of the volume, which the cluster's own finalizer held")


def own(volume: objects.PersistentVolume) -> list[str]:
    """Return the finalizers that the cluster does not put on by itself."""
    return [name for name in volume.metadata.finalizers if not name.startswith("kubernetes.io/")]


def dataclass_without_finalizers(seen: objects.PersistentVolume) -> objects.PersistentVolume:
    metadata = objects.ObjectMeta(
        name=seen.name, uid=seen.uid, resource_version=seen.metadata.resource_version
    )
    return objects.PersistentVolume(metadata=metadata)


async def test_guards_and_names_that_are_taken(cluster: clusters.Cluster) -> None:
    client = await cluster.client()
    space = cluster.namespace
    first = await client.create(CLAIMS, claim("a"), space)
    with pytest.raises(errors.AlreadyExists):
        await client.create(CLAIMS, claim("a"), space)
    changed = await client.patch(CLAIMS, "a", patches.annotations({"x": "1"}), space)
    assert caches.at_least(changed.metadata.resource_version, first.metadata.resource_version)
    stale = patches.annotations({"x": "2"}, resource_version=first.metadata.resource_version)
    with pytest.raises(errors.Conflict):
        await client.patch(CLAIMS, "a", stale, space)
    with pytest.raises(errors.Conflict):
        await client.delete(CLAIMS, "a", space, uid="another")
    with pytest.raises(errors.Invalid):
        await client.create(CLAIMS, {"metadata": {"name": "Not_A_Name"}}, space)


async def test_discovery(cluster: clusters.Cluster) -> None:
    client = await cluster.client()
    assert (await client.server_version()).startswith("v1.")
    assert await client.has_resource("", "v1", "persistentvolumeclaims")
    assert await client.has_resource("storage.k8s.io", "v1", "csinodes")
    assert not await client.has_resource("storage.k8s.io", "v1", "none")
    assert not await client.has_resource("none.example", "v1", "none")


@FAULTS
async def test_a_server_that_asks_to_wait_is_obeyed(cluster: clusters.Cluster) -> None:
    client = await cluster.client()
    match = {"verb": "create", "resource": "persistentvolumeclaims"}
    await cluster.faults(match=match, action="status", code=429, retryAfter=1, times=1)
    await client.create(CLAIMS, claim("a"), cluster.namespace)
    assert client.pacing.figures().overloads == 1


@dataclasses.dataclass(frozen=True)
class Quick:
    namespace: str
    lease_duration: float = 2.0
    renew_deadline: float = 1.5
    retry_period: float = 0.1
    labels: Mapping[str, str] = dataclasses.field(default_factory=dict)


async def test_leadership_is_handed_over_and_told(cluster: clusters.Cluster) -> None:
    client = await cluster.client()
    recorder = events.EventRecorder(client, "lock/host")
    options = Quick(cluster.namespace)
    one = leases.LeaderElection(client, options, "lock.example", "one", recorder=recorder)
    two = leases.LeaderElection(client, options, "lock.example", "two", recorder=recorder)

    async def lead() -> None:
        await asyncio.Event().wait()

    async with running("one", one.run(lead)) as first:
        await waiting.until(lambda: one.is_leader, "one leads")
        async with running("two", two.run(lead)):
            await waiting.until(lambda: two.holder == "one", "two has looked")
            assert not two.is_leader
            first.cancel()
            await waiting.until(lambda: two.is_leader, "two leads")
            lease = await client.get(kinds.LEASES, "lock-example", cluster.namespace)
            assert (lease.spec.holder_identity, lease.spec.lease_transitions) == ("two", 1)
    await recorder.flush(10)
    found = await client.list_all(kinds.EVENTS, cluster.namespace)
    messages = [event.message for event in found.items if event.reason == "LeaderElection"]
    assert sorted(messages) == [
        "one became leader",
        "one stopped leading",
        "two became leader",
        "two stopped leading",
    ]
