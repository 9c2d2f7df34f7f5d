"""Pods with volumes: what scheduler, attach controller, kubelet and driver do, in its order.

The expectations are what Kubernetes' own programs do; the embedded cluster has to do the same.
"""

import contextlib
import re
from collections.abc import AsyncIterator
from typing import Any

import pytest
from support import manifests, provisioning, traces, waiting
from support import tracefragments as fragments
from support.cluster import Cluster

pytestmark = pytest.mark.root
ATTACHMENTS = "/apis/storage.k8s.io/v1/volumeattachments"
DRIVERS = "/apis/storage.k8s.io/v1/csidrivers"
MERGE = "application/merge-patch+json"
CALL = re.compile(r'"GRPC call".*/csi\.v1\.\w+/(\w*Volume)\b')
ASKS = ("Create", "Delete", "Stage", "Publish", "Unpublish", "Unstage")
Obj = dict[str, Any]


class Stand:
    """A node with the driver, a provisioner, and a class that waits for its first consumer."""

    def __init__(self, cluster: Cluster, trace: traces.Recording) -> None:
        self.cluster = cluster
        self.trace = trace
        space = f"/api/v1/namespaces/{cluster.namespace}"
        self.pod = f"{space}/pods/user"
        self.claim = f"{space}/persistentvolumeclaims/data"
        self.class_name = f"{cluster.namespace}-late"
        trace.names[self.class_name] = "CLASS"

    async def start(self, *, attaches: bool = False) -> None:
        """Start it all; the driver is on its node when this returns."""
        cluster = self.cluster
        self.node = await cluster.start_node()
        self.trace.names[self.node.name] = "NODE"
        about = manifests.csi_driver(cluster.driver_name, attachRequired=attaches)
        await cluster.request("POST", DRIVERS, manifests.fresh(about))
        self.driver = await cluster.start_driver("--v=5", node=self.node)
        await cluster.start_provisioner(self.driver)
        body = {
            "metadata": {"name": self.class_name},
            "provisioner": cluster.driver_name,
            "volumeBindingMode": "WaitForFirstConsumer",
        }
        await cluster.request("POST", provisioning.CLASSES, body)
        await self.registered(there=True)

    async def registered(self, *, there: bool) -> None:
        """Wait until the driver is on its node, or no more."""

        def check(found: Obj) -> bool:
            names = {one["name"] for one in found["spec"].get("drivers") or ()}
            return (self.cluster.driver_name in names) is there

        path = f"/apis/storage.k8s.io/v1/csinodes/{self.node.name}"
        await self.cluster.wait_for(path, check, f"driver on its node: {there}")

    async def make_claim(self) -> None:
        body = manifests.claim("data", size="1Mi", storageClassName=self.class_name)
        body["metadata"]["namespace"] = self.cluster.namespace
        path = self.claim.removesuffix("/data")
        await self.cluster.request("POST", path, manifests.fresh(body))

    async def run_pod(self, volume: Obj) -> None:
        """Make a pod that mounts the volume; its process ends only by being killed."""
        container = {
            "name": "main",
            "image": "busybox:1.37",
            "imagePullPolicy": "Never",
            "command": ["sh", "-c", "trap '' TERM; while :; do sleep 1; done"],
            "volumeMounts": [{"name": "v", "mountPath": "/data"}],
        }
        spec = {
            "containers": [container],
            "volumes": [{"name": "v", **volume}],
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 1,
            "nodeSelector": {"kubernetes.io/hostname": self.node.name},
        }
        path = self.pod.removesuffix("/user")
        await self.cluster.request("POST", path, {"metadata": {"name": "user"}, "spec": spec})

    async def runs(self) -> None:
        """Wait until the pod runs."""
        await self.cluster.wait_for(
            self.pod, lambda it: it["status"].get("phase") == "Running", "a running pod", 40.0
        )

    async def delete(self, path: str) -> None:
        await self.cluster.request("DELETE", path)

    async def gone(self, path: str) -> None:
        await self.cluster.wait_for(path, lambda it: it is None, f"{path} gone", 30.0)

    async def attachment(self, check: Any, what: str) -> str:
        """Wait until this test's attachment is as wanted; return its path."""

        async def found() -> Obj | None:
            items = (await self.cluster.request("GET", ATTACHMENTS))["items"]
            mine = (one for one in items if one["spec"]["attacher"] == self.cluster.driver_name)
            return next((one for one in mine if check(one)), None)

        one = await waiting.until(found, what, 40.0)
        return f"{ATTACHMENTS}/{one['metadata']['name']}"

    async def clean(self) -> None:
        """Remove what outlives the test's namespace."""
        await self.delete(f"{provisioning.CLASSES}/{self.class_name}")
        await self.delete(f"{DRIVERS}/{self.cluster.driver_name}")

    def calls(self) -> list[str]:
        """Return what the driver was asked about volumes, in order."""
        found = CALL.findall(self.driver.process.output())
        return [name for name in found if any(word in name for word in ASKS)]


@contextlib.asynccontextmanager
async def standing(cluster: Cluster, *, attaches: bool = False) -> AsyncIterator[Stand]:
    trace = traces.Recording(cluster)
    stand = Stand(cluster, trace)
    await stand.start(attaches=attaches)
    async with trace.running():
        yield stand
    await stand.clean()


