"""``bitts up --kubernetes``: the examples run on real nodes, and ``down`` leaves nothing."""

import asyncio
import json
import os
import pathlib
import signal

import pytest
from devcluster.kubernetes import binaries, loopdevices
from support import building, kernelstate, leaks, processes, waiting

pytestmark = [
    pytest.mark.root,
    pytest.mark.slow,
    pytest.mark.timeout(480),
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


KEEPER = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "keeper", "namespace": "bitts-examples"},
    "spec": {
        "containers": [
            {
                "name": "main",
                "image": "busybox:1.37",
                "command": ["sleep", "1000"],
                "volumeDevices": [{"name": "raw", "devicePath": "/dev/raw"}],
            }
        ],
        "volumes": [{"name": "raw", "persistentVolumeClaim": {"claimName": "raw"}}],
    },
}
"""A pod that still has a raw device when the node goes: the kubelet holds it by a lock."""


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

    await waiting.until(pods_ended, "all pods of the examples", timeout=90)
    keeper = short_dir / "keeper.json"
    await asyncio.to_thread(keeper.write_text, json.dumps(KEEPER))
    await processes.run([str(kubectl), config, "create", "-f", str(keeper)])
    ready = ["wait", "--for=condition=Ready", "pod/keeper", "--timeout=240s"]
    await processes.run([str(kubectl), config, NAMESPACE, *ready], timeout=80)
    claim = ["get", "pvc", "raw", "-o", "jsonpath={.spec.volumeName}"]
    volume = await processes.run([str(kubectl), config, NAMESPACE, *claim])
    ours = await asyncio.to_thread(namespaces, folder)
    locks = {key(one) for one in await asyncio.to_thread(bound) if volume in one.path}
    assert len(locks) == 1
    if how == "killed":
        for pid in leaks.marked_pids(processes.RUN) - others:
            kill(pid)
    assert (await bitts(folder, "down")).endswith("The stack is down and nothing runs.\n")
    assert not await asyncio.to_thread(folder.exists)

    async def gone() -> bool:
        return not ours & await asyncio.to_thread(kernelstate.namespaces)

    await waiting.until(gone, "end of the namespaces")
    await kernelstate.until_as(before)
    assert not locks & {key(one) for one in await asyncio.to_thread(bound)}


def namespaces(folder: pathlib.Path) -> frozenset[str]:
    """Return the namespaces of a stack's nodes. Blocking."""
    nodes = json.loads((folder / "cluster" / "ready.json").read_text())["nodes"]
    assert len(nodes) == 2
    return kernelstate.namespaces_of([one["pid"] for one in nodes.values()])


def bound() -> list[loopdevices.Device]:
    """Return the loop devices that are bound. Blocking."""
    return list(loopdevices.bound())


def key(device: loopdevices.Device) -> tuple[int, str]:
    """Return what stays the same of a device, and tells it from a later one."""
    return device.number, device.given


def kill(pid: int) -> None:
    """SIGKILL a process that may have ended with another one just now."""
    if pathlib.Path(f"/proc/{pid}").exists():
        os.kill(pid, signal.SIGKILL)
