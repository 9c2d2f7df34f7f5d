"""kill -9 at each point where a claim's work waits for something: no volume leaks, none doubles.

Each case holds the work at one point (the note of the intent, CreateVolume before and after
the driver's work, the storing of the PersistentVolume before and after it happened), kills the
process there, and lets the next one go on: with the claim still there, or deleted meanwhile.
"""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from support import cluster as clusters
from support import provisioning, waiting
from support.provisioning import Stand
from support.proxy import Fault, When

FAULTS = pytest.mark.embedded(reason="injects faults into the API server")

Reached = Callable[[], Awaitable[None]]
Hold = Callable[[Stand], Awaitable[Reached]]
"""Makes the work stop at one point; returns what waits until it has got there."""

LEASES = "leases.coordination.k8s.io"


async def before_create(stand: Stand) -> Reached:
    stand.csi.inject(Fault("CreateVolume", when=When.BEFORE, hangs=True, times=None))
    return lambda: stand.csi.wait_for("CreateVolume")


async def after_create(stand: Stand) -> Reached:
    stand.csi.inject(Fault("CreateVolume", when=When.AFTER, hangs=True, times=None))

    async def reached() -> None:
        await waiting.until(
            lambda: any(one.done for one in stand.csi.seen("CreateVolume")), "driver's answer"
        )

    return reached


def writing(resource: str, action: str, verb: str = "create") -> Hold:
    async def hold(stand: Stand) -> Reached:
        await stand.cluster.clear_requests()
        match = {"resource": resource, "verb": verb, "userAgent": "csi-provisioner"}
        await stand.cluster.faults(match=match, action=action)
        return lambda: stand.refused(verb, resource)

    return hold


POINTS: dict[str, Hold] = {
    "CreateVolume not begun": before_create,
    "CreateVolume done": after_create,
    "PersistentVolume not stored": writing("persistentvolumes", "drop"),
    "PersistentVolume stored": writing("persistentvolumes", "drop_after"),
}
WITH_LEASE = {"intent not noted": writing(LEASES, "drop", "update"), **POINTS}


def params(points: dict[str, Hold]) -> list[Any]:
    """Mark the points that are reached by faults of the API server."""
    plain = (before_create, after_create)
    return [
        pytest.param(name, marks=() if hold in plain else FAULTS) for name, hold in points.items()
    ]


async def crash_at(hold: Hold, stand: Stand, *words: str) -> None:
    """Begin to provision a claim, and kill the process at a point of it."""
    first = await stand.provisioner(*words)
    reached = await hold(stand)
    await stand.claim("data", await stand.make_class())
    await reached()
    first.kill()
    stand.csi.clear()
    await stand.cluster.clear_faults()


def elected(stand: Stand) -> list[str]:
    """Flags with which intents are kept in a Lease."""
    return ["--leader-election", f"--leader-election-namespace={stand.cluster.namespace}"]


@pytest.mark.parametrize("point", params(POINTS))
async def test_the_next_process_finishes(cluster: clusters.Cluster, point: str) -> None:
    async with provisioning.stand(cluster) as stand:
        await crash_at(POINTS[point], stand)
        await stand.provisioner()
        await stand.bound("data")
        await stand.quiet(1)
        assert len(stand.csi.volumes("CreateVolume")) == 1


@pytest.mark.parametrize("point", params(POINTS))
async def test_a_claim_deleted_meanwhile_leaves_nothing(
    cluster: clusters.Cluster, point: str
) -> None:
    async with provisioning.stand(cluster) as stand:
        await crash_at(POINTS[point], stand)
        await stand.delete_claim("data")
        await stand.provisioner()
        await stand.quiet(0)


@pytest.mark.parametrize("point", params(WITH_LEASE))
async def test_intents_in_a_lease_are_as_good(cluster: clusters.Cluster, point: str) -> None:
    async with provisioning.stand(cluster) as stand:
        await crash_at(WITH_LEASE[point], stand, *elected(stand))
        await stand.delete_claim("data")
        await stand.provisioner(*elected(stand))
        await stand.quiet(0)
        if point == "intent not noted":
            assert stand.csi.count("CreateVolume") == 0


async def test_a_crash_after_all_was_done_begins_nothing_anew(cluster: clusters.Cluster) -> None:
    async with provisioning.stand(cluster) as stand:
        first = await stand.provisioner()
        await stand.claim("data", await stand.make_class())
        await stand.bound("data")
        first.kill()
        await stand.provisioner()
        await stand.quiet(1)
        assert stand.csi.count("CreateVolume") == 1


@FAULTS
async def test_a_crash_in_the_middle_of_deleting_leaves_nothing(
    cluster: clusters.Cluster,
) -> None:
    async with provisioning.stand(cluster) as stand:
        first = await stand.provisioner()
        await stand.claim("data", await stand.make_class())
        await stand.bound("data")
        stand.csi.inject(Fault("DeleteVolume", when=When.AFTER, hangs=True, times=None))
        await stand.delete_claim("data")
        await waiting.until(
            lambda: any(one.done for one in stand.csi.seen("DeleteVolume")), "driver's answer"
        )
        first.kill()
        stand.csi.clear()
        match = {"resource": "persistentvolumes", "verb": "patch", "userAgent": "csi-provisioner"}
        await cluster.clear_requests()
        await cluster.faults(match=match, action="drop")
        second = await stand.provisioner()
        await stand.refused("patch", "persistentvolumes")
        second.kill()
        await cluster.clear_faults()
        await stand.provisioner()
        await stand.quiet(0)


async def test_a_driver_that_restarts_in_the_middle_of_a_call_ends_the_process(
    cluster: clusters.Cluster,
) -> None:
    async with provisioning.stand(cluster) as stand:
        first = await stand.provisioner()
        stand.csi.inject(Fault("CreateVolume", when=When.AFTER, crashes=True))
        await stand.claim("data", await stand.make_class())
        assert await first.wait() == 1
        assert "Lost connection to CSI driver, exiting" in first.output()
        await stand.delete_claim("data")
        await stand.csi.start()
        await stand.provisioner()
        await stand.quiet(0)
