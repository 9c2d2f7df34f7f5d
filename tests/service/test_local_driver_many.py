"""Two hundred volumes through their whole life at once, and nothing left of them."""

import asyncio
import pathlib

import pytest
from bitts.csi import v1
from support import localdriver, processes
from support.localdriver import MIB, Client, Harness, Use, create_request

pytestmark = pytest.mark.root
COUNT = 200
SORTS = [
    ({"backend": "directory"}, localdriver.capability()),
    ({"backend": "image"}, localdriver.capability(fs_type="ext4")),
    ({"backend": "image"}, localdriver.block_capability()),
    ({"backend": "btrfs"}, localdriver.capability()),
]
STAGED_AT_ONCE = 16


async def live(client: Client, home: pathlib.Path, number: int, gate: asyncio.Semaphore) -> None:
    parameters, want = SORTS[number % len(SORTS)]
    request = create_request(f"v{number}", want=[want], parameters=parameters)
    volume = await client.create(request)
    use = Use(client, home, volume, want)
    async with gate:  # a machine has only so many loop devices
        await use.stage()
        await use.publish()
        await use.unpublish()
        await use.unstage()
    snapshot = await client.snapshot(f"s{number}", volume.volume_id)
    sources: list[v1.Snapshot | v1.Volume] = [snapshot, volume]
    copies = [
        await client.create(
            create_request(f"c{number}-{index}", want=[want], parameters=parameters, source=source)
        )
        for index, source in enumerate(sources)
    ]
    await client.expand(volume.volume_id, 16 * MIB)
    await client.delete_snapshot(snapshot.snapshot_id)
    for one in (volume, *copies):
        await client.delete(one.volume_id)


@pytest.mark.slow
async def test_many_lives_at_once_leave_nothing(
    short_dir: pathlib.Path, spawner: processes.Processes
) -> None:
    harness = Harness(short_dir, spawner)
    process = await harness.start("--btrfs-size=1Gi", "--capacity=100Gi")
    gate = asyncio.Semaphore(STAGED_AT_ONCE)
    try:
        async with harness.client() as client:
            lives = (live(client, short_dir, number, gate) for number in range(COUNT))
            await asyncio.gather(*lives)
            assert await client.list_ids() == []
            assert await client.list_snapshots() == []
        assert await asyncio.to_thread(harness.content) == []
        assert await process.stop() == 0
        assert await asyncio.to_thread(harness.leaked) == []
    finally:
        await asyncio.to_thread(harness.close)
