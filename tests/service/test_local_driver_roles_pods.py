"""Pods on two nodes of a cluster whose volumes one provisioner makes, through one controller."""

import asyncio
import pathlib
from collections.abc import AsyncIterator

import pytest
from support import cluster as clusters
from support import fleet, pki, ports, twonodes

pytestmark = [pytest.mark.root, pytest.mark.slow]


class Site(twonodes.TwoNodes):
    """Two nodes with their drivers, a controller, and a provisioner beside that alone."""

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
            address = f"{host}:{ports.free()}"
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
        await self.prepare()

    async def _address(self, node: clusters.Node) -> str:
        """Return where the node's driver can be reached from the controller."""
        if not node.enter:
            return "127.0.0.1"
        found = await self.cluster.request("GET", f"/api/v1/nodes/{node.name}")
        addresses = {one["type"]: one["address"] for one in found["status"]["addresses"]}
        return str(addresses["InternalIP"])


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
