"""``bitts up`` and ``down``: a stack that heals itself, lasts if told to, and goes for good."""

import asyncio
import json
import os
import pathlib
import signal
import subprocess
from typing import Any

import pytest
from support import leaks, processes, waiting

POD = """
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: kept}
spec:
  storageClassName: bitts-ext4
  accessModes: [ReadWriteOnce]
  resources: {requests: {storage: 64Mi}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: raw}
spec:
  storageClassName: bitts-ext4
  volumeMode: Block
  accessModes: [ReadWriteOnce]
  resources: {requests: {storage: 8Mi}}
---
apiVersion: v1
kind: Pod
metadata: {name: lasting}
spec:
  terminationGracePeriodSeconds: 1
  containers:
    - name: main
      image: busybox
      command: [sh, -c, "echo here >/data/file; sleep 1000"]
      volumeMounts: [{name: data, mountPath: /data}]
      volumeDevices: [{name: raw, devicePath: /dev/raw}]
  volumes:
    - name: data
      persistentVolumeClaim: {claimName: kept}
    - name: raw
      persistentVolumeClaim: {claimName: raw}
"""
CLAIM = """
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: made}
spec:
  storageClassName: bitts-directory
  accessModes: [ReadWriteOnce]
  resources: {requests: {storage: 8Mi}}
"""
CLASSES = pathlib.Path(__file__).parents[2] / "examples" / "10-storage-classes.yaml"


