"""``bitts demo``, as a newcomer runs it: with all rights, without any, and when it is killed."""

import asyncio
import os
import pathlib
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator

import pytest
from support import leaks, processes, waiting

pytestmark = pytest.mark.xdist_group("demo")
"""All demos put their folders into one place: one worker runs all these tests, so that each
finds there only its own."""
FOLDERS = "/tmp/bitts-demo-"
"""How the paths of these folders begin."""
UNPRIVILEGED = [
    "setpriv",
    "--reuid=65534",
    "--regid=65534",
    "--clear-groups",
    # The interpreter may live in a home directory that only root may enter.
    *("--inh-caps=-all,+dac_read_search", "--ambient-caps=+dac_read_search"),
    "--bounding-set=-all,+dac_read_search",
]
"""Becomes nobody with no right but to look into folders."""


@pytest.fixture
def no_leaks(no_leaks: None) -> Iterator[None]:
    """Counts what is left in folders of demos as well."""
    before = leaks.snapshot(prefix=FOLDERS)
    yield
    assert leaks.snapshot(prefix=FOLDERS).leaked_since(before) == []


def demo(
    *prefix: str, words: tuple[str, ...] = (), timeout: float = 240
) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [*prefix, processes.script("bitts"), "demo", *words],
        env={**processes.environment(), "HOME": "/nonexistent", "COLUMNS": "70"},
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def demo_folders() -> set[str]:
    return {path.name for path in pathlib.Path("/tmp").glob("bitts-demo-*")}


@pytest.mark.root
@pytest.mark.slow
def test_everything_is_bound_verified_and_gone(no_leaks: None) -> None:
    before = demo_folders()
    answer = demo()
    assert answer.returncode == 0, answer.stdout + answer.stderr
    lines = answer.stdout.splitlines()
    assert lines[-1] == (
        "OK: 5 claims became volumes, 9 pods wrote and read them, the bytes are right, "
        "and nothing is left."
    )
    for name in ("checkpoint", "scratch", "dataset", "raw", "exclusive"):
        assert any(f"verified: {name}: bytes with sha256" in line for line in lines), name
        assert any(f"verified: {name}: volume of" in line for line in lines), name
    assert "left out" not in answer.stdout
    assert demo_folders() <= before


@pytest.mark.root
@pytest.mark.slow
@pytest.mark.timeout(600)  # three stacks, one after the other
def test_it_runs_on_each_backend_and_says_what_each_cannot_keep(no_leaks: None) -> None:
    before = demo_folders()
    answer = demo(words=("--backend=all",), timeout=480)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    lines = answer.stdout.splitlines()
    assert lines[-1] == "OK on every backend that works here: directory, image, btrfs."
    ended = [line for line in lines if line.startswith("OK: ")]
    assert [line.split(", ")[0] for line in ended] == [
        f"OK: {count} claims became volumes on {name}"
        for name, count in (("directory", 4), ("image", 5), ("btrfs", 4))
    ]
    for name in ("directory", "btrfs"):
        assert f"because backend {name} has no raw volumes" in answer.stdout
    assert sum("verified: traces: no PersistentVolume" in line for line in lines) == 3
    assert demo_folders() <= before


@pytest.mark.slow
def test_a_backend_that_cannot_work_is_refused_and_by_all_left_out(no_leaks: None) -> None:
    nobody = UNPRIVILEGED if os.geteuid() == 0 else []
    refused = demo(*nobody, words=("--backend=btrfs",))
    assert refused.returncode == 1
    assert "--backend btrfs: the btrfs backend needs a btrfs: run it as root" in refused.stderr
    answer = demo(*nobody, words=("--backend=all",))
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert "left out: backend btrfs\n     because the btrfs backend needs" in answer.stdout
    assert answer.stdout.splitlines()[-1] == (
        "OK on every backend that works here: directory; backend image was left out, see above; "
        "backend btrfs was left out, see above."
    )


@pytest.mark.slow
def test_without_rights_it_says_what_it_leaves_out_and_succeeds(no_leaks: None) -> None:
    answer = demo(*(UNPRIVILEGED if os.geteuid() == 0 else []))
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert "left out: claim scratch, claim dataset, claim raw\n     because" in answer.stdout
    assert "pods need mounts and namespaces: run it as root" in answer.stdout
    assert answer.stdout.splitlines()[-1] == (
        "OK: 2 claims became volumes, and nothing is left. (12 steps were left out, see above)"
    )


@pytest.mark.slow
def test_a_failure_names_the_claim_and_what_the_cluster_tells(
    tmp_path: pathlib.Path, no_leaks: None
) -> None:
    """A class that the driver refuses: the message holds the event that says why."""
    (tmp_path / "wrong.yaml").write_text(WRONG_CLASS)
    answer = demo(words=(f"--manifests={tmp_path}", "--timeout=2"))
    assert answer.returncode == 1
    assert "claims are not bound: after 2 s still claim bitts-demo/doomed" in answer.stderr
    assert "colour" in answer.stderr
    assert "Traceback" not in answer.stderr
    (logs,) = [line.split("logs: ")[1] for line in answer.stdout.splitlines() if "logs: " in line]
    assert "colour" in pathlib.Path(logs, "csi-provisioner.log").read_text()
    shutil.rmtree(pathlib.Path(logs).parents[1])


WRONG_CLASS = """
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: wrong}
provisioner: local.csi.bitts.dev
parameters: {colour: blue}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: doomed}
spec:
  storageClassName: wrong
  accessModes: [ReadWriteOnce]
  resources: {requests: {storage: 1Mi}}
"""


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["ctrl-c", "term"])
async def test_interrupted_it_leaves_nothing(
    no_leaks: None, spawner: processes.Processes, number: signal.Signals
) -> None:
    before = await asyncio.to_thread(demo_folders)
    process = spawner.spawn(["bitts", "demo"])
    await process.wait_for_output("Bound")
    process.send_signal(number)
    assert await process.wait() == 128 + number
    assert await asyncio.to_thread(demo_folders) <= before


@pytest.mark.slow
async def test_killed_outright_its_processes_end_and_the_next_one_clears_up(
    no_leaks: None, spawner: processes.Processes
) -> None:
    earlier = await asyncio.to_thread(demo_folders)
    process = spawner.spawn(["bitts", "demo"])
    await process.wait_for_output("create the objects")
    (left,) = await asyncio.to_thread(demo_folders) - earlier
    process.kill()
    await waiting.until(lambda: not processes_below(left), "the end of the demo's processes")
    old = time.time() - 3600
    await asyncio.to_thread(os.utime, f"/tmp/{left}", (old, old))
    answer = await asyncio.to_thread(demo)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert left not in await asyncio.to_thread(demo_folders)


def processes_below(folder: str) -> list[str]:
    return [line for line in leaks.marked_processes(processes.RUN) if folder in line]
