"""Snapshots of several volumes: of one instant, and together or not at all."""

import asyncio
import pathlib
from collections.abc import AsyncIterator

import pytest
from bitts.csi import v1
from bitts.rpc.codes import Code, RpcError
from local_driver.steps import STEPS_OF
from support import localdriver, processes, waiting
from support.localdriver import Client, Harness, Use, capability, create_request

pytestmark = pytest.mark.root
TIMEOUT = localdriver.TIMEOUT
EXT4 = capability(fs_type="ext4")


@pytest.fixture
async def harness(short_dir: pathlib.Path, spawner: processes.Processes) -> AsyncIterator[Harness]:
    made = Harness(short_dir, spawner)
    yield made
    leaked = await asyncio.to_thread(made.leaked)
    await asyncio.to_thread(made.close)
    assert leaked == []


@pytest.fixture
async def client(harness: Harness) -> AsyncIterator[Client]:
    await harness.start(f"--fault-socket={harness.home}/faults.sock")
    async with harness.client() as opened:
        yield opened


async def images(client: Client, count: int) -> list[v1.Volume]:
    request = {"want": [EXT4], "parameters": {"backend": "image"}}
    return [
        await client.create(create_request(f"v{number}", **request))  # type: ignore[arg-type]
        for number in range(count)
    ]


async def refused(call: object, code: Code, word: str = "") -> None:
    with pytest.raises(RpcError) as caught:
        await call  # type: ignore[misc]
    assert caught.value.code is code, caught.value
    assert word in caught.value.message


async def test_volumes_in_use_share_an_instant(client: Client, harness: Harness) -> None:
    """A writer goes round the volumes: no later one may hold a number that an earlier lacks."""
    volumes = await images(client, 3)
    uses = [Use(client, harness.home, volume, EXT4) for volume in volumes]
    for use in uses:
        await use.stage()
        await use.publish()
    stop = asyncio.Event()

    async def write() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            for use in uses:
                await asyncio.to_thread((use.target / f"{number}").touch)

    writing = asyncio.create_task(write(), name="writer")
    await waiting.until((uses[-1].target / "5").exists, "some files")
    ids = [volume.volume_id for volume in volumes]
    group = await client.snapshot_group("g", ids)
    stop.set()
    await writing
    assert len({str(one.creation_time) for one in group.snapshots}) == 1
    by_source = {one.source_volume_id: one for one in group.snapshots}
    restored = []
    for number, volume_id in enumerate(ids):
        request = create_request(
            f"back{number}",
            want=[EXT4],
            parameters={"backend": "image"},
            source=by_source[volume_id],
        )
        restored.append(Use(client, harness.home, await client.create(request), EXT4))
    counts = []
    for use in restored:
        await use.stage()
        await use.publish()
        counts.append(len([name for name in use.target.iterdir() if name.name.isdecimal()]))
    assert sorted(counts, reverse=True) == counts
    assert counts[0] - counts[-1] <= 1
    for use in (*uses, *restored):
        await use.unpublish()
        await use.unstage()
        await client.delete(use.volume_id)
    await client.delete_group(group.group_snapshot_id)
    assert harness.content() == []


async def test_a_group_is_found_told_about_and_removed_as_a_whole(
    client: Client, harness: Harness
) -> None:
    ids = [volume.volume_id for volume in await images(client, 2)]
    group = await client.snapshot_group("g", ids)
    assert await client.snapshot_group("g", ids[::-1]) == group
    assert {one.source_volume_id for one in group.snapshots} == set(ids)
    member = group.snapshots[0]
    assert member.group_snapshot_id == group.group_snapshot_id
    await refused(client.snapshot_group("g", ids[:1]), Code.ALREADY_EXISTS, "volumes")
    await refused(client.snapshot_group("h", []), Code.INVALID_ARGUMENT, "source_volume_ids")
    await refused(client.snapshot_group("h", [*ids, "none"]), Code.NOT_FOUND, "none")
    call = client.delete_snapshot(member.snapshot_id)
    await refused(call, Code.INVALID_ARGUMENT, group.group_snapshot_id)
    call = client.delete_group(group.group_snapshot_id, ["other"])
    await refused(call, Code.INVALID_ARGUMENT, "snapshot_ids")
    get = v1.GetVolumeGroupSnapshotRequest(group_snapshot_id=group.group_snapshot_id)
    reply = await client.groups.get_volume_group_snapshot(get, timeout=TIMEOUT)
    assert reply.group_snapshot == group
    assert await client.list_snapshots() == group.snapshots
    for _ in range(2):
        await client.delete_group(
            group.group_snapshot_id, [one.snapshot_id for one in group.snapshots]
        )
    await refused(client.groups.get_volume_group_snapshot(get, timeout=TIMEOUT), Code.NOT_FOUND)
    assert len(harness.content()) == 4


async def test_raw_devices_in_use_have_no_common_instant(client: Client, harness: Harness) -> None:
    want = localdriver.block_capability()
    uses = []
    for number in range(2):
        request = create_request(f"v{number}", want=[want], parameters={"backend": "image"})
        uses.append(Use(client, harness.home, await client.create(request), want))
        await uses[-1].stage()
    call = client.snapshot_group("g", [use.volume_id for use in uses])
    await refused(call, Code.FAILED_PRECONDITION, "raw device")
    for use in uses:
        await use.unstage()
    assert len(harness.content()) == 4


@pytest.mark.parametrize("point", STEPS_OF["CreateVolumeGroupSnapshot"][1:])
async def test_a_group_that_was_cut_off_is_whole_or_absent(
    client: Client, harness: Harness, point: str
) -> None:
    ids = [volume.volume_id for volume in await images(client, 2)]
    await harness.faults(f"add CreateVolumeGroupSnapshot:crash={point}")
    with pytest.raises(RpcError):
        await client.snapshot_group("g", ids)
    assert harness.process is not None
    await harness.process.wait()
    await harness.start()
    async with harness.client() as again:
        is_taken = point == "document-renamed"
        assert len(await again.list_snapshots()) == 2 * is_taken
        await waiting.until(lambda: len(harness.content()) == 4 + 3 * is_taken, "sweep")
        group = await again.snapshot_group("g", ids)
        await again.delete_group(group.group_snapshot_id)
        assert len(harness.content()) == 4
