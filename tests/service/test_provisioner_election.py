"""Two replicas, one leader: hand-overs of every kind, with claims deleted in between."""

import asyncio
import signal

import pytest
from support import cluster as clusters
from support import provisioning, waiting
from support.provisioning import Stand
from support.proxy import Fault, When
from support.replicas import leading
from support.replicas import ours as replica

FAULTS = pytest.mark.embedded(reason="injects faults into the API server")

pytestmark = pytest.mark.root  # replicas are told apart by their host names


async def finished(stand: Stand, count: int) -> None:
    """Wait until all is settled and the Lease with the intents is empty."""
    lease = stand.driver.name.replace(".", "-") + "-intents"
    path = f"/apis/coordination.k8s.io/v1/namespaces/{stand.cluster.namespace}/leases/{lease}"
    empty = "eAGLjgUAARUAuQ=="
    await stand.cluster.wait_for(
        path,
        lambda one: one and len(one["metadata"]["annotations"]["bitts.dev/intents"]) <= len(empty),
        "no intents",
    )
    await stand.settled(count)


async def test_one_leads_and_hands_over_at_once_when_it_stops(cluster: clusters.Cluster) -> None:
    async with provisioning.stand(cluster) as stand:
        first = replica(stand, "first")
        await leading(first)
        second = replica(stand, "second")
        await second.wait_for_output('"Waiting for leadership"')
        name = await stand.make_class()
        await stand.claim("data", name)
        await stand.bound("data")
        assert provisioning.STARTED not in second.output()
        assert await first.stop() == 0
        await leading(second)
        await stand.delete_claim("data")
        await finished(stand, 0)
        assert stand.csi.count("DeleteVolume") == 1
        assert await second.stop() == 0


async def test_a_waiting_replica_stops_at_once(cluster: clusters.Cluster) -> None:
    async with provisioning.stand(cluster) as stand:
        await leading(replica(stand, "first"))
        second = replica(stand, "second")
        await second.wait_for_output('"Waiting for leadership"')
        assert await second.stop() == 0


async def test_a_killed_leader_s_work_is_finished_though_the_claim_is_gone(
    cluster: clusters.Cluster,
) -> None:
    async with provisioning.stand(cluster) as stand:
        first = replica(stand, "first")
        await leading(first)
        second = replica(stand, "second")
        stand.csi.inject(Fault("CreateVolume", when=When.AFTER, hangs=True))
        await stand.claim("data", await stand.make_class())
        await waiting.until(
            lambda: any(one.done for one in stand.csi.seen("CreateVolume")), "driver's answer"
        )
        first.kill()
        await stand.delete_claim("data")
        assert len(await stand.backend()) == 1
        await leading(second)
        await finished(stand, 0)


async def test_a_frozen_leader_that_comes_back_does_no_harm(cluster: clusters.Cluster) -> None:
    async with provisioning.stand(cluster) as stand:
        first = replica(stand, "first")
        await leading(first)
        second = replica(stand, "second")
        await second.wait_for_output('"Waiting for leadership"')
        name = await stand.make_class()
        stand.csi.inject(Fault("CreateVolume", when=When.AFTER, delay=0.5))
        await stand.claim("deleted", name)
        await stand.claim("kept", name)
        await stand.csi.wait_for("CreateVolume", times=2)
        first.send_signal(signal.SIGSTOP)
        await stand.delete_claim("deleted")
        await leading(second)
        await stand.bound("kept")
        await finished(stand, 1)
        first.send_signal(signal.SIGCONT)
        assert await first.wait() == 1
        await finished(stand, 1)


@FAULTS
async def test_a_leader_cut_off_from_the_api_server_steps_down(cluster: clusters.Cluster) -> None:
    async with provisioning.stand(cluster) as stand:
        first = replica(stand, "first")
        await leading(first)
        match = {"resource": "leases.coordination.k8s.io", "userAgent": "csi-provisioner"}
        await cluster.faults(match=match, action="status", code=500)
        assert await first.wait() == 1
        assert "leader election lost" in first.output()
        await cluster.clear_faults()
        second = replica(stand, "second")
        await leading(second)
        await stand.claim("data", await stand.make_class())
        await asyncio.gather(stand.bound("data"), stand.settled(1))
