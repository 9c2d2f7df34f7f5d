"""Upstream's csi-provisioner for ours and back: one Lease, and volumes that are either's."""

import pathlib
from collections.abc import Callable

import pytest
from support import cluster as clusters
from support import processes, provisioning, replicas, waiting
from support.provisioning import Stand
from support.proxy import Fault, When

pytestmark = [pytest.mark.root, pytest.mark.builds("csi-provisioner")]


@pytest.fixture(scope="module")
def upstream() -> pathlib.Path:
    return replicas.upstream()


@pytest.mark.slow
async def test_ours_and_upstream_s_take_turns_on_one_lease(
    cluster: clusters.Cluster, upstream: pathlib.Path
) -> None:
    async with provisioning.stand(cluster) as stand:
        name = await stand.make_class()
        first = replicas.ours(stand, "first")
        await replicas.leading(first)
        theirs = replicas.upstreams(stand, "theirs", upstream)
        await theirs.wait_for_output("Attempting to acquire leader lease")
        await stand.claim("ours", name)
        ours = await stand.bound("ours")
        await replicas.holds(stand, "first")
        assert await first.stop() == 0

        await replicas.holds(stand, "theirs")
        second = replicas.ours(stand, "second")
        await second.wait_for_output('"Waiting for leadership"')
        await stand.delete_claim("ours")
        await stand.settled(0)
        await stand.claim("theirs", name)
        made = await stand.bound("theirs")
        assert provisioning.STARTED not in second.output()
        await theirs.stop()

        await replicas.leading(second)
        await replicas.holds(stand, "second")
        await stand.delete_claim("theirs")
        await stand.settled(0)
        calls = [(one.method, one.volume) for one in stand.csi.calls if "Volume" in one.method]
        handles = [one["spec"]["csi"]["volumeHandle"] for one in (ours, made)]
        deleted = [volume for method, volume in calls if method == "DeleteVolume"]
        assert list(dict.fromkeys(deleted)) == handles
        assert deleted.count(handles[1]) == 1  # upstream may ask more than once (its #1235)
        assert len(stand.csi.seen("CreateVolume")) == 2
        assert differing(ours, made) == set()


def differing(ours: provisioning.Obj, theirs: provisioning.Obj) -> set[str]:
    """Return what one of two PersistentVolumes has and the other lacks, below each part."""
    found: set[str] = set()
    for part, below in (("metadata", "annotations"), ("spec", "csi"), ("spec", "claimRef")):
        left, right = ours[part], theirs[part]
        found |= (set(left) ^ set(right)) | (set(left[below]) ^ set(right[below]))
    return found | set(ours["metadata"]["finalizers"]) ^ set(theirs["metadata"]["finalizers"])


Start = Callable[[Stand, str, pathlib.Path], processes.Process]


def start_ours(stand: Stand, host: str, _: pathlib.Path) -> processes.Process:
    return replicas.ours(stand, host)


@pytest.mark.parametrize(
    ("former", "latter"),
    [(start_ours, replicas.upstreams), (replicas.upstreams, start_ours)],
    ids=["ours-first", "theirs-first"],
)
async def test_a_volume_that_one_began_is_finished_by_the_other(
    cluster: clusters.Cluster, upstream: pathlib.Path, former: Start, latter: Start
) -> None:
    async with provisioning.stand(cluster) as stand:
        killed = former(stand, "former", upstream)
        await replicas.holds(stand, "former")
        stand.csi.inject(Fault("CreateVolume", when=When.AFTER, hangs=True, times=None))
        await stand.claim("data", await stand.make_class())
        await waiting.until(
            lambda: any(one.done for one in stand.csi.seen("CreateVolume")), "driver's answer"
        )
        killed.kill()
        stand.csi.clear()
        latter(stand, "latter", upstream)
        await stand.bound("data")
        await stand.settled(1)
        assert len(stand.csi.volumes("CreateVolume")) == 1
        await stand.delete_claim("data")
        await stand.settled(0)
