"""kill -9 at each point where a claim's work waits for something: no volume leaks, none doubles.

Each case holds the work at one point (a read that the work needs, the note of the intent and
its removal, CreateVolume before and after the driver's work, the storing of the PersistentVolume
before and after it happened), kills the process there, and lets the next one go on: with the
claim still there, or deleted meanwhile.
"""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from support import cluster as clusters
from support import processes, provisioning, waiting
from support.provisioning import Stand
from support.proxy import Fault, When

FAULTS = pytest.mark.embedded(reason="injects faults into the API server")

Reached = Callable[[], Awaitable[object]]
Hold = Callable[[Stand, processes.Process], Awaitable[Reached]]
"""Makes the work stop at one point; returns what waits until it has got there."""

LEASES = "leases.coordination.k8s.io"
ATTRIBUTES = "volumeattributesclasses.storage.k8s.io"


async def before_create(stand: Stand, _: processes.Process) -> Reached:
    stand.csi.inject(Fault("CreateVolume", when=When.BEFORE, hangs=True, times=None))
    return lambda: stand.csi.wait_for("CreateVolume")


async def after_create(stand: Stand, _: processes.Process) -> Reached:
    stand.csi.inject(Fault("CreateVolume", when=When.AFTER, hangs=True, times=None))
    return lambda: answered(stand, "CreateVolume")


async def answered(stand: Stand, method: str) -> None:
    """Wait until the driver has done a call."""
    await waiting.until(
        lambda: any(one.done for one in stand.csi.seen(method)), f"the driver's {method}"
    )


def asking(verb: str, resource: str, action: str = "drop") -> Hold:
    """Let no such request of the provisioner through, or no answer to it."""

    async def hold(stand: Stand, _: processes.Process) -> Reached:
        await stand.cluster.clear_requests()
        match = {"resource": resource, "verb": verb, "userAgent": "csi-provisioner"}
        await stand.cluster.faults(match=match, action=action)
        return lambda: stand.refused(verb, resource)

    return hold


async def before_note(stand: Stand, process: processes.Process) -> Reached:
    await asking("update", LEASES)(stand, process)  # the leader's own Lease among them
    return lambda: process.wait_for_output("Writing the intent journal failed")


async def after_note(stand: Stand, process: processes.Process) -> Reached:
    lease = stand.driver.name.replace(".", "-") + "-intents"
    path = f"/apis/coordination.k8s.io/v1/namespaces/{stand.cluster.namespace}/leases/{lease}"

    def noted(found: Any) -> Any:
        return found["metadata"]["annotations"]["bitts.dev/intents"]

    before = noted(await stand.cluster.request("GET", path))
    await asking("update", LEASES, "drop_after")(stand, process)
    return lambda: stand.cluster.wait_for(path, lambda one: noted(one) != before, "a note")


READS: dict[str, Hold] = {
    "VolumeAttributesClass not read": asking("get", ATTRIBUTES),
    "Secret not read": asking("get", "secrets"),
}
NOTES: dict[str, Hold] = {"intent not noted": before_note, "intent noted": after_note}
CALLS: dict[str, Hold] = {
    "CreateVolume not begun": before_create,
    "CreateVolume done": after_create,
    "PersistentVolume not stored": asking("create", "persistentvolumes"),
    "PersistentVolume stored": asking("create", "persistentvolumes", "drop_after"),
}
POINTS = READS | NOTES | CALLS


def points(*groups: dict[str, Hold]) -> list[Any]:
    """Mark the points that are reached by faults of the API server."""
    plain = (before_create, after_create)
    return [
        pytest.param(name, marks=() if hold in plain else FAULTS)
        for group in groups
        for name, hold in group.items()
    ]


async def claim(stand: Stand, point: str) -> None:
    """Make a claim whose work comes past a point."""
    if point not in READS:
        await stand.claim("data", await stand.make_class())
        return
    namespace = stand.cluster.namespace
    secret = {"metadata": {"name": "login"}, "stringData": {"password": "x"}}
    await stand.cluster.request("POST", f"/api/v1/namespaces/{namespace}/secrets", secret)
    parameters = {
        "backend": "image",  # the one that knows attributes
        "csi.storage.k8s.io/provisioner-secret-name": "login",
        "csi.storage.k8s.io/provisioner-secret-namespace": namespace,
    }
    name = await stand.make_class(parameters=parameters)
    attributes = await stand.make_attributes_class(readIops="100")
    await stand.claim("data", name, volumeAttributesClassName=attributes)


async def crash_at(point: str, stand: Stand, *words: str) -> None:
    """Begin to provision a claim, and kill the process at a point of it."""
    first = await stand.provisioner(*words)
    reached = await POINTS[point](stand, first)
    await claim(stand, point)
    await reached()
    first.kill()
    stand.csi.clear()
    await stand.cluster.clear_faults()


def elected(stand: Stand) -> list[str]:
    """Flags with which intents are kept in a Lease."""
    return ["--leader-election", f"--leader-election-namespace={stand.cluster.namespace}"]


@pytest.mark.parametrize("point", points(READS, CALLS))
async def test_the_next_process_finishes(cluster: clusters.Cluster, point: str) -> None:
    async with provisioning.stand(cluster) as stand:
        await crash_at(point, stand)
        await stand.provisioner()
        await stand.bound("data")
        await stand.quiet(1)
        assert len(stand.csi.volumes("CreateVolume")) == 1


@pytest.mark.parametrize("point", points(READS, CALLS))
async def test_a_claim_deleted_meanwhile_leaves_nothing(
    cluster: clusters.Cluster, point: str
) -> None:
    async with provisioning.stand(cluster) as stand:
        await crash_at(point, stand)
        await stand.delete_claim("data")
        await stand.provisioner()
        await stand.quiet(0)


@pytest.mark.parametrize("point", points(NOTES, CALLS))
async def test_intents_in_a_lease_are_as_good(cluster: clusters.Cluster, point: str) -> None:
    async with provisioning.stand(cluster) as stand:
        await crash_at(point, stand, *elected(stand))
        if point in NOTES:
            assert stand.csi.count("CreateVolume") == 0, "nothing is begun without a note"
        await stand.delete_claim("data")
        await stand.provisioner(*elected(stand))
        await stand.quiet(0)


@FAULTS
@pytest.mark.parametrize("hold", [before_note, after_note], ids=["not written", "written"])
async def test_a_crash_while_a_note_is_taken_back_makes_nothing_anew(
    cluster: clusters.Cluster, hold: Hold
) -> None:
    async with provisioning.stand(cluster) as stand:
        first = await stand.provisioner(*elected(stand))
        name = await stand.make_class()
        await stand.claim("data", name)
        await stand.bound("data")
        reached = await hold(stand, first)
        await stand.claim("more", name)  # its note takes the other one's place
        await reached()
        first.kill()
        await stand.cluster.clear_faults()
        await stand.delete_claim("data")
        await stand.provisioner(*elected(stand))
        await stand.bound("more")
        await stand.quiet(1)
        assert stand.csi.count("CreateVolume") == 2
        assert stand.csi.count("DeleteVolume") == 1


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
        await answered(stand, "DeleteVolume")
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


@FAULTS
async def test_a_crash_before_the_secret_of_deleting_was_read_leaves_nothing(
    cluster: clusters.Cluster,
) -> None:
    async with provisioning.stand(cluster) as stand:
        first = await stand.provisioner()
        await claim(stand, "Secret not read")
        await stand.bound("data")
        reached = await POINTS["Secret not read"](stand, first)
        await stand.delete_claim("data")
        await reached()
        assert stand.csi.count("DeleteVolume") == 0
        first.kill()
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
