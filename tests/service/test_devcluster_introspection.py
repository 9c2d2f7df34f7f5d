"""The cluster can be asked what it does, like every other service."""

import asyncio
import os
import pathlib
import signal

import pytest
from bitts.rpc import channel, introspection
from bitts.rpc._generated import health as wire
from devcluster.kubernetes import binaries
from support import building, processes, servers, waiting
from support import cluster as clusters

SOCKET = "bitts-devcluster.sock"
Status = wire.HealthCheckResponseServingStatus

CLAIM = {
    "metadata": {"name": "data"},
    "spec": {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "",
        "resources": {"requests": {"storage": "1Gi"}},
    },
}


async def health(folder: pathlib.Path) -> Status:
    opened = channel.Channel(str(folder / SOCKET))
    try:
        await opened.connect(5.0)
        stub = wire.HealthStub(opened)
        return (await stub.check(wire.HealthCheckRequest(), timeout=60.0)).status
    finally:
        await opened.close()


@pytest.mark.embedded(reason="the full cluster's controllers are not ours")
async def test_decisions_and_figures_are_told_on_a_socket(cluster: clusters.Cluster) -> None:
    path = str(cluster.kubeconfig.parent / SOCKET)
    key = f"{cluster.namespace}/data"
    async with asyncio.timeout(60.0), introspection.connect(path) as client:
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
    assert await health(cluster.kubeconfig.parent) == Status.SERVING


async def figures(client: introspection.Client) -> dict[tuple[str, str], float]:
    process = await client.process()
    return {(figure.area, figure.name): figure.value for figure in process.figures}


@pytest.fixture
def control_plane() -> None:
    """Skip where its programs could not be built."""
    try:
        binaries.ready(binaries.CONTROL_PLANE, os.environ)
    except binaries.MissingError as error:
        pytest.skip(str(error))


@pytest.mark.slow
@pytest.mark.builds(building.KUBERNETES)
@pytest.mark.usefixtures("control_plane")
async def test_a_program_of_kubernetes_that_was_started_again_is_told(
    spawner: processes.Processes, short_dir: pathlib.Path
) -> None:
    server = servers.Server(spawner, short_dir / "c", kind="kubernetes")
    await server.start()
    name = "kube-scheduler"
    area = f"program {name}"
    assert await health(server.directory) == Status.SERVING
    async with introspection.connect(str(server.directory / SOCKET)) as client:
        before = await figures(client)
        assert {f"program {one}" for one in binaries.CONTROL_PLANE} <= {key[0] for key in before}
        assert before[area, "restarts"] == 0
        os.kill(int(before[area, "pid"]), signal.SIGKILL)

        async def is_back() -> bool:
            now = await figures(client)
            pid = now.get((area, "pid"), before[area, "pid"])
            return now[area, "restarts"] == 1 and pid != before[area, "pid"]

        await waiting.until(is_back, "the scheduler to be started again", 20.0)
        answer = await client.object(name)
        assert [one.loop for one in answer.objects] == ["programs"]
        assert str(server.directory / "logs" / f"{name}.log") in answer.findings[0].text


async def test_a_kubernetes_that_hangs_in_its_start_tells_where_and_ends_when_asked(
    spawner: processes.Processes, short_dir: pathlib.Path
) -> None:
    assets = short_dir / "assets"
    assets.mkdir()
    for name in binaries.CONTROL_PLANE:
        (assets / name).write_text("#!/bin/sh\nexec sleep 1000\n")
        (assets / name).chmod(0o755)
    folder = short_dir / "c"
    command = ["devcluster", f"--dir={folder}", "--kind=kubernetes"]
    process = spawner.spawn(command, environ={"KUBEBUILDER_ASSETS": str(assets)})
    await process.wait_ready((folder / SOCKET).exists, "the cluster's socket", 20.0)
    async with introspection.connect(str(folder / SOCKET)) as client:

        async def is_working() -> bool:
            found = await client.objects(loop="programs", phases=[introspection.Phase.WORKING])
            return [(one.key, one.decision) for one in found.objects] == [("etcd", "Start")]

        await waiting.until(is_working, "etcd in work", 10.0)
    assert await health(folder) == Status.NOT_SERVING
    assert await process.stop() == 0
    assert not (folder / SOCKET).exists()
