"""kill -9 at every step of every operation: afterwards a volume is there, or is not, never half."""

import asyncio
import os
import pathlib
import signal
from collections.abc import AsyncIterator

import pytest
from bitts.csi import v1
from bitts.rpc.codes import Code, RpcError
from local_driver.steps import STEPS_OF
from support import localdriver, processes, waiting
from support.localdriver import Client, Harness, Use, capability, create_request

BACKENDS = ("directory", "image")


@pytest.fixture
async def harness(short_dir: pathlib.Path, spawner: processes.Processes) -> AsyncIterator[Harness]:
    made = Harness(short_dir, spawner)
    yield made
    leaked = await asyncio.to_thread(made.leaked)
    await asyncio.to_thread(made.close)
    assert leaked == []


async def start(harness: Harness) -> None:
    await harness.start(f"--fault-socket={harness.home}/faults.sock")


async def killed_by(harness: Harness, fault: str, call: object) -> None:
    """Make a call that ends in the driver's death, and start another driver."""
    await harness.faults(f"add {fault}")
    with pytest.raises(RpcError) as caught:
        await call  # type: ignore[misc]
    assert caught.value.code is Code.UNAVAILABLE
    assert harness.process is not None
    assert await harness.process.wait() == -signal.SIGKILL
    await start(harness)


def points(rpc: str) -> list[str]:
    """Where a volume that was made empty and never grew may be cut off."""
    passed = [step for step in STEPS_OF[rpc] if step not in ("copied", "filesystem-grown")]
    return ["before", *passed, "after"]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("point", points("CreateVolume"))
async def test_a_volume_whose_making_was_cut_off_is_made_once(
    harness: Harness, backend: str, point: str
) -> None:
    await start(harness)
    request = create_request("v", parameters={"backend": backend})
    async with harness.client() as client:
        await killed_by(harness, f"CreateVolume:crash={point}", client.create(request))
    is_recorded = point in ("document-renamed", "after")
    async with harness.client() as client:
        assert len(await client.list_ids()) == is_recorded
        if not is_recorded:
            await waiting.until(lambda: harness.content() == [], "sweep")
        volume = await client.create(request)
        assert await client.list_ids() == [volume.volume_id]
        assert len(harness.content()) == 2
        await client.delete(volume.volume_id)
        assert harness.content() == []


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("point", points("DeleteVolume"))
async def test_a_volume_whose_removal_was_cut_off_is_whole_or_gone(
    harness: Harness, backend: str, point: str
) -> None:
    await start(harness)
    async with harness.client() as client:
        volume = await client.create(create_request("v", parameters={"backend": backend}))
        if backend == "directory":
            (harness.state / backend / volume.volume_id / "file").write_text("data")
        call = client.delete(volume.volume_id)
        await killed_by(harness, f"DeleteVolume:crash={point}", call)
    async with harness.client() as client:
        if point == "before":
            assert await client.list_ids() == [volume.volume_id]
            assert len(harness.content()) == 2
        else:
            assert await client.list_ids() == []
            await waiting.until(lambda: harness.content() == [], "sweep")
        await client.delete(volume.volume_id)
        assert harness.content() == []


async def prepared(harness: Harness, client: Client, want: v1.VolumeCapability) -> Use:
    request = create_request("v", want=[want], parameters={"backend": "image"})
    return Use(client, harness.home, await client.create(request), want)


async def used_up(use: Use, harness: Harness) -> None:
    """Go through a volume's life from wherever it is, with data in it."""
    async with harness.client() as client:
        use.on(client)
        await use.stage()
        await use.publish()
        place = use.target / "data" if use.target.is_dir() else use.target
        await asyncio.to_thread(_write_and_read, place)
        await use.unpublish()
        await use.unstage()
        assert not use.target.exists()
        await client.delete(use.volume_id)
    assert harness.content() == []


def _write_and_read(place: pathlib.Path) -> None:
    handle = os.open(place, os.O_RDWR | os.O_CREAT, 0o600)
    os.write(handle, b"precious")
    os.fsync(handle)
    os.close(handle)
    assert place.read_bytes()[:8] == b"precious"


