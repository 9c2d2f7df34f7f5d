"""Kubernetes' own programs on this machine: nodes, pods, Services, and that nothing is left."""

import asyncio
import contextlib
import json
import os
import pathlib
import signal
from typing import Any

import pytest
from devcluster.kubernetes import binaries
from support import building, kernelstate, leaks, processes, servers, waiting

pytestmark = [
    pytest.mark.root,
    pytest.mark.slow,
    pytest.mark.timeout(480),
    pytest.mark.builds(building.KUBERNETES),
]
PODS = "/api/v1/namespaces/default/pods"


@pytest.fixture(scope="module", autouse=True)
def kubectl() -> pathlib.Path:
    """Return the cluster's own kubectl, where all its programs are built."""
    try:
        return binaries.ready(binaries.EVERY, os.environ)["kubectl"]
    except binaries.MissingError as error:
        pytest.skip(str(error))


class Real:
    """A cluster of its own for one test, and kubectl for it."""

    def __init__(self, server: servers.Server, kubectl: pathlib.Path) -> None:
        self.server = server
        self._kubectl = str(kubectl)

    async def kubectl(self, *words: str, timeout: float = 40.0, check: bool = True) -> str:
        """Run kubectl of the cluster's version."""
        config = f"--kubeconfig={self.server.access.kubeconfig}"
        return await processes.run([self._kubectl, config, *words], timeout=timeout, check=check)

    async def run_pod(self, name: str, node: str, *command: str) -> None:
        """Make a pod on a node and wait until it is ready."""
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "labels": {"app": name}},
            "spec": {
                "nodeName": node,
                "containers": [{"name": "c", "image": "busybox:1.37", "command": list(command)}],
            },
        }
        async with self.server.session() as session:
            await servers.call(session, "POST", PODS, body)
        await self.kubectl("wait", "--for=condition=Ready", f"pod/{name}", "--timeout=120s")

    async def pod(self, name: str) -> dict[str, Any]:
        """Return a pod."""
        async with self.server.session() as session:
            found: dict[str, Any] = await servers.call(session, "GET", f"{PODS}/{name}")
            return found


@pytest.fixture
async def real(
    spawner: processes.Processes, short_dir: pathlib.Path, kubectl: pathlib.Path
) -> Real:
    server = servers.Server(spawner, short_dir / "c", kind="kubernetes", nodes=2)
    await server.start()
    return Real(server, kubectl)


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
    (pid,) = [int(pid) for pid in kubelets("node-1")]
    os.kill(pid, signal.SIGKILL)
    await waiting.until(
        lambda: kubelets("node-1") not in ([], [str(pid)]), "another kubelet on node-1"
    )
    await real.run_pod("later", "node-1", "sleep", "1000")
    found = (await real.pod("steady"))["status"]["containerStatuses"][0]
    assert (found["containerID"], found["restartCount"]) == (before, 0)


def kubelets(node: str) -> list[str]:
    """Return the process IDs of a node's kubelet."""
    return [
        line.split()[0]
        for line in leaks.marked_processes(processes.RUN)
        if "/kubelet --config" in line.split(" ", 1)[1][:200]
        and f"--hostname-override={node}" in line
        and not line.split()[1].endswith("nsenter")
    ]


async def test_a_node_that_loses_power_boots_again(real: Real) -> None:
    await real.run_pod("steady", "node-1", "sleep", "1000")
    machine = next(one for one in real.server.access.machines if one.name == "node-1")
    os.kill(machine.pid, signal.SIGKILL)

    def rebooted() -> bool:
        pid = real.server.read_ready()["nodes"]["node-1"]["pid"]
        return bool(pid != machine.pid)

    await waiting.until(rebooted, "another node-1", timeout=40)

    async def runs_again() -> bool:
        status = (await real.pod("steady"))["status"]["containerStatuses"][0]
        return bool(status["restartCount"] == 1 and status["ready"])

    await waiting.until(runs_again, "the pod after the reboot", timeout=40)


@pytest.mark.parametrize("how", ["asked to", "killed"])
async def test_nothing_is_left(
    how: str, spawner: processes.Processes, short_dir: pathlib.Path, kubectl: pathlib.Path
) -> None:
    before = await asyncio.to_thread(kernelstate.snapshot)
    others = leaks.marked_pids(processes.RUN)
    directory = short_dir / "c"
    server = servers.Server(spawner, directory, kind="kubernetes", nodes=2)
    await server.start()
    real = Real(server, kubectl)
    await real.run_pod("one", "node-1", "sleep", "1000")
    ours = await asyncio.to_thread(
        kernelstate.namespaces_of, [one.pid for one in server.access.machines]
    )
    assert await asyncio.to_thread(kernelstate.snapshot) - before, "cgroups, at least"
    if how == "killed":
        for pid in leaks.marked_pids(processes.RUN) - others:
            kill(pid)
        await waiting.until(
            lambda: leaks.marked_pids(processes.RUN) <= others, "end of all processes"
        )
        command = ["devcluster", "--dir", str(directory), "--kind", "kubernetes", "--clear"]
        assert await spawner.spawn(command).wait() == 0
    else:
        assert await server.process.stop() == 0
    await waiting.until(lambda: leaks.marked_pids(processes.RUN) <= others, "end of all processes")
    if how == "asked to":
        assert ours & await asyncio.to_thread(kernelstate.namespaces) == frozenset()
    # After a kill the machine's process 1 has to collect the dead, in its own time.

    async def gone() -> bool:
        return not ours & await asyncio.to_thread(kernelstate.namespaces)

    await waiting.until(gone, "end of the namespaces")
    await kernelstate.until_as(before)
    left = {path.name for path in directory.iterdir()}
    assert left <= {"ca.crt", "token", "kubeconfig", "lock", "pki", "logs", "images", "n"}
    assert list((directory / "n").iterdir()) == []


def kill(pid: int) -> None:
    """SIGKILL a process that may have ended with another one just now."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


async def test_two_clusters_in_one_folder_are_refused(
    real: Real, spawner: processes.Processes
) -> None:
    second = spawner.spawn(
        ["devcluster", "--dir", str(real.server.directory), "--kind", "kubernetes"]
    )
    assert await second.wait() == 1
    assert "a cluster already runs in" in second.output()
    assert real.server.alive


async def test_a_program_that_cannot_start_says_why(
    spawner: processes.Processes, short_dir: pathlib.Path
) -> None:
    assets = short_dir / "assets"
    assets.mkdir()
    etcd = assets / "etcd"
    etcd.write_text("#!/bin/sh\necho 'panic: the disk is full'\nexit 3\n")
    etcd.chmod(0o755)
    command = ["devcluster", "--dir", str(short_dir / "c"), "--kind", "kubernetes"]
    failed = spawner.spawn(command, environ={"KUBEBUILDER_ASSETS": str(assets)})
    assert await failed.wait() == 1
    assert "etcd ended with exit code 3" in failed.output()
    assert "panic: the disk is full" in failed.output()


async def test_a_kept_cluster_goes_on_where_it_was(
    spawner: processes.Processes, short_dir: pathlib.Path, kubectl: pathlib.Path
) -> None:
    server = servers.Server(spawner, short_dir / "c", kind="kubernetes", store="sqlite")
    await server.start()
    token = server.access.token
    real = Real(server, kubectl)
    await real.kubectl("create", "namespace", "kept")
    server.process.kill()
    await server.start()
    assert server.access.token == token
    assert "kept" in await real.kubectl("get", "namespaces", "-o", "name")
