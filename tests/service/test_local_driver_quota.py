"""Folders that cannot grow beyond their size, where the kernel has project quota.

Kernels built without it refuse to mount the disk that way: there the driver must say that
nothing is enforced, and everything else must work all the same.
"""

import asyncio
import contextlib
import pathlib
import subprocess
from collections.abc import AsyncIterator, Iterator

import pytest
from support import localdriver, processes
from support.localdriver import MIB, Client, Harness, Use, capability, create_request

pytestmark = pytest.mark.root

MKFS = {
    "ext4": ["mkfs.ext4", "-q", "-O", "quota,project", "-E", "quotatype=prjquota"],
    "xfs": ["mkfs.xfs", "-q"],
}


@pytest.fixture(params=list(MKFS))
def enforced(request: pytest.FixtureRequest, short_dir: pathlib.Path) -> Iterator[bool]:
    """A disk at the driver's state directory, with project quota if this kernel has it."""
    with contextlib.ExitStack() as stack:
        try:
            mkfs = MKFS[request.param]
            stack.enter_context(localdriver.disk(short_dir, mkfs, "loop,prjquota"))
        except subprocess.CalledProcessError:  # ext4 is refused altogether with the feature
            stack.enter_context(localdriver.disk(short_dir, [mkfs[0], "-q"]))
            yield False
        else:
            yield True


@pytest.fixture
async def harness(
    enforced: bool, short_dir: pathlib.Path, spawner: processes.Processes
) -> AsyncIterator[Harness]:
    async with localdriver.running(short_dir, spawner, "--backends=directory") as made:
        yield made


def room(folder: pathlib.Path, most: int) -> int:
    """Return how many MiB fit into a new file of a folder, ``most`` at most.

    Written as containers do, without CAP_SYS_RESOURCE, for which no quota counts.
    """
    filler = folder / f"filler-{most}"
    without = ["setpriv", "--inh-caps=-sys_resource", "--bounding-set=-sys_resource", "--"]
    write = ["dd", "if=/dev/zero", f"of={filler}", "bs=1M", f"count={most}", "conv=fsync"]
    subprocess.run([*without, *write], check=False, capture_output=True, timeout=60)
    written = filler.stat().st_size // MIB
    filler.unlink()
    return written


async def used(harness: Harness, client: Client, name: str, **more: object) -> Use:
    """Create a volume and publish it."""
    volume = await client.create(create_request(name, **more))  # type: ignore[arg-type]
    use = Use(client, harness.home, volume, capability())
    await use.stage()
    await use.publish()
    return use


async def gone(client: Client, use: Use) -> None:
    await use.unpublish()
    await use.unstage()
    await client.delete(use.volume_id)


async def test_a_folder_ends_at_its_size_and_grows_in_use_and_says_whether_it_does(
    harness: Harness, enforced: bool
) -> None:
    async with harness.client() as client:
        volume = await client.create(create_request("v"))
        said = volume.volume_context.get("quota", "enforced")
        assert said == ("enforced" if enforced else "not enforced")
        use = await used(harness, client, "v")
        fits = await asyncio.to_thread(room, use.target, 12)
        assert fits in (7, 8) if enforced else fits == 12
        if enforced:
            assert await use.total() == 8 * MIB
        await client.expand(use.volume_id, 16 * MIB)
        fits = await asyncio.to_thread(room, use.target, 20)
        assert fits in (15, 16) if enforced else fits == 20
        await gone(client, use)
    assert harness.content() == []


async def test_limits_hold_for_copies_and_after_a_crash(harness: Harness, enforced: bool) -> None:
    async with harness.client() as client:
        source = await used(harness, client, "v")
        await asyncio.to_thread((source.target / "data").write_bytes, bytes(4 * MIB))
        await source.unpublish()
        await source.unstage()
        snapshot = await client.snapshot("s", source.volume_id)
        copy = await used(harness, client, "copy", source=snapshot)
        fits = await asyncio.to_thread(room, copy.target, 12)
        assert fits in (3, 4) if enforced else fits == 12
    assert harness.process is not None
    harness.process.kill()
    await harness.process.wait()
    await harness.start("--backends=directory")
    async with harness.client() as client:
        await client.expand(copy.on(client).volume_id, 12 * MIB)
        fits = await asyncio.to_thread(room, copy.target, 12)
        assert fits in (7, 8) if enforced else fits == 12
        await gone(client, copy)
        await client.delete_snapshot(snapshot.snapshot_id)
        await client.delete(source.volume_id)
        again = await used(harness, client, "v")  # with nothing counted from before
        fits = await asyncio.to_thread(room, again.target, 12)
        assert fits in (7, 8) if enforced else fits == 12
        await gone(client, again)


async def test_a_new_volume_shares_no_limit_with_one_whose_record_is_lost(
    harness: Harness, enforced: bool
) -> None:
    async with harness.client() as client:
        lost = await client.create(create_request("lost"))
    content = harness.state / "directory" / lost.volume_id / "data"
    await asyncio.to_thread(content.write_bytes, bytes(4 * MIB))
    assert harness.process is not None
    assert await harness.process.stop() == 0
    document = harness.state / "volumes" / f"{lost.volume_id}.json"
    document.write_bytes(b"")  # which tells no number: its folder does
    await harness.start("--backends=directory")
    async with harness.client() as client:
        fresh = await used(harness, client, "fresh")
        fits = await asyncio.to_thread(room, fresh.target, 12)
        assert fits in (7, 8) if enforced else fits == 12
        await gone(client, fresh)
