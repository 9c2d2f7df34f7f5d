"""Without a controller: on each node a driver, and upstream's provisioner beside it.

The provisioners share the claims among themselves by the node that the scheduler chose
(--node-deployment), so nothing is ever asked of a driver but what its own node is to hold.
"""

import asyncio
import pathlib
from collections.abc import AsyncIterator

import pytest
from support import cluster as clusters
from support import peers, twonodes, waiting

pytestmark = [pytest.mark.root, pytest.mark.slow, pytest.mark.builds("csi-provisioner")]


@pytest.fixture(scope="module")
def upstream() -> pathlib.Path:
    return peers.tool("csi-provisioner")


class Site(twonodes.TwoNodes):
    """Two nodes, each with a driver and a provisioner of its own."""

    async def start(self, program: pathlib.Path) -> None:
        """Start everything; a provisioner needs its node's CSINode, so that comes first."""
        for _ in range(2):
            node = await self.cluster.start_node()
            self.nodes.append(node)
            self.drivers[node.name] = await self.cluster.start_driver(
                node=node, backends="image", capacity="64Mi"
            )
        await self.prepare()
        for node in self.nodes:
            command = [
                str(program),
                f"--csi-address={self.drivers[node.name].socket}",
                f"--kubeconfig={self.cluster.kubeconfig}",
                "--node-deployment",
                "--strict-topology",
                "--immediate-topology=false",
                "--retry-interval-start=100ms",
                "--node-deployment-base-delay=100ms",
                "-v=5",
            ]
            self.cluster.processes.spawn(
                command, name=f"provisioner-{node.name}", environ={"NODE_NAME": node.name}
            )

    async def counts(self) -> list[int]:
        """Return how many volumes each node holds."""
        return [await asyncio.to_thread(self.held, node) for node in self.nodes]


@pytest.fixture
async def site(
    no_leaks: None, cluster: clusters.Cluster, upstream: pathlib.Path
) -> AsyncIterator[Site]:
    made = Site(cluster)
    await made.start(upstream)
    yield made
    await made.clear()


async def test_each_node_s_provisioner_makes_and_deletes_the_volumes_of_its_node(
    site: Site,
) -> None:
    first, second = site.nodes
    for node, name in ((first, "one"), (second, "two")):
        await site.claim(name, "WaitForFirstConsumer")
        script = f"echo {name} > /data/f; cat /data/f > /dev/termination-log"
        assert await site.says(name, script, node) == name
        assert await site.place(name) == node.name
    assert await site.counts() == [1, 1]
    # Bound at once, a volume is made by whichever provisioner takes the claim first.
    await site.claim("three", "Immediate")
    place = await site.place("three")
    assert place in {first.name, second.name}
    expected = [1 + (node.name == place) for node in site.nodes]
    assert await site.counts() == expected
    await site.forget("one")

    async def is_gone() -> bool:
        return await site.counts() == [expected[0] - 1, expected[1]]

    await waiting.until(is_gone, "the volume of the first node is gone", 20.0)
