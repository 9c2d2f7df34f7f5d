"""Kubernetes' own programs on this machine: that they start, end, and leave nothing."""

import asyncio
import contextlib
import os
import pathlib
import signal

import pytest
from devcluster.kubernetes import binaries
from support import building, kernelstate, leaks, processes, servers, waiting
from support.realclusters import Real

pytestmark = [
    pytest.mark.root,
    pytest.mark.slow,
    pytest.mark.timeout(480),
    pytest.mark.builds(building.KUBERNETES),
]


@pytest.fixture(scope="module", autouse=True)
def kubectl() -> pathlib.Path:
    """Return the cluster's own kubectl, where all its programs are built."""
    try:
        return binaries.ready(binaries.EVERY, os.environ)["kubectl"]
    except binaries.MissingError as error:
        pytest.skip(str(error))


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
