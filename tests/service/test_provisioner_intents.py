"""The intent journal in a Lease: taken over by one process at a time, robust against others."""

import contextlib

import pytest
from bitts.kube import errors
from csi_provisioner.intents import StoreUnusableError
from csi_provisioner.stores import LeaseStore
from support import cluster as clusters

FAULTS = pytest.mark.embedded(reason="injects faults into the API server")

LEASES = "leases.coordination.k8s.io"
DRIVER = "csi.example.com"


async def store(cluster: clusters.Cluster, identity: str) -> LeaseStore:
    return LeaseStore(await cluster.client(), cluster.namespace, DRIVER, identity)


def path(cluster: clusters.Cluster) -> str:
    return (
        f"/apis/coordination.k8s.io/v1/namespaces/{cluster.namespace}"
        "/leases/csi-example-com-intents"
    )


async def test_a_successor_takes_over_and_the_former_holder_is_fenced(
    cluster: clusters.Cluster,
) -> None:
    first, second = await store(cluster, "first"), await store(cluster, "second")
    assert await first.read() == b""
    await first.write(b"[1]")
    await first.write(b"[1,2]")
    assert await second.read() == b"[1,2]"
    with pytest.raises(errors.Conflict):
        await first.write(b"[3]")
    await second.write(b"[4]")
    assert await (await store(cluster, "third")).read() == b"[4]"


async def test_the_first_leader_of_all_fences_too(cluster: clusters.Cluster) -> None:
    first, second = await store(cluster, "first"), await store(cluster, "second")
    assert await second.read() == b""
    with pytest.raises(errors.Conflict):
        await first.write(b"[1]")
    await second.write(b"[2]")


async def test_changes_by_others_are_no_obstacle(cluster: clusters.Cluster) -> None:
    mine = await store(cluster, "mine")
    await mine.write(b"[1]")
    body = {"metadata": {"labels": {"touched": "yes"}}}
    kind = "application/merge-patch+json"
    await cluster.request("PATCH", path(cluster), body, content_type=kind)
    await mine.write(b"[2]")
    await cluster.request("DELETE", path(cluster))
    await mine.write(b"[3]")
    assert await (await store(cluster, "next")).read() == b"[3]"


@FAULTS
async def test_a_write_whose_answer_was_lost_is_made_up_for(cluster: clusters.Cluster) -> None:
    mine = await store(cluster, "mine")
    await mine.write(b"[1]")
    match = {"resource": LEASES, "verb": "update"}
    await cluster.faults(match=match, action="drop_after", times=1)
    with contextlib.suppress(errors.TransportError):
        await mine.write(b"[2]")
    await mine.write(b"[3]")
    assert await (await store(cluster, "next")).read() == b"[3]"


@FAULTS
async def test_missing_permissions_are_named(cluster: clusters.Cluster) -> None:
    mine = await store(cluster, "mine")
    await cluster.faults(match={"resource": LEASES}, action="status", code=403)
    with pytest.raises(StoreUnusableError, match="grant get, create and update on leases"):
        await mine.read()
    with pytest.raises(StoreUnusableError, match="another --intent-journal"):
        await mine.write(b"[1]")


async def test_more_than_a_lease_holds_is_refused_before_it_is_sent(
    cluster: clusters.Cluster,
) -> None:
    noise = b"".join(hash(str(number)).to_bytes(9, "big", signed=True) for number in range(60_000))
    with pytest.raises(StoreUnusableError, match="do not fit into a Lease"):
        await (await store(cluster, "mine")).write(noise)
