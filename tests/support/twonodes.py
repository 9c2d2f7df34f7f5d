"""Two nodes of a cluster with a driver on each, and what a test does with pods and claims there."""

import asyncio
from typing import Any

from support import cluster as clusters
from support import manifests, waiting, workloads

Obj = dict[str, Any]
STORAGE = "/apis/storage.k8s.io/v1"
VOLUMES = "/api/v1/persistentvolumes"


class TwoNodes:
    """The nodes, their drivers, and the objects of one test. Starting the programs is its own."""

    def __init__(self, cluster: clusters.Cluster) -> None:
        self.cluster = cluster
        self.nodes: list[clusters.Node] = []
        self.drivers: dict[str, clusters.Driver] = {}
        self._base = f"/api/v1/namespaces/{cluster.namespace}"

    async def prepare(self) -> None:
        """Make the driver's object and classes, and wait until both nodes offer the driver."""
        name = self.cluster.driver_name
        driver = manifests.csi_driver(name, attachRequired=False)
        await self.cluster.request("POST", f"{STORAGE}/csidrivers", manifests.fresh(driver))
        for binding in ("WaitForFirstConsumer", "Immediate"):
            body = manifests.storage_class(
                self.class_name(binding),
                provisioner=name,
                volumeBindingMode=binding,
                parameters={"backend": "image", "csi.storage.k8s.io/fstype": "ext4"},
            )
            await self.cluster.request("POST", f"{STORAGE}/storageclasses", manifests.fresh(body))
        for node in self.nodes:
            await self._registered(node)

    def class_name(self, binding: str) -> str:
        """Name of the class with a binding mode."""
        return f"{self.cluster.namespace}-{binding.lower()}"

    async def _registered(self, node: clusters.Node) -> None:
        name = self.cluster.driver_name
        await self.cluster.wait_for(
            f"{STORAGE}/csinodes/{node.name}",
            lambda it: it and name in {one["name"] for one in it["spec"].get("drivers") or ()},
            f"driver on {node.name}",
        )

    async def claim(self, name: str, binding: str) -> None:
        """Create a claim."""
        body = manifests.claim(name, size="16Mi", storageClassName=self.class_name(binding))
        body["metadata"] = {"name": name, "namespace": self.cluster.namespace}
        path = f"{self._base}/persistentvolumeclaims"
        await self.cluster.request("POST", path, manifests.fresh(body))

    async def says(self, name: str, script: str, node: clusters.Node | None = None) -> str:
        """Run a pod with the claim of its name at ``/data``, and return its last words."""
        seen = workloads.mounts_of({name: "/data"}, {})
        source = {"persistentVolumeClaim": {"claimName": name}}
        spec: Obj = {
            "restartPolicy": "Never",
            "containers": [workloads.container(script, seen)],
            "volumes": [{"name": name, **source}],
        }
        if node is not None:
            spec["nodeSelector"] = {"kubernetes.io/hostname": node.name}
        body = {"metadata": {"name": name}, "spec": spec}
        await self.cluster.request("POST", f"{self._base}/pods", body)
        found = await self.cluster.wait_for(
            f"{self._base}/pods/{name}",
            lambda it: it["status"].get("phase") in ("Succeeded", "Failed"),
            f"the end of {name}",
            timeout=40.0,
        )
        state = found["status"]["containerStatuses"][0]["state"]["terminated"]
        assert state["exitCode"] == 0, found["status"]
        return str(state["message"]).strip()

    async def place(self, name: str) -> str:
        """Return the node that a bound claim's volume can be used on."""
        path = f"{self._base}/persistentvolumeclaims/{name}"
        claim = await self.cluster.wait_for(
            path, lambda it: it["spec"].get("volumeName"), f"{name} is bound"
        )
        volume = await self.cluster.request("GET", f"{VOLUMES}/{claim['spec']['volumeName']}")
        (term,) = volume["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]
        (expression,) = term["matchExpressions"]
        (node,) = expression["values"]
        return str(node)

    async def forget(self, name: str) -> None:
        """Delete a pod, and the claim of its name."""
        for kind in ("pods", "persistentvolumeclaims"):
            await self.cluster.request("DELETE", f"{self._base}/{kind}/{name}")

    def held(self, node: clusters.Node) -> int:
        """Return how many volumes lie on a node's disk; blocks."""
        return len(list((self.drivers[node.name].state_dir / "volumes").glob("*.json")))

    async def clear(self) -> None:
        """Delete pods and claims, and wait until no node holds anything."""
        for kind in ("pods", "persistentvolumeclaims"):
            await self.cluster.request("DELETE", f"{self._base}/{kind}")

        async def is_empty() -> bool:
            counts = [await asyncio.to_thread(self.held, node) for node in self.nodes]
            return sum(counts) == 0

        await waiting.until(is_empty, "no volume left on any node", 40.0)