class Stack:
    """A stack in a folder of the test's own."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder

    async def bitts(self, *words: str, check: bool = True) -> str:
        command = [processes.script("bitts"), *words, f"--dir={self.folder}"]
        return await processes.run(command, timeout=90, check=check)

    async def kubectl(self, *words: str) -> str:
        config = f"--kubeconfig={self.folder}/cluster/kubeconfig"
        return await processes.run(["kubectl", config, *words])

    async def answers(self) -> bool:
        config = f"--kubeconfig={self.folder}/cluster/kubeconfig"
        command = ["kubectl", config, "--request-timeout=2s", "get", "namespaces"]
        return "kept" in await processes.run(command, check=False)

    async def record(self) -> dict[str, Any]:
        text = await asyncio.to_thread((self.folder / "stack.json").read_text)
        record: dict[str, Any] = json.loads(text)
        return record

    async def apply(self, text: str) -> None:
        path = self.folder / "manifest.yaml"
        await asyncio.to_thread(path.write_text, text)
        await self.kubectl("apply", "-f", str(path))


@pytest.fixture
async def stack(no_leaks: None, short_dir: pathlib.Path) -> Stack:
    return Stack(short_dir / "s")


@pytest.mark.slow
async def test_a_crashed_part_comes_back_and_the_folder_stays_taken(stack: Stack) -> None:
    await stack.bitts("up", "--detach")
    with pytest.raises(processes.ProcessError, match="a stack already runs in"):
        await stack.bitts("up")
    before = (await stack.record())["processes"]
    os.kill(before["csi-provisioner"], signal.SIGKILL)

    async def is_back() -> bool:
        now = (await stack.record())["processes"]
        return "csi-provisioner" in now and now != before

    await waiting.until(is_back, "a new provisioner")
    log = await asyncio.to_thread((stack.folder / "logs" / "up.log").read_text)
    assert "csi-provisioner: killed by signal 9; again in 0.25 s" in log
    assert (await stack.bitts("down")) == "The stack is down and nothing runs.\n"
    assert not await asyncio.to_thread(stack.folder.exists)


@pytest.mark.slow
async def test_a_cluster_in_memory_is_not_mourned_by_a_stack_that_seems_ready(
    stack: Stack,
) -> None:
    await stack.bitts("up", "--detach")
    record = await stack.record()
    os.kill(record["processes"]["devcluster"], signal.SIGKILL)
    pids = [record["pid"], *record["processes"].values()]
    await waiting.until(lambda: not alive(pids), "the end of the stack")
    log = await asyncio.to_thread((stack.folder / "logs" / "up.log").read_text)
    assert "devcluster killed by signal 9, and the cluster was in memory and is gone" in log
    assert not await asyncio.to_thread((stack.folder / "volumes").exists)
    await stack.bitts("down")


@pytest.mark.slow
async def test_a_stack_in_a_file_lasts_until_it_is_purged(stack: Stack) -> None:
    await stack.bitts("up", "--detach", "--store=sqlite")
    await stack.kubectl("create", "namespace", "kept")
    os.kill((await stack.record())["processes"]["devcluster"], signal.SIGKILL)
    await waiting.until(stack.answers, "the API server, where it was")
    # Whoever watched goes on where it was: the provisioner, the binder, the driver's node.
    await stack.kubectl("apply", "-f", str(CLASSES))
    await stack.apply(CLAIM)
    await stack.kubectl("wait", "--for=jsonpath={.status.phase}=Bound", "pvc/made")
    assert "cluster and volumes stay in" in await stack.bitts("down")
    with pytest.raises(processes.ProcessError, match="holds a cluster with its volumes"):
        await stack.bitts("up")
    await stack.bitts("up", "--detach", "--store=sqlite")
    assert "kept" in await stack.kubectl("get", "namespace", "kept")
    assert (await stack.bitts("down", "--purge")) == "The stack is down and nothing runs.\n"
    assert not await asyncio.to_thread(stack.folder.exists)


@pytest.mark.root
@pytest.mark.slow
async def test_down_leaves_nothing_after_kill_9_of_everything(stack: Stack) -> None:
    await stack.bitts("up", "--detach", "--backend=image")
    await stack.kubectl("apply", "-f", str(CLASSES))
    await stack.apply(POD)
    await stack.kubectl("wait", "--for=jsonpath={.status.phase}=Running", "pod/lasting")
    record = await stack.record()
    for pid in [record["pid"], *record["processes"].values()]:
        kill(pid)
    await waiting.until(lambda: not alive(record["processes"].values()), "the end of all")
    assert any(str(stack.folder) in line for line in leaks.loop_devices())
    assert any("bitts-0-" in line for line in leaks.mounts())
    told = await stack.bitts("down")
    assert "removed process" in told
    assert "removed mount" in told
    assert "removed loop device" in told
    assert told.endswith("The stack is down and nothing runs.\n")
    assert not await asyncio.to_thread(stack.folder.exists)


@pytest.mark.root
@pytest.mark.slow
async def test_up_after_kill_9_of_everything_starts_clean(stack: Stack) -> None:
    await stack.bitts("up", "--detach", "--backend=image")
    await stack.kubectl("apply", "-f", str(CLASSES))
    await stack.apply(POD)
    await stack.kubectl("wait", "--for=jsonpath={.status.phase}=Running", "pod/lasting")
    record = await stack.record()
    for pid in [record["pid"], *record["processes"].values()]:
        kill(pid)
    await stack.bitts("up", "--detach")
    assert (await stack.kubectl("get", "pods", "-o", "name")) == ""
    assert not any(str(stack.folder) in line for line in leaks.loop_devices())
    assert (await stack.bitts("down")) == "The stack is down and nothing runs.\n"


def kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def alive(pids: Any) -> list[int]:
    return [pid for pid in pids if pathlib.Path(f"/proc/{pid}/cmdline").exists()]


@pytest.mark.slow
def test_in_the_foreground_ctrl_c_ends_it(
    no_leaks: None, short_dir: pathlib.Path, spawner: processes.Processes
) -> None:
    folder = short_dir / "s"
    process = spawner.spawn(["bitts", "up", f"--dir={folder}"])
    process.wait_ready_blocking(lambda: "Ctrl-C" in process.output(), "the advice")
    assert f"export KUBECONFIG={folder}/cluster/kubeconfig" in process.output()
    process.send_signal(signal.SIGINT)
    waiting.until_blocking(lambda: not process.alive, "the end")
    assert process.exit_code == 130
    assert "Traceback" not in process.output()
    answer = subprocess.run(
        [processes.script("bitts"), "down", f"--dir={folder}"],
        env=processes.environment(),
        capture_output=True,
        text=True,
    )
    assert answer.stdout == "The stack is down and nothing runs.\n"