WANTS = {"mount": capability(), "block": localdriver.block_capability()}
NOT_FOR_BLOCK = {"formatted", "image-replaced", "mounted"}


@pytest.mark.root
@pytest.mark.parametrize("access", WANTS)
@pytest.mark.parametrize("point", points("NodeStageVolume"))
async def test_staging_that_was_cut_off_is_done_again(
    harness: Harness, access: str, point: str
) -> None:
    if access == "block" and point in NOT_FOR_BLOCK:
        return  # a raw volume is neither formatted nor mounted
    await start(harness)
    async with harness.client() as client:
        use = await prepared(harness, client, WANTS[access])
        await killed_by(harness, f"NodeStageVolume:crash={point}", use.stage())
    assert not list((harness.state / "image").glob("*.formatting"))
    await used_up(use, harness)


@pytest.mark.root
@pytest.mark.parametrize("access", WANTS)
@pytest.mark.parametrize("point", ["before", "target-made", "published", "after"])
async def test_publishing_that_was_cut_off_is_done_again(
    harness: Harness, access: str, point: str
) -> None:
    await start(harness)
    async with harness.client() as client:
        use = await prepared(harness, client, WANTS[access])
        await use.stage()
        await killed_by(harness, f"NodePublishVolume:crash={point}", use.publish())
    await used_up(use, harness)


@pytest.mark.root
@pytest.mark.parametrize("access", WANTS)
@pytest.mark.parametrize("point", ["before", "unpublished", "after"])
async def test_unpublishing_that_was_cut_off_is_done_again(
    harness: Harness, access: str, point: str
) -> None:
    await start(harness)
    async with harness.client() as client:
        use = await prepared(harness, client, WANTS[access])
        await use.stage()
        await use.publish()
        await killed_by(harness, f"NodeUnpublishVolume:crash={point}", use.unpublish())
    async with harness.client() as client:
        await use.on(client).unpublish()
        assert not use.target.exists()
    await used_up(use, harness)


@pytest.mark.root
@pytest.mark.parametrize("access", WANTS)
@pytest.mark.parametrize("point", ["before", "unstaged", "after"])
async def test_unstaging_that_was_cut_off_is_done_again(
    harness: Harness, access: str, point: str
) -> None:
    await start(harness)
    async with harness.client() as client:
        use = await prepared(harness, client, WANTS[access])
        await use.stage()
        await killed_by(harness, f"NodeUnstageVolume:crash={point}", use.unstage())
    async with harness.client() as client:
        await use.on(client).unstage()
    await used_up(use, harness)


@pytest.mark.root
async def test_a_read_only_device_that_was_just_attached_is_no_leak(harness: Harness) -> None:
    await start(harness)
    async with harness.client() as client:
        use = await prepared(harness, client, WANTS["block"])
        await use.stage()
        call = use.publish(readonly=True)
        await killed_by(harness, "NodePublishVolume:crash=loop-attached", call)
    await used_up(use, harness)


async def test_a_crash_amid_many_leaves_each_whole_or_absent(harness: Harness) -> None:
    await start(harness)
    async with harness.client() as client:
        kept = [await client.create(create_request(f"kept{n}", size=1)) for n in range(5)]
        await harness.faults("add CreateVolume:crash=document-renamed@0.05")
        calls = [client.create(create_request(f"v{n}", size=1)) for n in range(100)]
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
    answered = [one for one in outcomes if isinstance(one, v1.Volume)]
    assert len(answered) < len(outcomes)
    assert harness.process is not None
    assert await harness.process.wait() == -signal.SIGKILL
    await start(harness)
    async with harness.client() as client:
        found = set(await client.list_ids())
        # What was answered is there; what was not may be there, but then it is whole.
        assert found >= {volume.volume_id for volume in [*kept, *answered]}
        await waiting.until(lambda: len(harness.content()) == 2 * len(found), "sweep")
        for volume_id in found:
            await client.delete(volume_id)
        assert harness.content() == []
