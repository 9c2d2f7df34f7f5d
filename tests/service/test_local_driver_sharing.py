"""Images on disks that share blocks: copies cost nothing, whatever the size and whoever writes.

The disk is a loop-mounted xfs or btrfs; that blocks are shared is read from the kernel (FIEMAP).
"""

import asyncio
import os
import pathlib
import re
import subprocess
from collections.abc import AsyncIterator, Iterator

import pytest
from bitts.csi import v1
from bitts.rpc.codes import RpcError
from support import localdriver, processes
from support.localdriver import MIB, Client, Harness, Use, capability, create_request

pytestmark = pytest.mark.root

MKFS = {"xfs": ["mkfs.xfs", "-q", "-m", "reflink=1"], "btrfs": ["mkfs.btrfs", "-q"]}
WRITTEN = 16 * MIB


@pytest.fixture(params=list(MKFS))
def disk(request: pytest.FixtureRequest, short_dir: pathlib.Path) -> Iterator[str]:
    """A disk of the kind that is returned, at the driver's state directory."""
    with localdriver.disk(short_dir, MKFS[request.param]):
        yield request.param


@pytest.fixture
async def harness(
    disk: str, short_dir: pathlib.Path, spawner: processes.Processes
) -> AsyncIterator[Harness]:
    async with localdriver.running(short_dir, spawner, "--capacity=100Gi") as made:
        yield made


async def filled(harness: Harness, client: Client, want: v1.VolumeCapability) -> Use:
    """Return a volume in use with data in it, all of them on the disk."""
    request = create_request("v", size=64 * MIB, want=[want], parameters={"backend": "image"})
    use = Use(client, harness.home, await client.create(request), want)
    await use.stage()
    await use.publish()

    def write() -> None:
        place = use.target / "data" if use.target.is_dir() else use.target
        with place.open("wb" if use.target.is_dir() else "r+b") as file:
            file.write(os.urandom(WRITTEN))
            file.flush()
            os.fsync(file.fileno())

    await asyncio.to_thread(write)
    return use


def shared_bytes(image: pathlib.Path) -> int:
    """Return how much of a file the kernel says to be shared with others."""
    told = subprocess.run(
        ["filefrag", "-s", "-v", "-b1024", image], capture_output=True, text=True, check=True
    )
    rows = re.findall(r"^ *\d+: .*?: +(\d+):.*\bshared\b", told.stdout, re.MULTILINE)
    return 1024 * sum(int(length) for length in rows)


@pytest.mark.parametrize("kind", ["ext4", "block"])
async def test_copies_of_an_image_in_use_share_its_blocks(
    harness: Harness, disk: str, kind: str
) -> None:
    want = localdriver.block_capability() if kind == "block" else capability(fs_type=kind)
    async with harness.client() as client:
        use = await filled(harness, client, want)
        snapshot = await client.snapshot("s", use.volume_id)
        parameters = {"backend": "image"}
        copies = [
            await client.create(
                create_request(name, size=64 * MIB, want=[want], parameters=parameters, source=one)
            )
            for name, one in (("back", snapshot), ("clone", v1.Volume(volume_id=use.volume_id)))
        ]
        images = harness.state / "image"
        every = [use.volume_id, snapshot.snapshot_id, *(one.volume_id for one in copies)]
        for content_id in every:
            shared = await asyncio.to_thread(shared_bytes, images / f"{content_id}.img")
            assert shared >= WRITTEN, f"{content_id} on {disk}"
        await use.unpublish()
        await use.unstage()
        data = [await asyncio.to_thread((images / f"{one}.img").read_bytes) for one in every[:2]]
        if kind == "block":
            assert data[0] == data[1]
        for one in (use.volume_id, *(copy.volume_id for copy in copies)):
            await client.delete(one)
        await client.delete_snapshot(snapshot.snapshot_id)
    assert harness.content() == []


async def test_a_disk_of_btrfs_offers_subvolumes_without_a_file_for_them(
    harness: Harness, disk: str
) -> None:
    async with harness.client() as client:
        call = client.create(create_request("v", parameters={"backend": "btrfs"}))
        if disk != "btrfs":
            with pytest.raises(RpcError, match="this node has directory, image"):
                await call
            return
        volume = await call
        assert not (harness.state / "btrfs.img").exists()
        folder = harness.state / "btrfs" / volume.volume_id
        assert await asyncio.to_thread(lambda: folder.stat().st_ino) == 256
        await client.delete(volume.volume_id)
