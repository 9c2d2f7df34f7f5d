"""``bitts up --kubernetes``: the examples run on real nodes, and ``down`` leaves nothing."""

import asyncio
import json
import os
import pathlib
import signal

import pytest
from devcluster.kubernetes import binaries
from support import building, kernelstate, leaks, processes, waiting

pytestmark = [
    pytest.mark.root,
    pytest.mark.slow,
    pytest.mark.timeout(240),
    pytest.mark.builds(building.KUBERNETES),
]
EXAMPLES = pathlib.Path(__file__).parents[2] / "examples"
NAMESPACE = "--namespace=bitts-examples"


@pytest.fixture(scope="module")
def kubectl() -> pathlib.Path:
    """Return the cluster's own kubectl, where all its programs are built."""
    try:
        return binaries.ready(binaries.EVERY, os.environ)["kubectl"]
    except binaries.MissingError as error:
        pytest.skip(str(error))


async def bitts(folder: pathlib.Path, *words: str) -> str:
    command = [processes.script("bitts"), *words, f"--dir={folder}"]
    return await processes.run(command, timeout=120)


@pytest.mark.parametrize("how", ["asked to", "killed"])
async def test_the_examples_run_and_nothing_is_left(
    how: str, no_leaks: None, short_dir: pathlib.Path, kubectl: pathlib.Path
) -> None:
    before = await asyncio.to_thread(kernelstate.snapshot)
    others = leaks.marked_pids(processes.RUN)
    folder = short_dir / "s"
    await bitts(folder, "up", "--kubernetes", "--nodes=2", "--detach")
    config = f"--kubeconfig={folder}/cluster/kubeconfig"
    await processes.run([str(kubectl), config, "apply", "-f", str(EXAMPLES)])

    async def pods_ended() -> bool:
        command = [str(kubectl), config, NAMESPACE, "get", "pods", "-o", "json"]
        pods = json.loads(await processes.run(command))["items"]
        phases = {pod["metadata"]["name"]: pod["status"].get("phase") for pod in pods}
        assert "Failed" not in phases.values(), phases
        return len(phases) == 9 and set(phases.values()) == {"Succeeded"}

    await waiting.until(pods_ended, "all pods of the examples", timeout=90, interval=0.5)
    if how == "killed":
        for pid in leaks.marked_pids(processes.RUN) - others:
            kill(pid)
    assert (await bitts(folder, "down")).endswith("The stack is down and nothing runs.\n")
    assert not await asyncio.to_thread(folder.exists)
    await kernelstate.until_as(before)


def kill(pid: int) -> None:
    """SIGKILL a process that may have ended with another one just now."""
    if pathlib.Path(f"/proc/{pid}").exists():
        os.kill(pid, signal.SIGKILL)
