"""A disk that is full to its last block: what is there stays whole, and what is refused says so."""

import asyncio
import contextlib
import os
import pathlib
from collections.abc import AsyncIterator, Iterator

import pytest
from bitts.rpc.codes import Code, RpcError
from support import localdriver, processes
from support.localdriver import MIB, Client, Harness, Use, capability, create_request

pytestmark = pytest.mark.root

SIZE, LARGER = 16 * MIB, 256 * MIB
EXT4 = capability(fs_type="ext4")
IMAGE = {"backend": "image"}


@pytest.fixture
def disk(short_dir: pathlib.Path) -> Iterator[pathlib.Path]:
    with localdriver.disk(short_dir, ["mkfs.ext4", "-q", "-m0"]):
        yield short_dir / "state"


@pytest.fixture
async def harness(
    disk: pathlib.Path, short_dir: pathlib.Path, spawner: processes.Processes
) -> AsyncIterator[Harness]:
    async with localdriver.running(short_dir, spawner, "--capacity=100Gi") as made:
        yield made


@pytest.fixture
async def client(harness: Harness) -> AsyncIterator[Client]:
    async with harness.client() as opened:
        yield opened


@contextlib.contextmanager
def full(disk: pathlib.Path) -> Iterator[None]:
    """Fill a disk to its last block for the length of a block; blocks."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file:
        for chunk in (MIB, 4096):
            with contextlib.suppress(OSError):
                while True:
                    file.write(bytes(chunk))
    os.sync()
    yield
    filler.unlink()
    os.sync()


async def used(client: Client, harness: Harness, name: str) -> Use:
    """Return a volume with data in it, staged."""
    request = create_request(name, size=SIZE, want=[EXT4], parameters=IMAGE)
    use = Use(client, harness.home, await client.create(request), EXT4)
    await use.stage()
    await asyncio.to_thread(write, use.staging / "data")
    return use


def write(place: pathlib.Path) -> None:
    with place.open("wb") as file:
        file.write(b"precious")
        file.flush()
        os.fsync(file.fileno())


async def refused(call: object, word: str) -> None:
    with pytest.raises(RpcError) as caught:
        await call  # type: ignore[misc]
    assert caught.value.code is Code.RESOURCE_EXHAUSTED, caught.value
    assert word in caught.value.message


async def staged_again(use: Use) -> int:
    """Stage a volume anew, read its data; return how large its file system is."""
    await use.unstage()
    await use.stage()
    assert await asyncio.to_thread((use.staging / "data").read_bytes) == b"precious"
    stats = await asyncio.to_thread(os.statvfs, use.staging)
    return stats.f_blocks * stats.f_frsize


async def test_growing_that_cannot_be_recorded_changes_nothing(
    client: Client, harness: Harness, disk: pathlib.Path
) -> None:
    use = await used(client, harness, "v")
    image = disk / "image" / f"{use.volume_id}.img"
    folder = await client.create(create_request("w"))
    with full(disk):
        await refused(client.expand(use.volume_id, LARGER), "No space left")
        assert image.stat().st_size == SIZE
        assert await staged_again(use) < SIZE
        await refused(client.expand(folder.volume_id, LARGER), "No space left")
        assert not [name for name in harness.content() if name.endswith(".partial")]
    assert (await client.create(create_request("w"))).capacity_bytes == folder.capacity_bytes
    await client.expand(use.volume_id, LARGER)
    assert await staged_again(use) > LARGER // 2
    await use.unstage()
    await client.delete(use.volume_id)


async def test_a_file_system_grows_only_where_the_disk_has_room_for_that(
    client: Client, harness: Harness, disk: pathlib.Path
) -> None:
    use = await used(client, harness, "v")
    await use.unstage()
    await client.expand(use.volume_id, LARGER)
    with full(disk):
        await use.stage()
        assert await staged_again(use) < SIZE
        await refused(use.expand(LARGER, use.staging), "too little is left")
    assert await staged_again(use) > LARGER // 2
    await use.unstage()
    await client.delete(use.volume_id)


async def test_what_needs_room_is_refused_and_what_frees_some_is_done(
    client: Client, harness: Harness, disk: pathlib.Path
) -> None:
    use = await used(client, harness, "v")
    blank = await client.create(create_request("b", size=SIZE, want=[EXT4], parameters=IMAGE))
    folder = await client.create(create_request("f"))
    await asyncio.to_thread(write, disk / "directory" / folder.volume_id / "data")
    with full(disk):
        await refused(Use(client, harness.home, blank, EXT4).stage(), "mkfs.ext4")
        await refused(client.snapshot("s", use.volume_id), "No space left")
        await refused(client.snapshot("s", folder.volume_id), "No space left")
        await refused(client.create(create_request("c", source=folder)), "No space left")
        assert len(harness.content()) == 6
        await client.delete(folder.volume_id)
        await client.delete(blank.volume_id)
        assert await staged_again(use) < SIZE
    await use.unstage()
    await client.delete(use.volume_id)
    assert harness.content() == []
