"""Faults that upstream's tracker knows (#1469, #1235, #1217, #1574), and that ours must not have.

#486, the volume leaked by a crash, has ``test_provisioner_crash`` for itself.
"""

import pytest
from support import cluster as clusters
from support import provisioning, waiting
from support.proxy import Fault, When
from support.smalldriver import Capability, SmallDriver

FAULTS = pytest.mark.embedded(reason="injects faults into the API server")

OURS = "external-provisioner.volume.kubernetes.io/finalizer"
AGENT = {"userAgent": "csi-provisioner"}


@FAULTS
async def test_an_old_view_of_a_claim_makes_no_second_volume(cluster: clusters.Cluster) -> None:
    """#1469: bound and deleted while the provisioner's watch of claims stands still."""
    async with provisioning.stand(cluster) as stand:
        await stand.provisioner()
        held = stand.csi.inject(Fault("CreateVolume", when=When.AFTER, hangs=True))
        name = await stand.make_class()
        await stand.claim("data", name)
        await stand.csi.wait_for("CreateVolume")
        for verb in ("watch", "list"):
            match = {"resource": "persistentvolumeclaims", "verb": verb, **AGENT}
            await cluster.faults(match=match, action="status", code=503)
        await cluster.drop_watches()
        held.release()
        await stand.bound("data")
        await stand.delete_claim("data")
        await stand.settled(0)
        body = {"metadata": {"labels": {"touched": "yes"}}}  # has its claims looked at again
        path, kind = f"{provisioning.CLASSES}/{name}", "application/merge-patch+json"
        await cluster.request("PATCH", path, body, content_type=kind)
        found = await stand.decided("data", "WaitFor")
        assert "old view" in found.reason
        await cluster.clear_faults()
        await stand.quiet(0)
        assert stand.csi.count("CreateVolume") == 1


@FAULTS
async def test_an_object_that_is_slow_to_go_is_not_deleted_twice(
    cluster: clusters.Cluster,
) -> None:
    """#1235: the object's deletion is seen while its finalizer is still being taken off."""
    async with provisioning.stand(cluster) as stand:
        await stand.provisioner()
        await stand.claim("data", await stand.make_class())
        await stand.bound("data")
        match = {"resource": "persistentvolumes", "verb": "patch", **AGENT}
        await cluster.clear_requests()
        await cluster.faults(match=match, action="drop", times=2)
        await cluster.faults(match=match, action="delay", delay=0.3, times=1)
        await stand.delete_claim("data")
        await stand.refused("patch", "persistentvolumes", times=2)
        await stand.quiet(0)
        assert stand.csi.count("DeleteVolume") == 1


@FAULTS
async def test_a_finalizer_of_someone_else_survives_an_old_view(cluster: clusters.Cluster) -> None:
    """#1217: finalizers change between our look and our write."""
    async with provisioning.stand(cluster) as stand:
        await stand.provisioner()
        await stand.claim("data", await stand.make_class())
        volume = await stand.bound("data")
        path = f"{provisioning.VOLUMES}/{volume['metadata']['name']}"
        match = {"resource": "persistentvolumes", "verb": "patch", **AGENT}
        await cluster.clear_requests()
        await cluster.faults(match=match, action="delay", delay=0.7, times=1)
        retain = {"spec": {"persistentVolumeReclaimPolicy": "Retain"}}
        kind = "application/merge-patch+json"
        await cluster.request("PATCH", path, retain, content_type=kind)
        others = ["example.com/attacher", *volume["metadata"]["finalizers"]]
        body = {"metadata": {"finalizers": others}}
        await cluster.request("PATCH", path, body, content_type=kind)
        found = await cluster.wait_for(
            path, lambda one: OURS not in one["metadata"]["finalizers"], "our finalizer off"
        )
        assert found["metadata"]["finalizers"] == [one for one in others if one != OURS]


async def test_an_attached_volume_is_told_once_and_woken_by_its_detachment(
    cluster: clusters.Cluster,
) -> None:
    """#1574: no flood of warnings while a volume waits for its detachment."""
    socket = cluster.directory / "csi.sock"
    small = SmallDriver(str(socket), cluster.driver_name, Capability.PUBLISH_UNPUBLISH_VOLUME)
    async with provisioning.stand(cluster) as stand, small:
        process = await cluster.start_provisioner(socket, "--retry-interval-start=10ms")
        await process.wait_for_output(provisioning.STARTED)
        await stand.claim("data", await stand.make_class())
        volume = (await stand.bound("data"))["metadata"]["name"]
        attachments = "/apis/storage.k8s.io/v1/volumeattachments"
        attachment = {
            "metadata": {"name": f"{cluster.namespace}-va", "finalizers": ["example.com/attached"]},
            "spec": {
                "attacher": cluster.driver_name,
                "nodeName": "node-1",
                "source": {"persistentVolumeName": volume},
            },
        }
        await cluster.request("POST", attachments, attachment)
        await stand.delete_claim("data")
        text = f"persistentvolume {volume} is still attached to node node-1, waiting for detach"
        event = await stand.event(volume, text, "default")
        assert (event["type"], event["reason"], event["count"]) == ("Normal", "VolumeDelete", 1)
        assert small.deleted == []
        path = f"{attachments}/{cluster.namespace}-va"
        await cluster.request("DELETE", path)
        body = {"metadata": {"finalizers": None}}
        await cluster.request("PATCH", path, body, content_type="application/merge-patch+json")
        await waiting.until(lambda: small.deleted == [volume], "DeleteVolume")
        await cluster.wait_for(
            f"{provisioning.VOLUMES}/{volume}", lambda one: one is None, "no object"
        )
        events = await stand.events(volume, "default")
        assert [(one["reason"], one["count"]) for one in events] == [("VolumeDelete", 1)]
