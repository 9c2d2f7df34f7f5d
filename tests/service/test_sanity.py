"""Upstream's csi-sanity judges local-driver: every service it has, on every sort of volume."""

import asyncio
import pathlib
import re

import pytest
from bitts.rpc import tls
from support import fleet, localdriver, peers, processes

pytestmark = [pytest.mark.root, pytest.mark.builds("csi-sanity")]

PARAMETERS = {
    "directory": "backend: directory\n",
    "image-ext4": "backend: image\nfstype: ext4\n",
    "image-xfs": "backend: image\nfstype: xfs\n",
    "image-block": "backend: image\n",
    "btrfs": "backend: btrfs\n",
    "health-rpcs": "backend: directory\n",
}
SUMMARY = re.compile(r"(\d+) Passed \| (\d+) Failed \| (\d+) Pending \| (\d+) Skipped")

SERVED = {"1.12": 94, "1.13": 100}
"""What there is for the capabilities that we announce, by generation. Fewer would mean that the
judge had skipped something; whoever announces more raises the number."""

PENDING = 1
"""A test that upstream itself has switched off (paging)."""


@pytest.fixture(scope="module")
def judge_path() -> str:
    """The program, built once; not inside a coroutine, as that takes its time."""
    return str(peers.tool("csi-sanity"))


@pytest.mark.slow
@pytest.mark.parametrize("kind", PARAMETERS)
async def test_csi_sanity_passes(
    kind: str,
    judge_path: str,
    short_dir: pathlib.Path,
    spawner: processes.Processes,
) -> None:
    harness = localdriver.Harness(short_dir, spawner)
    generation = "1.13" if kind == "health-rpcs" else "1.12"
    await harness.start("--capacity=500Gi", "--btrfs-size=1Gi", "--attach", f"--csi={generation}")
    judge = spawner.spawn([judge_path, *words(short_dir, kind), f"-csi.endpoint={harness.socket}"])
    await verdict(judge, generation)
    assert harness.content() == []
    assert harness.process is not None
    await harness.process.stop()
    assert await asyncio.to_thread(harness.leaked) == []


@pytest.fixture(scope="module")
def kit(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tls.Files]:
    return fleet.certificates(tmp_path_factory.mktemp("pki"))


@pytest.mark.slow
async def test_csi_sanity_passes_through_a_controller_on_another_machine(
    judge_path: str,
    short_dir: pathlib.Path,
    spawner: processes.Processes,
    kit: dict[str, tls.Files],
) -> None:
    # The judge takes every volume to the one node that it knows.
    made = fleet.Fleet(short_dir, spawner, kit, ["node-1"])
    await made.start("--capacity=500Gi", "--attach", "--csi=1.13")
    endpoints = [
        f"-csi.endpoint={made.socket('node-1')}",
        f"-csi.controllerendpoint={made.socket('controller')}",
    ]
    judge = spawner.spawn([judge_path, *words(short_dir, "health-rpcs"), *endpoints])
    await verdict(judge, "1.13")
    assert made.everywhere() == []


def words(folder: pathlib.Path, kind: str) -> list[str]:
    """Return what the judge is told of a sort of volume."""
    parameters = folder / "parameters.yaml"
    parameters.write_text(PARAMETERS[kind])
    return [
        f"-csi.mountdir={folder}/mount",
        f"-csi.stagingdir={folder}/staging",
        f"-csi.testvolumeparameters={parameters}",
        f"-csi.testvolumeaccesstype={'block' if kind == 'image-block' else 'mount'}",
        "-ginkgo.no-color",
    ]


async def verdict(judge: processes.Process, generation: str) -> None:
    """Wait for the judge's verdict: nothing failed, and nothing was skipped that is served."""
    code = await judge.wait(timeout=150)
    assert code == 0, judge.failure(f"ended with {code}")
    found = SUMMARY.search(judge.output())
    assert found is not None, judge.output()
    passed, failed, pending, _not_announced = (int(number) for number in found.groups())
    assert (passed, failed, pending) == (SERVED[generation], 0, PENDING)
