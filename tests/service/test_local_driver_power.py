"""A node that loses power right after a btrfs volume was made: what is on its disk then.

The disk at an instant is a copy of the state directory taken beside the file system: the file
behind it holds what the kernel has written out, and nothing else.
"""

import asyncio
import os
import pathlib
import shutil
from collections.abc import AsyncIterator, Callable

import pytest
from bitts.csi import v1
from support import localdriver, processes, waiting
from support.localdriver import MIB, Client, Harness, Use, capability, create_request

pytestmark = pytest.mark.root
FLAGS = ("--backends=btrfs", "--btrfs-size=256Mi", "--capacity=10Gi", "--csi=1.13")
ANEW = "Made an empty volume anew"


@pytest.fixture
async def start(
    short_dir: pathlib.Path, spawner: processes.Processes
) -> AsyncIterator[Callable[[str], Harness]]:
    """Makes harnesses in folders of their own."""
    made: list[Harness] = []

    def make(name: str) -> Harness:
        (short_dir / name).mkdir()
        made.append(Harness(short_dir / name, spawner))
        return made[-1]

    yield make
    for harness in made:
        if harness.process is not None and harness.process.alive:
            await harness.process.stop()
        leaked = await asyncio.to_thread(harness.leaked)
        await asyncio.to_thread(harness.close)
        assert leaked == []


def lose_power(source: Harness, target: Harness) -> None:
    """Give ``target`` what is on the disk of ``source`` at this instant."""
    shutil.copytree(source.state, target.state, ignore=shutil.ignore_patterns("btrfs"))


async def published(harness: Harness, client: Client, volume: v1.Volume) -> Use:
    use = Use(client, harness.home, volume, capability())
    await use.stage()
    await use.publish()
    return use


async def gone(client: Client, use: Use) -> None:
    await use.unpublish()
    await use.unstage()
    await client.delete(use.volume_id)


async def test_a_volume_that_never_reached_the_disk_is_there_again_and_empty(
    start: Callable[[str], Harness],
) -> None:
    before, after = start("a"), start("b")
    await before.start(*FLAGS)
    await asyncio.to_thread(os.sync)  # the next commit of its own is half a minute away
    async with before.client() as client:
        volume = await client.create(create_request("v", size=8 * MIB))
        await asyncio.to_thread(lose_power, before, after)
        await client.delete(volume.volume_id)
    process = await after.start(*FLAGS)
    assert ANEW in process.output()
    async with after.client() as client:
        assert await client.create(create_request("v", size=8 * MIB)) == volume
        use = await published(after, client, volume)
        assert use.target.stat().st_mode & 0o777 == 0o777
        assert list(use.target.iterdir()) == []
        with pytest.raises(OSError, match="quota"):
            await asyncio.to_thread((use.target / "f").write_bytes, bytes(12 * MIB))
        await gone(client, use)


async def test_what_a_pod_flushed_takes_its_volume_to_the_disk(
    start: Callable[[str], Harness],
) -> None:
    before, after = start("a"), start("b")
    await before.start(*FLAGS)
    await asyncio.to_thread(os.sync)
    async with before.client() as client:
        volume = await client.create(create_request("v", size=8 * MIB))
        use = await published(before, client, volume)

        def write_and_lose_power() -> None:
            with (use.target / "data").open("wb") as file:
                file.write(b"precious")
                file.flush()
                os.fsync(file.fileno())
            lose_power(before, after)

        await asyncio.to_thread(write_and_lose_power)
        await gone(client, use)
    process = await after.start(*FLAGS)
    assert ANEW not in process.output()
    async with after.client() as client:
        use = await published(after, client, volume)
        assert (use.target / "data").read_bytes() == b"precious"
        await gone(client, use)


@pytest.mark.parametrize("is_killed", [False, True], ids=["going on", "killed between"])
async def test_a_name_that_is_used_again_never_has_the_content_from_before(
    start: Callable[[str], Harness], *, is_killed: bool
) -> None:
    before, after = start("a"), start("b")
    process = await before.start(*FLAGS)
    async with before.client() as client:
        old = await published(before, client, await client.create(create_request("v")))
        (old.target / "data").write_bytes(b"old")
        await asyncio.to_thread(os.sync)
        await gone(client, old)
        if is_killed:
            process.kill()
            await process.wait()
            await before.start(*FLAGS)
    async with before.client() as client:
        volume = await client.create(create_request("v"))
        await asyncio.to_thread(lose_power, before, after)
        await client.delete(volume.volume_id)
    await after.start(*FLAGS)
    async with after.client() as client:
        use = await published(after, client, volume)
        assert list(use.target.iterdir()) == []
        await gone(client, use)


async def test_a_volume_that_was_on_the_disk_is_never_replaced_by_an_empty_one(
    start: Callable[[str], Harness],
) -> None:
    harness = start("a")
    process = await harness.start(*FLAGS)
    async with harness.client() as client:
        volume = await client.create(create_request("v", size=8 * MIB))
        mark = harness.state / "btrfs.settled"
        await waiting.until(lambda: mark.exists() and mark.read_text() == "1", "the flush")
        await asyncio.to_thread(os.rmdir, harness.state / "btrfs" / volume.volume_id)
        process.kill()
        await process.wait()
    process = await harness.start(*FLAGS)
    assert ANEW not in process.output()
    async with harness.client() as client:
        request = v1.ControllerGetVolumeHealthRequest(volume_id=volume.volume_id)
        reply = await client.controller.controller_get_volume_health(
            request, timeout=localdriver.TIMEOUT
        )
        assert reply.volume_health is not None
        assert [one.reason for one in reply.volume_health.health_statuses] == ["ContentMissing"]
        await client.delete(volume.volume_id)
