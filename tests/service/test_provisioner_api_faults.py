"""An API server in trouble: nothing is lost, and nothing is done twice."""

import asyncio

import pytest
from support import cluster as clusters
from support import provisioning
from support.proxy import Fault, When

FAULTS = pytest.mark.embedded(reason="injects faults into the API server")

AGENT = {"userAgent": "csi-provisioner"}
COUNT = 20


async def make_many(stand: provisioning.Stand, name: str) -> None:
    await asyncio.gather(*(stand.claim(f"data-{number}", name) for number in range(COUNT)))


async def all_bound(stand: provisioning.Stand) -> None:
    await asyncio.gather(*(stand.bound(f"data-{number}", 40) for number in range(COUNT)))


@FAULTS
async def test_a_storm_of_429(cluster: clusters.Cluster) -> None:
    async with provisioning.stand(cluster) as stand:
        await stand.provisioner()
        name = await stand.make_class()
        await cluster.faults(match=AGENT, action="status", code=429, retryAfter=1, times=8)
        await make_many(stand, name)
        await all_bound(stand)
        await stand.quiet(COUNT)
        assert len(stand.csi.volumes("CreateVolume")) == COUNT


@FAULTS
async def test_history_that_expires_and_watches_that_break(cluster: clusters.Cluster) -> None:
    async with provisioning.stand(cluster) as stand:
        await stand.provisioner()
        name = await stand.make_class()
        stand.csi.inject(Fault("CreateVolume", times=None, delay=0.2))
        await make_many(stand, name)
        for _ in range(3):
            await cluster.expire_history()
            await cluster.drop_watches()
            await stand.csi.wait_for("CreateVolume")
        await all_bound(stand)
        for number in range(COUNT):
            await cluster.request("DELETE", f"{stand.claims}/data-{number}")
        await cluster.expire_history()
        await cluster.drop_watches()
        await stand.quiet(0, timeout=40)
        assert stand.csi.count("CreateVolume") == COUNT
        assert stand.csi.count("DeleteVolume") == COUNT


@FAULTS
async def test_conflicts_and_errors_when_writing(cluster: clusters.Cluster) -> None:
    async with provisioning.stand(cluster) as stand:
        await stand.provisioner()
        name = await stand.make_class()
        for verb, code in (("create", 500), ("create", 503), ("patch", 409), ("delete", 500)):
            match = {"resource": "persistentvolumes", "verb": verb, **AGENT}
            await cluster.faults(match=match, action="status", code=code, times=5)
        await make_many(stand, name)
        await all_bound(stand)
        for number in range(COUNT):
            await cluster.request("DELETE", f"{stand.claims}/data-{number}")
        await stand.quiet(0, timeout=40)
        assert len(stand.csi.volumes("CreateVolume")) == COUNT
        assert stand.csi.count("DeleteVolume") == COUNT


@FAULTS
async def test_a_volume_that_cannot_be_stored_outlives_its_claim(
    cluster: clusters.Cluster,
) -> None:
    async with provisioning.stand(cluster) as stand:
        await stand.provisioner("--retry-interval-max=200ms")
        await cluster.clear_requests()
        match = {"resource": "persistentvolumes", "verb": "create", **AGENT}
        await cluster.faults(match=match, action="status", code=500)
        await stand.claim("data", await stand.make_class())
        await stand.event("data", "was created, but saving PersistentVolume")
        await stand.delete_claim("data")
        await stand.refused("create", "persistentvolumes", times=4)
        assert len(await stand.backend()) == 1
        await cluster.clear_faults()
        await stand.quiet(0)
        assert stand.csi.count("CreateVolume") == stand.csi.count("DeleteVolume") == 1


@FAULTS
async def test_a_volume_that_can_never_be_stored_goes_with_its_claim(
    cluster: clusters.Cluster,
) -> None:
    """As with a driver that names places which no node's label can have."""
    async with provisioning.stand(cluster) as stand:
        await stand.provisioner("--retry-interval-max=200ms")
        match = {"resource": "persistentvolumes", "verb": "create", **AGENT}
        await cluster.faults(match=match, action="status", code=422)
        await stand.claim("data", await stand.make_class())
        await stand.event("data", "was created, but saving PersistentVolume")
        assert len(await stand.backend()) == 1
        await stand.delete_claim("data")
        await stand.quiet(0)


async def test_a_stop_finishes_what_is_in_flight(cluster: clusters.Cluster) -> None:
    async with provisioning.stand(cluster) as stand:
        process = await stand.provisioner()
        held = stand.csi.inject(Fault("CreateVolume", when=When.AFTER, hangs=True))
        await stand.claim("data", await stand.make_class())
        await stand.csi.wait_for("CreateVolume")
        stopping = asyncio.create_task(process.stop())
        await process.wait_for_output('"Stopping"')
        held.release()
        assert await stopping == 0
        await stand.bound("data")
        await stand.settled(1)
        left = await asyncio.to_thread((stand.folder / "bitts-csi-provisioner.intents").read_text)
        assert left == "[]"
