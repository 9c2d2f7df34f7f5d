"""Claims, pods and StatefulSets of one test on a node with a driver, and what is left of them.

What a pod found in its volumes it says by its termination message, which a full Kubernetes and
the embedded cluster both keep in the pod's status.
"""

import asyncio
import contextlib
import pathlib
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from support import cluster as clusters
from support import kubeletside, leaks, peers, processes, servers, waiting

Obj = dict[str, Any]
NOW, LATE, FOLDER = "now", "late", "folder"
"""Classes: ext4 images bound at once, ext4 images that wait for a pod, folders that wait."""
CLASSES = {
    NOW: ("Immediate", {"backend": "image", "csi.storage.k8s.io/fstype": "ext4"}),
    LATE: ("WaitForFirstConsumer", {"backend": "image", "csi.storage.k8s.io/fstype": "ext4"}),
    FOLDER: ("WaitForFirstConsumer", {"backend": "directory"}),
}
IMAGE = "busybox:1.37"
SAY = "> /dev/termination-log"
STAY = "trap 'exit 0' TERM; sleep 1000 & wait"
"""Ends a script whose pod is to go on until it is deleted, and then end at once."""
STORAGE = "/apis/storage.k8s.io/v1"
VOLUMES = "/api/v1/persistentvolumes"
SETTLED = "/btrfs.settled"
"""The driver's note of what its btrfs has written: one for all volumes, and it stays."""
PATIENCE = 40.0
"""Seconds for a kubelet that has tried in vain and doubles its pauses."""


def mounts_of(files: Mapping[str, str], disks: Mapping[str, str]) -> Obj:
    """Return how a container sees volumes: names of volumes to paths."""
    return {
        "volumeMounts": [{"name": name, "mountPath": path} for name, path in files.items()],
        "volumeDevices": [{"name": name, "devicePath": path} for name, path in disks.items()],
    }


def container(script: str, seen: Obj, name: str = "main") -> Obj:
    """Return a container that runs a shell script."""
    command = ["sh", "-ec", script]
    return {"name": name, "image": IMAGE, "command": command, **seen}


