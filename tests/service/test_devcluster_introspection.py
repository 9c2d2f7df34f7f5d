"""The cluster can be asked what its controllers do, like every other service."""

import asyncio

import pytest
from bitts.rpc import channel, introspection
from bitts.rpc._generated import health as wire
from support import cluster as clusters

CLAIM = {
    "metadata": {"name": "data"},
    "spec": {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "",
        "resources": {"requests": {"storage": "1Gi"}},
    },
}
pytestmark = pytest.mark.embedded(reason="the full cluster's programs are not ours")


async def test_decisions_and_figures_are_told_on_a_socket(cluster: clusters.Cluster) -> None:
    path = str(cluster.kubeconfig.parent / "bitts-devcluster.sock")
    key = f"{cluster.namespace}/data"
    async with asyncio.timeout(20.0), introspection.connect(path) as client:
        decisions = client.decisions(loop="binder", key=key)
        first = asyncio.ensure_future(anext(decisions))
        await client.process()  # answered after the stream above began
        claims = f"/api/v1/namespaces/{cluster.namespace}/persistentvolumeclaims"
        await cluster.request("POST", claims, CLAIM)
        made = await first
        assert (made.key, made.decision) == (key, "Emit")
        assert "no storage class is set" in made.reason
        [entry] = (await client.object(key)).objects[:1]
        assert entry.key == key
        process = await client.process()
        figures = {(figure.area, figure.name): figure.value for figure in process.figures}
        assert process.program == "devcluster"
        assert figures["objects", "persistentvolumeclaims"] >= 1
        assert ("loop binder", "ready") in figures
        await decisions.aclose()


async def test_health_is_served_beside_it(cluster: clusters.Cluster) -> None:
    opened = channel.Channel(str(cluster.kubeconfig.parent / "bitts-devcluster.sock"))
    try:
        await opened.connect(5.0)
        stub = wire.HealthStub(opened)
        answer = await stub.check(wire.HealthCheckRequest(), timeout=5.0)
        assert answer.status == wire.HealthCheckResponseServingStatus.SERVING
    finally:
        await opened.close()
