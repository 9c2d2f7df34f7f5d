"""fsGroup left to the driver: volumes of every backend in the hands of their group."""

import asyncio
import pathlib
import stat
from collections.abc import AsyncIterator

import pytest
from bitts.csi import v1
from bitts.rpc.codes import Code, RpcError
from support import localdriver, processes
from support.localdriver import MIB, Client, Harness, Use, capability, create_request

pytestmark = pytest.mark.root
SIZES = {"directory": 8 * MIB, "image": 8 * MIB, "btrfs": 16 * MIB}


@pytest.fixture
async def harness(short_dir: pathlib.Path, spawner: processes.Processes) -> AsyncIterator[Harness]:
    made = Harness(short_dir, spawner)
    yield made
    if made.process is not None:
        await made.process.stop()
    leaked = await asyncio.to_thread(made.leaked)
    await asyncio.to_thread(made.close)
    assert leaked == []


@pytest.fixture
async def client(harness: Harness) -> AsyncIterator[Client]:
    await harness.start("--btrfs-size=256Mi", f"--fault-socket={harness.home}/faults.sock")
    async with harness.client() as opened:
        yield opened


def grouped(
    group: int | str, mode: localdriver.Mode = localdriver.Mode.SINGLE_NODE_WRITER
) -> v1.VolumeCapability:
    want = capability(mode=mode)
    assert want.mount is not None
    want.mount.volume_mount_group = str(group)
    return want


async def made(client: Client, harness: Harness, backend: str) -> v1.Volume:
    request = create_request("v", size=SIZES[backend], parameters={"backend": backend})
    return await client.create(request)


def facts(path: pathlib.Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_gid, found.st_mode & (stat.S_ISGID | stat.S_IRWXG)


FULLY = stat.S_ISGID | stat.S_IRWXG


@pytest.mark.parametrize("backend", SIZES)
async def test_a_volume_belongs_to_the_group_it_is_staged_for(
    client: Client, harness: Harness, backend: str
) -> None:
    volume = await made(client, harness, backend)
    first = Use(client, harness.home, volume, grouped(4321))
    for _again in range(2):
        await first.stage()
        await first.publish()
    assert facts(first.target) == (4321, FULLY)
    file = first.target / "file"
    file.touch(mode=0o600)
    assert file.stat().st_gid == 4321
    await first.unpublish()
    await first.unstage()
    plain = Use(client, harness.home, volume, capability())
    await plain.stage()
    await plain.publish()
    assert facts(plain.target) == (4321, FULLY)
    await plain.unpublish()
    await plain.unstage()
    second = Use(client, harness.home, volume, grouped(8765))
    await second.stage()
    await second.publish()
    assert facts(second.target) == (8765, FULLY)
    assert facts(file) == (8765, stat.S_IRGRP | stat.S_IWGRP)
    await second.unpublish()
    await second.unstage()
    await client.delete(volume.volume_id)


async def test_the_latest_group_has_a_volume_that_is_staged_already(
    client: Client, harness: Harness
) -> None:
    # As the kubelet has it: a volume is staged once, and each pod published with its own group.
    volume = await made(client, harness, "directory")
    first = Use(client, harness.home, volume, grouped(4321))
    await first.stage()
    await first.publish()
    (first.target / "file").touch()
    second = Use(client, harness.home, volume, grouped(8765))
    other = await second.publish(harness.home / "targets" / "other")
    assert facts(other) == (8765, FULLY)
    assert (other / "file").stat().st_gid == 8765
    await first.publish()
    assert facts(first.target) == (4321, FULLY)
    await second.unpublish(other)
    await first.unpublish()
    await first.unstage()


async def test_what_is_only_read_keeps_its_group(client: Client, harness: Harness) -> None:
    volume = await made(client, harness, "image")
    writer = Use(client, harness.home, volume, capability())
    await writer.stage()
    await writer.publish()
    before = facts(writer.target)
    await writer.unpublish()
    reader = Use(client, harness.home, volume, grouped(4321))
    await reader.publish(readonly=True)
    assert facts(reader.target) == before
    await reader.unpublish()
    await reader.unstage()
    only = Use(client, harness.home, volume, grouped(1, localdriver.Mode.SINGLE_NODE_READER_ONLY))
    await only.stage()
    await only.publish()
    assert facts(only.target) == before
    await only.unpublish()
    await only.unstage()


@pytest.mark.parametrize("group", ["staff", "-1", "4294967295", "4 2"])
async def test_a_group_that_is_no_number_is_named(
    client: Client, harness: Harness, group: str
) -> None:
    use = Use(client, harness.home, await made(client, harness, "directory"), grouped(group))
    with pytest.raises(RpcError, match=r"mount\.volume_mount_group: .* 0 to 4294967294") as caught:
        await use.stage()
    assert caught.value.code is Code.INVALID_ARGUMENT


async def test_a_driver_that_dies_before_giving_a_volume_gives_it_next_time(
    client: Client, harness: Harness
) -> None:
    use = Use(client, harness.home, await made(client, harness, "image"), grouped(4321))
    await harness.faults("add NodeStageVolume:crash=mounted")
    with pytest.raises(RpcError):
        await use.stage()
    assert facts(use.staging)[0] == 0
    assert harness.process is not None
    await harness.process.wait()
    await harness.start()
    async with harness.client() as again:
        use.on(again)
        await use.stage()
        assert facts(use.staging) == (4321, FULLY)
        await use.unstage()