PLACED = """
pod user
    nodeName=NODE
    scheduled
"""
RUNS = """
pod user by kubelet/status
    phase=Running
"""
ENDS = """
pod user by kubelet/status
    phase=Failed
pod user
    gone
"""
NEW_POD = """
pod user by bitts-tests
    new
    phase=Pending
"""
ATTACHED = """
attachment ATTACHMENT by kube-controller-manager
    new
    attacher=DRIVER
    node=NODE
    volume=VOLUME
    attached=False
attachment ATTACHMENT by bitts-tests
    finalizer example.com/attacher
attachment ATTACHMENT by bitts-tests/status
    attached=True
node NODE by kube-controller-manager/status
    attached kubernetes.io/csi/DRIVER^*
~node NODE by kubelet/status
    in use kubernetes.io/csi/DRIVER^*
"""
DETACHED = """
pod user
    deletion asked for
pod user by kubelet/status
    phase=Failed
~pod user
    gone
node NODE
    -in use kubernetes.io/csi/DRIVER^*
node NODE
    -attached kubernetes.io/csi/DRIVER^*
attachment ATTACHMENT
    deletion asked for
attachment ATTACHMENT
    gone
"""
MOUNTED = ["CreateVolume", "NodeStageVolume", "NodePublishVolume"]
TAKEN_AWAY = ["NodeUnpublishVolume", "NodeUnstageVolume", "DeleteVolume"]


async def test_a_driver_comes_to_its_node_and_leaves(cluster: Cluster) -> None:
    trace = traces.Recording(cluster)
    stand = Stand(cluster, trace)
    async with trace.running():
        await stand.start()
        await stand.driver.process.stop()
        await stand.registered(there=False)
        await trace.check(
            """
            node NODE by kubelet/status
                csi.volume.kubernetes.io/nodeid of DRIVER=NODE
                label topology.DRIVER/node=NODE
            drivers of NODE by kubelet
                driver DRIVER as NODE=topology.DRIVER/node
            drivers of NODE by kubelet
                -driver DRIVER as NODE
            node NODE
                -csi.volume.kubernetes.io/nodeid of DRIVER
            """
        )
    await stand.clean()


async def test_a_claim_in_use_outlives_its_deletion_until_the_pod_has_gone(
    cluster: Cluster,
) -> None:
    async with standing(cluster) as stand:
        await stand.make_claim()
        await stand.trace.told("data", "persistentvolume-controller Normal WaitForFirstConsumer")
        await stand.run_pod({"persistentVolumeClaim": {"claimName": "data"}})
        await stand.runs()
        await stand.delete(stand.claim)
        await stand.delete(stand.pod)
        await stand.trace.check(
            fragments.claimed(),
            NEW_POD,
            """
            claim data by kube-scheduler
                volume.kubernetes.io/selected-node=NODE
            """,
            fragments.provisioned(),
            PLACED,
            RUNS,
            """
            claim data
                deletion asked for
            pod user
                deletion asked for
            """,
            ENDS,
            fragments.claim_gone(),
            fragments.VOLUME_DELETED,
        )
        assert stand.calls() == [*MOUNTED, *TAKEN_AWAY]
        kubelet = [f"kubelet Normal {word}" for word in ("Created", "Started", "Killing")]
        await stand.trace.told("user", "default-scheduler Normal Scheduled", *kubelet)


async def test_an_ephemeral_volume_lives_as_long_as_its_pod(cluster: Cluster) -> None:
    async with standing(cluster) as stand:
        spec = {
            "storageClassName": stand.class_name,
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Mi"}},
        }
        await stand.run_pod({"ephemeral": {"volumeClaimTemplate": {"spec": spec}}})
        await stand.runs()
        await stand.delete(stand.pod)
        await stand.trace.check(
            NEW_POD,
            """
            claim user-v by kube-controller-manager
                new
                class=CLASS
                phase=Pending
                finalizer kubernetes.io/pvc-protection
                owner Pod/user=controller blockOwnerDeletion
            claim user-v by kube-scheduler
                volume.kubernetes.io/selected-node=NODE
            """,
            fragments.provisioned("user-v"),
            PLACED,
            RUNS,
            """
            pod user
                deletion asked for
            """,
            ENDS,
            fragments.claim_deleted("user-v"),
            fragments.VOLUME_DELETED,
        )
        assert stand.calls() == [*MOUNTED, *TAKEN_AWAY]
        await stand.trace.told("user-v", "persistentvolume-controller Normal WaitForPodScheduled")


async def test_a_volume_is_attached_before_use_and_detached_after(cluster: Cluster) -> None:
    async with standing(cluster, attaches=True) as stand:
        await stand.make_claim()
        await stand.run_pod({"persistentVolumeClaim": {"claimName": "data"}})
        attachment = await stand.attachment(bool, "an attachment")
        guard = {"metadata": {"finalizers": ["example.com/attacher"]}}
        await cluster.request("PATCH", attachment, guard, content_type=MERGE)
        body = {"status": {"attached": True}}
        await cluster.request("PATCH", f"{attachment}/status", body, content_type=MERGE)
        await stand.runs()
        await stand.trace.told("user", "attachdetach-controller Normal SuccessfulAttachVolume")
        await stand.delete(stand.pod)
        await stand.attachment(lambda it: "deletionTimestamp" in it["metadata"], "a detachment")
        assert stand.calls() == [*MOUNTED, *TAKEN_AWAY[:-1]]
        let_go = {"metadata": {"finalizers": None}}
        await cluster.request("PATCH", attachment, let_go, content_type=MERGE)
        await stand.delete(stand.claim)
        await stand.trace.check(
            fragments.claimed(),
            NEW_POD,
            """
            claim data by kube-scheduler
                volume.kubernetes.io/selected-node=NODE
            """,
            fragments.provisioned(),
            PLACED,
            ATTACHED,
            RUNS,
            DETACHED,
            fragments.claim_deleted(),
            fragments.VOLUME_DELETED,
        )
        done = [(step.subject, step.what) for step in await stand.trace.steps()]
        in_use = next(place for place, (_, what) in enumerate(done) if what[0].startswith("in use"))
        assert in_use < done.index(("pod user", ("phase=Running",)))