class Work:
    """One test's objects in its namespace."""

    def __init__(self, cluster: clusters.Cluster, plugin: kubeletside.Plugin) -> None:
        self.cluster = cluster
        self.plugin = plugin
        base = f"/api/v1/namespaces/{cluster.namespace}"
        self.pods, self.claims = f"{base}/pods", f"{base}/persistentvolumeclaims"
        self.sets = f"/apis/apps/v1/namespaces/{cluster.namespace}/statefulsets"
        self._volumes: set[str] = set()
        self._before: frozenset[str] = frozenset()

    def class_name(self, kind: str) -> str:
        """Name of a class of ``CLASSES`` in this test."""
        return f"{self.cluster.namespace}-{kind}"

    async def prepare(self) -> None:
        """Have a driver in order, its object and its classes."""
        await self.plugin.mend()
        body = {
            "metadata": {"name": self.plugin.name},
            "spec": {
                "attachRequired": False,
                "fsGroupPolicy": "File",
                "preventPodSchedulingIfMissing": True,
            },
        }
        await self.cluster.request("POST", f"{STORAGE}/csidrivers", body)
        for kind, (binding, parameters) in CLASSES.items():
            body = {
                "metadata": {"name": self.class_name(kind)},
                "provisioner": self.plugin.name,
                "volumeBindingMode": binding,
                "parameters": parameters,
            }
            await self.cluster.request("POST", f"{STORAGE}/storageclasses", body)
        await self.registered()
        self._before = await self.left()

    async def registered(self, *, there: bool = True) -> Obj:
        """Wait until the node's CSINode has the driver, or has not; returns its entry."""
        name = self.plugin.name

        def entries(found: Obj | None) -> list[Obj]:
            every = (found or {"spec": {}})["spec"].get("drivers") or []
            return [one for one in every if one["name"] == name]

        found = await self.cluster.wait_for(
            f"{STORAGE}/csinodes/{self.plugin.node}",
            lambda one: bool(entries(one)) is there,
            f"{name} on the CSINode: {there}",
            PATIENCE,
        )
        return entries(found)[0] if there else {}

    async def label(self, value: str) -> None:
        """Set the node's label by which the driver tells where its volumes are."""
        body = {"metadata": {"labels": {f"topology.{self.plugin.name}/node": value}}}
        merge, path = "application/merge-patch+json", f"/api/v1/nodes/{self.plugin.node}"
        await self.cluster.request("PATCH", path, body, content_type=merge)

    def claim_spec(self, kind: str, **spec: Any) -> Obj:
        """Return the specification of a claim."""
        return {
            "storageClassName": self.class_name(kind),
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "32Mi"}},
            **spec,
        }

    async def claim(self, name: str, kind: str, **spec: Any) -> None:
        """Create a claim."""
        body = {"metadata": {"name": name}, "spec": self.claim_spec(kind, **spec)}
        await self.cluster.request("POST", self.claims, body)

    async def bound(self, name: str) -> str:
        """Wait until a claim is bound; returns the name of its volume."""
        found = await self.cluster.wait_for(
            f"{self.claims}/{name}",
            lambda one: one and one["status"].get("phase") == "Bound",
            f"claim {name} is bound",
        )
        return str(found["spec"]["volumeName"])

    async def pod(
        self,
        name: str,
        script: str,
        *,
        files: Sequence[str] = (),
        disks: Sequence[str] = (),
        first: str = "",
        **spec: Any,
    ) -> None:
        """Create a pod that runs a script with claims at ``/NAME`` and ``/dev/NAME``.

        What the script ``first`` does is done by the time the pod runs.
        """
        seen = mounts_of({one: f"/{one}" for one in files}, {one: f"/dev/{one}" for one in disks})
        volumes = [
            {"name": one, "persistentVolumeClaim": {"claimName": one}} for one in (*files, *disks)
        ]
        given = {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 5,
            "initContainers": [container(first, seen, "first")] if first else [],
            "containers": [container(script, seen)],
            "volumes": volumes,
        }
        body = {"metadata": {"name": name}, "spec": {**given, **spec}}
        await self.cluster.request("POST", self.pods, body)

    async def until(
        self, name: str, check: Callable[[Obj], object], what: str, timeout: float = PATIENCE
    ) -> Obj:
        """Wait until a pod is as wanted."""
        path = f"{self.pods}/{name}"
        found: Obj = await self.cluster.wait_for(
            path, lambda one: one and check(one), f"{name}: {what}", timeout
        )
        return found

    async def runs(self, name: str) -> Obj:
        """Wait until a pod's container runs; returns the container's status."""
        found = await self.until(name, is_running, "runs")
        status: Obj = found["status"]["containerStatuses"][0]
        return status

    async def says(self, name: str) -> str:
        """Wait for the good end of a pod; returns its last words."""
        ended = {"Succeeded", "Failed"}
        found = await self.until(name, lambda one: one["status"].get("phase") in ended, "ends")
        state = found["status"]["containerStatuses"][0]["state"]["terminated"]
        assert state["exitCode"] == 0, found["status"]
        return str(state.get("message", "")).strip()

    async def read(self, name: str) -> Obj:
        """Return a pod."""
        found: Obj = await self.cluster.request("GET", f"{self.pods}/{name}")
        return found

    async def uid(self, name: str) -> str:
        """Return a pod's UID."""
        return str((await self.read(name))["metadata"]["uid"])

    async def event(self, name: str, reason: str) -> None:
        """Wait until there is an event about an object."""
        path = f"/api/v1/namespaces/{self.cluster.namespace}/events"

        def told(found: Obj) -> bool:
            events = [one for one in found["items"] if one["reason"] == reason]
            return any(one["involvedObject"]["name"] == name for one in events)

        await self.cluster.wait_for(path, told, f"event {reason} about {name}", PATIENCE)

    async def unmount_failed(self, name: str) -> None:
        """Wait until the node has tried to unmount a pod's volumes, and could not."""
        if not self.plugin.is_kubernetes:
            await self.event(name, "FailedUnMount")
            return
        words = ("UnmountVolume.TearDown failed", await self.uid(name))

        def complained() -> bool:
            lines = self.plugin.complaints().splitlines()
            return any(all(word in line for word in words) for line in lines)

        async def tried() -> bool:
            return await asyncio.to_thread(complained)

        await waiting.until(tried, f"a failed unmount of {name}", PATIENCE)

    async def mounts(self, name: str) -> list[str]:
        """What is mounted for a pod, volumes of the driver only."""
        uid, kinds = await self.uid(name), ("kubernetes.io~csi", "volumeDevices")
        points = await asyncio.to_thread(self.plugin.mounts)
        ours = [point for point in points if any(kind in point for kind in kinds)]
        return sorted(point for point in ours if uid in point)

    def registrations(self) -> list[str]:
        """What the driver has in the kubelet's folder for that. Blocking."""
        names = [path.name for path in self.plugin.place.registry.iterdir()]
        return sorted(name for name in names if self.plugin.name in name)

    async def exec(self, name: str, *command: str) -> str:
        """Run a command in a pod by kubectl; a full Kubernetes only."""
        kubectl = await asyncio.to_thread(peers.tool, "kubectl")
        flags = [f"--kubeconfig={self.cluster.kubeconfig}", f"-n={self.cluster.namespace}"]
        return await processes.run([str(kubectl), *flags, "exec", name, "--", *command])

    async def stateful(self, name: str, script: str, kind: str, *, replicas: int) -> None:
        """Create a StatefulSet whose pods run a script with a volume of their own at ``/data``."""
        labels = {"app": name}
        spec = {
            "terminationGracePeriodSeconds": 5,
            "containers": [container(script, mounts_of({"data": "/data"}, {}))],
        }
        template = {"metadata": {"name": "data"}, "spec": self.claim_spec(kind)}
        body = {
            "metadata": {"name": name},
            "spec": {
                "serviceName": name,
                "replicas": replicas,
                "podManagementPolicy": "Parallel",
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": spec},
                "volumeClaimTemplates": [template],
            },
        }
        await self.cluster.request("POST", self.sets, body)

    async def scale(self, name: str, replicas: int) -> None:
        """Scale a StatefulSet and wait until it has just so many pods, all ready."""
        body = {"spec": {"replicas": replicas}}
        merge = "application/merge-patch+json"
        path = f"{self.sets}/{name}"
        await self.cluster.request("PATCH", path, body, content_type=merge)

        def settled(found: Obj) -> bool:
            status = found["status"]
            is_current = status.get("observedGeneration") == found["metadata"]["generation"]
            counts = (status.get("replicas", 0), status.get("readyReplicas", 0))
            return is_current and counts == (replicas, replicas)

        await self.cluster.wait_for(path, settled, f"{name} has {replicas} pods", PATIENCE)

    async def delete(self, *names: str) -> None:
        """Delete pods and wait until their objects are gone."""
        for name in names:
            await self.cluster.request("DELETE", f"{self.pods}/{name}")
        for name in names:
            await self.gone(f"{self.pods}/{name}")

    async def forget(self, name: str) -> None:
        """Delete a pod's object without asking its node; it is gone at once."""
        await self.cluster.request("DELETE", f"{self.pods}/{name}?gracePeriodSeconds=0")
        await self.gone(f"{self.pods}/{name}")

    async def delete_claims(self, *names: str) -> None:
        """Delete claims and wait until they are gone."""
        for name in names:
            await self.cluster.request("DELETE", f"{self.claims}/{name}")
        for name in names:
            await self.gone(f"{self.claims}/{name}")

    async def gone(self, path: str) -> None:
        """Wait until an object is gone."""
        await self.cluster.wait_for(path, lambda one: one is None, f"{path} is gone", PATIENCE)

    async def clear(self) -> None:
        """Delete what the test left, and wait until nothing of it is anywhere."""
        for path in (self.sets, self.pods, self.claims):
            with contextlib.suppress(servers.RefusedError):  # the embedded cluster has no sets
                await self.cluster.request("DELETE", path)
        try:
            await self.nothing_left()
        finally:
            await self.cluster.request("DELETE", f"{STORAGE}/csidrivers/{self.plugin.name}")
            for kind in CLASSES:
                path = f"{STORAGE}/storageclasses/{self.class_name(kind)}"
                await self.cluster.request("DELETE", path)

    async def nothing_left(self) -> None:
        """Wait until all is as it was before the test."""

        async def as_before() -> bool:
            return not await self.left() - self._before

        try:
            await waiting.until(as_before, "nothing is left", PATIENCE)
        except waiting.DeadlineError as error:
            raise AssertionError(f"left: {sorted(await self.left() - self._before)}") from error

    async def left(self) -> frozenset[str]:
        """Return what there is of volumes: in the cluster, in the kernel and on the disk."""
        name = self.plugin.name
        found = set()
        for volume in (await self.cluster.request("GET", VOLUMES))["items"]:
            if (volume["spec"].get("csi") or {}).get("driver") == name:
                self._volumes.add(volume["metadata"]["name"])
                found.add(f"volume {volume['metadata']['name']}")
        path = f"{STORAGE}/volumeattachments"
        for attachment in (await self.cluster.request("GET", path))["items"]:
            if attachment["spec"]["attacher"] == name:
                found.add(f"attachment {attachment['metadata']['name']}")
        return frozenset(found | await asyncio.to_thread(on_node, self.plugin, self._volumes))


