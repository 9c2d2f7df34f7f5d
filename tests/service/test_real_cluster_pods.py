"""Kubernetes' own programs on this machine: nodes, pods and Services of one cluster."""

import json
import os
import pathlib
import signal
from collections.abc import AsyncIterator, Iterator

import pytest
from devcluster.kubernetes import binaries
from support import building, leaks, processes, servers, waiting
from support import cluster as clusters
from support.realclusters import Real

pytestmark = [
    pytest.mark.root,
    pytest.mark.slow,
    pytest.mark.timeout(480),
    pytest.mark.builds(building.KUBERNETES),
]


@pytest.fixture(scope="module")
def kubectl() -> pathlib.Path:
    """Return the cluster's own kubectl, where all its programs are built."""
    try:
        return binaries.ready(binaries.EVERY, os.environ)["kubectl"]
    except binaries.MissingError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def server(
    kubectl: pathlib.Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[servers.Server]:
    """A cluster for all tests of this module; it ends before others start theirs."""
    started = processes.Processes(tmp_path_factory.mktemp("real"))
    folder = clusters.short_directory()
    made = servers.Server(started, folder / "c", kind="kubernetes", nodes=2)
    made.start_blocking()
    yield made
    made.stop_blocking()
    started.close()
    clusters.remove_tree(folder)


@pytest.fixture
async def real(server: servers.Server, kubectl: pathlib.Path) -> AsyncIterator[Real]:
    server.refresh()  # a node of its may have been started again
    made = Real(server, kubectl)
    yield made
    await made.clear()


async def test_pods_run_on_every_node_and_reach_each_other(real: Real) -> None:
    serve = "mkdir /www; echo hello >/www/index.html; echo started; exec httpd -f -p 80 -h /www"
    await real.run_pod("web", "node-1", "sh", "-c", serve)
    await real.run_pod("near", "node-1", "sleep", "1000")
    await real.run_pod("far", "node-2", "sleep", "1000")
    await real.kubectl("expose", "pod", "web", "--port=8080", "--target-port=80")
    service = json.loads(await real.kubectl("get", "service", "web", "-o", "json"))
    url = f"http://{service['spec']['clusterIP']}:8080/"
    for client in ("near", "far", "web"):  # the last is its own server: a hairpin

        async def fetch(client: str = client) -> bool:
            # Before kube-proxy knows the Service, packets to it are lost: do not wait for them.
            command = ("timeout", "2", "wget", "-qO-", url)
            answer = await real.kubectl("exec", client, "--", *command, check=False)
            return answer == "hello\n"

        await waiting.until(fetch, f"the Service as seen from {client}", 40)
    assert await real.kubectl("logs", "web") == "started\n"


async def test_files_are_copied_into_pods_and_the_api_is_reached_from_them(
    real: Real, tmp_path: pathlib.Path
) -> None:
    await real.run_pod("one", "node-2", "sleep", "1000")
    given = tmp_path / "given"
    given.write_text("some bytes\n")
    await real.kubectl("cp", str(given), "one:/tmp/copy")
    assert await real.kubectl("exec", "one", "--", "cat", "/tmp/copy") == "some bytes\n"
    address = "$KUBERNETES_SERVICE_HOST $KUBERNETES_SERVICE_PORT"
    await real.kubectl("exec", "one", "--", "sh", "-c", f"nc -w 2 {address} </dev/null")


async def test_a_killed_kubelet_comes_back_and_its_pods_go_on(real: Real) -> None:
    await real.run_pod("steady", "node-1", "sleep", "1000")
    before = (await real.pod("steady"))["status"]["containerStatuses"][0]["containerID"]
    (pid,) = [int(pid) for pid in kubelets(real.server, "node-1")]
    os.kill(pid, signal.SIGKILL)
    await waiting.until(
        lambda: kubelets(real.server, "node-1") not in ([], [str(pid)]), "another kubelet on node-1"
    )
    await real.run_pod("later", "node-1", "sleep", "1000")
    found = (await real.pod("steady"))["status"]["containerStatuses"][0]
    assert (found["containerID"], found["restartCount"]) == (before, 0)


def kubelets(server: servers.Server, node: str) -> list[str]:
    """Return the process IDs of a node's kubelet; other clusters have nodes of that name, too."""
    return [
        line.split()[0]
        for line in leaks.marked_processes(processes.RUN)
        if f"/kubelet --config={server.directory}/" in line.split(" ", 1)[1][:250]
        and f"--hostname-override={node}" in line
        and not line.split()[1].endswith("nsenter")
    ]


async def test_a_node_that_loses_power_boots_again(real: Real) -> None:
    await real.run_pod("standing", "node-1", "sleep", "1000")
    machine = next(one for one in real.server.access.machines if one.name == "node-1")
    os.kill(machine.pid, signal.SIGKILL)

    def rebooted() -> bool:
        pid = real.server.read_ready()["nodes"]["node-1"]["pid"]
        return bool(pid != machine.pid)

    await waiting.until(rebooted, "another node-1", timeout=40)

    async def runs_again() -> bool:
        status = (await real.pod("standing"))["status"]["containerStatuses"][0]
        return bool(status["restartCount"] == 1 and status["ready"])

    await waiting.until(runs_again, "the pod after the reboot", timeout=40)


async def test_two_clusters_in_one_folder_are_refused(
    real: Real, spawner: processes.Processes
) -> None:
    second = spawner.spawn(
        ["devcluster", "--dir", str(real.server.directory), "--kind", "kubernetes"]
    )
    assert await second.wait() == 1
    assert "a cluster already runs in" in second.output()
    assert real.server.alive
