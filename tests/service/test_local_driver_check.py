"""--check and --repair: what nobody owns is told of and goes, what somebody owns stays."""

import asyncio
import pathlib
import subprocess
from collections.abc import AsyncIterator

import pytest
from local_driver import snapshots, volumes
from support import localdriver, processes
from support.localdriver import MIB, Harness, create_request

pytestmark = pytest.mark.root
LOST = volumes.volume_id("node-1", "lost")


@pytest.fixture
async def harness(short_dir: pathlib.Path, spawner: processes.Processes) -> AsyncIterator[Harness]:
    made = Harness(short_dir, spawner)
    yield made
    leaked = await asyncio.to_thread(made.leaked)
    await asyncio.to_thread(made.close)
    assert leaked == []


async def run(harness: Harness, spawner: processes.Processes, word: str) -> tuple[int, str]:
    process = spawner.spawn(
        [
            processes.script("local-driver"),
            f"--endpoint={harness.socket}",
            f"--state-dir={harness.state}",
            f"--node-id={localdriver.NODE}",
            word,
        ]
    )
    return await process.wait(), process.output()


def litter(state: pathlib.Path, home: pathlib.Path) -> None:
    """Leave content without a record, shown by a device and by a mount, as a bad crash might."""
    image = state / "image" / f"{LOST}.img"
    with image.open("wb") as file:
        file.truncate(MIB)
    (state / "directory" / LOST).mkdir()
    (state / "directory" / f"s-{LOST}").mkdir()
    subprocess.run(["losetup", "-f", image], check=True)
    place = home / "place"
    place.mkdir()
    subprocess.run(["mount", "--bind", state / "directory" / LOST, place], check=True)
    gone = state / "image" / f"s-{LOST}.img"
    with gone.open("wb") as file:
        file.truncate(MIB)
    subprocess.run(["losetup", "-f", gone], check=True)
    gone.unlink()


async def test_what_nobody_owns_is_told_of_and_removed(
    harness: Harness, spawner: processes.Processes
) -> None:
    process = await harness.start()
    async with harness.client() as client:
        volume = await client.create(create_request("v", parameters={"backend": "image"}))
        await client.snapshot("s", volume.volume_id)
    assert (await run(harness, spawner, "--check"))[0] == 1  # the driver runs
    await process.stop()
    kept = harness.content()
    code, told = await run(harness, spawner, "--check")
    assert (code, "nothing is wrong" in told) == (0, True)
    await asyncio.to_thread(litter, harness.state, harness.home)
    code, told = await run(harness, spawner, "--check")
    assert code == 2
    assert "5 problems left" in told
    assert str(harness.home / "place") in told
    assert set(harness.content()) > set(kept)
    code, told = await run(harness, spawner, "--repair")
    assert code == 0, told
    assert harness.content() == kept
    assert (await run(harness, spawner, "--check"))[0] == 0


async def test_what_only_a_person_can_decide_is_left(
    harness: Harness, spawner: processes.Processes
) -> None:
    process = await harness.start()
    async with harness.client() as client:
        made = [await client.create(create_request(f"v{number}")) for number in range(2)]
        snapshot = await client.snapshot("s", made[0].volume_id)
    await process.stop()
    assert snapshots.is_snapshot_id(snapshot.snapshot_id)
    (harness.state / "directory" / snapshot.snapshot_id).rmdir()
    (harness.state / "directory" / made[0].volume_id).rmdir()
    (harness.state / "volumes" / f"{made[1].volume_id}.json").write_text("{")
    before = harness.content()
    code, told = await run(harness, spawner, "--repair")
    assert code == 2
    for word in ("ContentMissing", "its content is gone", "record", "a person must look at it"):
        assert word in told
    assert harness.content() == before