def is_running(pod: Obj) -> bool:
    """Whether a pod's container runs."""
    statuses = pod["status"].get("containerStatuses") or [{"state": {}}]
    return "running" in statuses[0]["state"]


def on_node(plugin: kubeletside.Plugin, volumes: Collection[str]) -> set[str]:
    """What there is of volumes on the plugin's node. Blocking."""
    root, csi = plugin.place.root, plugin.place.root / "plugins/kubernetes.io/csi"
    found = {f"mount {point}" for point in plugin.mounts()}
    ours = (plugin.name, *volumes)  # a file of the driver, or a kubelet's lock on a volume
    loops = [line for line in leaks.loop_devices() if any(name in line for name in ours)]
    found |= {f"loop device {line}" for line in loops}
    devices = csi / "volumeDevices"
    folders = [root / "pods", csi / plugin.name, devices, devices / "staging", devices / "publish"]
    found |= {f"folder {path}" for folder in folders for path in entries(folder)}
    found -= {f"folder {devices}/staging", f"folder {devices}/publish"}  # they stay, empty
    files = (path for path in leaks.files(plugin.place.state) if not str(path).endswith(SETTLED))
    return found | {f"file {path}" for path in files}


def entries(folder: pathlib.Path) -> list[pathlib.Path]:
    """What a folder has, if it is there."""
    return list(folder.iterdir()) if folder.is_dir() else []
