"""Pods on two nodes of a cluster whose volumes one provisioner makes, through one controller."""

import asyncio
import pathlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
from support import cluster as clusters
from support import fleet, manifests, nodeside, pki, waiting, workloads

pytestmark = [pytest.mark.root, pytest.mark.slow]

Obj = dict[str, Any]
STORAGE = "/apis/storage.k8s.io/v1"
VOLUMES = "/api/v1/persistentvolumes"


class Site:
    """Two nodes with their drivers, a controller, and a provisioner beside that alone."""

    def __init__(self, cluster: clusters.Cluster) -> None:
        self.cluster = cluster
        self.nodes: list[clusters.Node] = []
        self.drivers: dict[str, clusters.Driver] = {}
        self._base = f"/api/v1/namespaces/{cluster.namespace}"

    async def start(self, folder: pathlib.Path) -> None:
        """Start everything and wait until both nodes offer the driver."""
        authority = await asyncio.to_thread(pki.Authority, folder)
        name = self.cluster.driver_name
        addresses = []
        for _ in range(2):
            node = await self.cluster.start_node()
            self.nodes.append(node)
            files = await asyncio.to_thread(authority.issue, f"{node.name}.nodes.{name}")
            host = await self._address(node)
            address = f"{host}:{nodeside.free_port()}"
            addresses.append(f"{node.name}={address}")
            words = ["--role=node", f"--listen={address}", *fleet.tls_flags(files)]
            self.drivers[node.name] = await self.cluster.start_driver(
                *words, node=node, backends="image"
            )
        files = await asyncio.to_thread(authority.issue, f"controller.{name}")
        words = [f"--nodes={','.join(addresses)}", *fleet.tls_flags(files)]
        # On a node, as its pod would be: a full Kubernetes has a network of its own.
        controller = await self.cluster.start_driver(
            "--role=controller",
            *words,
            node=self.nodes[0],
            name="controller",
            driver_name=name,
            registration_dir="",
        )
        await self.cluster.start_provisioner(controller)
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

    async def _address(self, node: clusters.Node) -> str:
        """Return where the node's driver can be reached from the controller."""
        if not node.enter:
            return "127.0.0.1"
        found = await self.cluster.request("GET", f"/api/v1/nodes/{node.name}")
        addresses = {one["type"]: one["address"] for one in found["status"]["addresses"]}
        return str(addresses["InternalIP"])

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


@pytest.fixture
async def site(
    no_leaks: None, cluster: clusters.Cluster, tmp_path: pathlib.Path
) -> AsyncIterator[Site]:
    made = Site(cluster)
    await made.start(tmp_path / "pki")
    yield made
    await made.clear()


async def test_pods_on_two_nodes_get_their_volumes_from_one_provisioner(site: Site) -> None:
    first, second = site.nodes
    for node, name in ((first, "one"), (second, "two")):
        await site.claim(name, "WaitForFirstConsumer")
        script = f"echo {name} > /data/f; cat /data/f > /dev/termination-log"
        assert await site.says(name, script, node) == name
        assert await site.place(name) == node.name
        assert await asyncio.to_thread(site.held, node) == 1
    # Bound at once, a volume lies somewhere, and its pod goes there.
    await site.claim("three", "Immediate")
    place = await site.place("three")
    assert place in {first.name, second.name}
    await site.says("three", "echo x > /data/f; cat /data/f > /dev/termination-log")
    pod = await site.cluster.request(
        "GET", f"/api/v1/namespaces/{site.cluster.namespace}/pods/three"
    )
    assert pod["spec"]["nodeName"] == place
