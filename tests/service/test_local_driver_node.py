"""Volumes on their way to pods and back: real mounts and loop devices, with data in them."""

import asyncio
import os
import pathlib
import stat
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass

import pytest
from bitts.csi import v1
from bitts.rpc.codes import Code, RpcError
from support import leaks, localdriver, processes
from support.localdriver import MIB, Client, Harness, Mode, Use, capability, create_request

pytestmark = pytest.mark.root
TIMEOUT = localdriver.TIMEOUT


@pytest.fixture
async def harness(short_dir: pathlib.Path, spawner: processes.Processes) -> AsyncIterator[Harness]:
    made = Harness(short_dir, spawner)
    yield made
    leaked = await asyncio.to_thread(made.leaked)
    await asyncio.to_thread(made.close)
    assert leaked == []


@pytest.fixture
async def client(harness: Harness) -> AsyncIterator[Client]:
    await harness.start()
    async with harness.client() as opened:
        yield opened


@dataclass(frozen=True)
class Kind:
    """A sort of volume."""

    parameters: Mapping[str, str]
    want: v1.VolumeCapability
    size: int = 8 * MIB


KINDS = {
    "directory": Kind({}, capability()),
    "ext4": Kind({"backend": "image"}, capability(fs_type="ext4")),
    "xfs": Kind({"backend": "image"}, capability(fs_type="xfs"), 300 * MIB),
    "block": Kind({"backend": "image"}, localdriver.block_capability()),
}
MOUNTED = [name for name in KINDS if name != "block"]


async def made(
    client: Client, harness: Harness, kind: str, name: str = "v", **changes: object
) -> Use:
    sort = KINDS[kind]
    want = changes.get("want", sort.want)
    assert isinstance(want, v1.VolumeCapability)
    request = create_request(name, size=sort.size, want=[want], parameters=sort.parameters)
    return Use(client, harness.home, await client.create(request), want)


async def ended(use: Use, client: Client) -> None:
    await use.unpublish()
    await use.unstage()
    await client.delete(use.volume_id)


async def refused(call: object, code: Code, word: str = "") -> None:
    with pytest.raises(RpcError) as caught:
        await call  # type: ignore[misc]
    assert caught.value.code is code, caught.value
    assert word in caught.value.message


def write(path: pathlib.Path, data: bytes) -> None:
    """Write to a file, or to the device itself."""
    place = path / "data" if path.is_dir() else path
    with place.open("wb" if path.is_dir() else "r+b") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def read(path: pathlib.Path, size: int) -> bytes:
    with (path / "data" if path.is_dir() else path).open("rb") as file:
        return file.read(size)


@pytest.mark.parametrize("kind", KINDS)
async def test_data_stays_through_pods_and_restarts_until_the_volume_goes(
    client: Client, harness: Harness, kind: str
) -> None:
    use = await made(client, harness, kind)
    for _again in range(2):
        await use.stage()
        await use.publish()
    write(use.target, b"precious")
    await use.unpublish()
    assert not use.target.exists()
    await use.unpublish()
    await use.unstage()
    await use.unstage()
    assert harness.process is not None
    harness.process.kill()
    await harness.start()
    async with harness.client() as again:
        use.on(again)
        await use.stage()
        await use.publish()
        assert read(use.target, 8) == b"precious"
        await ended(use, again)
        assert harness.content() == []


@pytest.mark.parametrize("kind", KINDS)
async def test_mounts_and_devices_are_found_again_after_a_crash(
    client: Client, harness: Harness, kind: str
) -> None:
    use = await made(client, harness, kind)
    await use.stage()
    await use.publish()
    write(use.target, b"precious")
    before = leaks.snapshot()
    assert harness.process is not None
    harness.process.kill()
    await harness.start()
    async with harness.client() as again:
        use.on(again)
        await refused(again.delete(use.volume_id), Code.FAILED_PRECONDITION, "mounted at")
        await use.stage()
        await use.publish()
        after = leaks.snapshot()
        assert (after.mounts, after.loop_devices) == (before.mounts, before.loop_devices)
        assert read(use.target, 8) == b"precious"
        await ended(use, again)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_volume_in_use_is_not_deleted(client: Client, harness: Harness, kind: str) -> None:
    use = await made(client, harness, kind)
    await use.stage()
    word = "attached" if kind == "block" else "mounted"
    await refused(client.delete(use.volume_id), Code.FAILED_PRECONDITION, word)
    assert await client.list_ids() == [use.volume_id]
    await ended(use, client)


@pytest.mark.parametrize("kind", MOUNTED)
async def test_a_read_only_target_cannot_be_written(
    client: Client, harness: Harness, kind: str
) -> None:
    use = await made(client, harness, kind)
    await use.stage()
    await use.publish()
    write(use.target, b"precious")
    reader = await use.publish(harness.home / "reader", readonly=True)
    with pytest.raises(OSError, match="Read-only"):
        write(reader, b"spoilt")
    assert read(reader, 8) == b"precious"
    await use.publish(reader, readonly=True)
    await refused(use.publish(reader), Code.ALREADY_EXISTS, "read-only")
    await refused(use.publish(readonly=True), Code.ALREADY_EXISTS, "writable")
    await use.unpublish(reader)
    await ended(use, client)


async def test_a_read_only_device_cannot_be_written(client: Client, harness: Harness) -> None:
    use = await made(client, harness, "block")
    await use.stage()
    await use.publish()
    write(use.target, b"precious")
    reader = await use.publish(harness.home / "reader", readonly=True)
    assert stat.S_ISBLK(reader.stat().st_mode)
    with pytest.raises(PermissionError):
        write(reader, b"spoilt")
    assert read(reader, 8) == b"precious"
    await use.unpublish(reader)
    await ended(use, client)


async def test_a_reader_only_volume_is_staged_read_only(client: Client, harness: Harness) -> None:
    for number, kind in enumerate(MOUNTED):
        sort = KINDS[kind]
        fs_type = sort.want.mount.fs_type if sort.want.mount else ""
        want = capability(mode=Mode.SINGLE_NODE_READER_ONLY, fs_type=fs_type)
        use = await made(client, harness, kind, f"v{number}", want=want)
        await use.stage()
        await use.publish()
        with pytest.raises(OSError, match="Read-only"):
            write(use.target, b"spoilt")
        await ended(use, client)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_single_writer_has_one_target_and_many_writers_have_many(
    client: Client, harness: Harness, kind: str
) -> None:
    for number, mode in enumerate((Mode.SINGLE_NODE_SINGLE_WRITER, Mode.SINGLE_NODE_MULTI_WRITER)):
        sort = KINDS[kind]
        fs_type = sort.want.mount.fs_type if sort.want.mount else ""
        is_block = kind == "block"
        want = (
            localdriver.block_capability(mode)
            if is_block
            else capability(mode=mode, fs_type=fs_type)
        )
        use = await made(client, harness, kind, f"v{number}", want=want)
        await use.stage()
        await use.publish()
        second = harness.home / "second"
        if mode is Mode.SINGLE_NODE_SINGLE_WRITER:
            await refused(use.publish(second), Code.FAILED_PRECONDITION, "SINGLE_WRITER")
            await use.publish()
        else:
            await use.publish(second)
            await use.unpublish(second)
        assert not second.exists()
        await ended(use, client)


async def test_mount_options_take_effect_or_are_refused(client: Client, harness: Harness) -> None:
    image = await made(client, harness, "ext4", want=capability(flags=["noatime", "discard"]))
    await image.stage()
    await image.publish()
    mounted = [line for line in mountinfo() if image.volume_id in line]
    assert len(mounted) == 2
    assert all("noatime" in line and "discard" in line for line in mounted)
    folder = await made(client, harness, "directory", "w", want=capability(flags=["noexec"]))
    await folder.stage()
    await folder.publish()
    assert all("noexec" in line for line in mountinfo() if folder.volume_id in line)
    await folder.stage()  # the same again
    await folder.publish()
    stricter = folder.wanting(capability(flags=["noexec", "nosuid"]))
    await refused(stricter.stage(), Code.ALREADY_EXISTS, "nosuid")
    await refused(stricter.publish(), Code.ALREADY_EXISTS, "nosuid")
    wrong = await made(client, harness, "directory", "x", want=capability(flags=["discard"]))
    await refused(wrong.stage(), Code.INVALID_ARGUMENT, "mount_flags")
    bad = await made(client, harness, "ext4", "y", want=capability(flags=["nosuchoption"]))
    await refused(bad.stage(), Code.INTERNAL, bad.volume_id)
    for use in (image, folder, wrong, bad):
        await ended(use, client)


def mountinfo() -> list[str]:
    return pathlib.Path("/proc/self/mountinfo").read_text().splitlines()


async def test_statistics_tell_how_full_a_volume_is(client: Client, harness: Harness) -> None:
    async def stats(use: Use, path: pathlib.Path) -> Mapping[v1.VolumeUsageUnit, v1.VolumeUsage]:
        request = v1.NodeGetVolumeStatsRequest(volume_id=use.volume_id, volume_path=str(path))
        reply = await client.node.node_get_volume_stats(request, timeout=TIMEOUT)
        return {usage.unit: usage for usage in reply.usage}

    image = await made(client, harness, "ext4")
    await image.stage()
    await image.publish()
    before = await stats(image, image.target)
    write(image.target, bytes(2 * MIB))
    after = await stats(image, image.staging)
    used = after[v1.VolumeUsageUnit.BYTES].used - before[v1.VolumeUsageUnit.BYTES].used
    assert 2 * MIB <= used < 3 * MIB
    assert after[v1.VolumeUsageUnit.BYTES].total < 8 * MIB
    assert after[v1.VolumeUsageUnit.INODES].used == before[v1.VolumeUsageUnit.INODES].used + 1
    block = await made(client, harness, "block", "w")
    await block.stage()
    await block.publish()
    assert (await stats(block, block.target))[v1.VolumeUsageUnit.BYTES].total == 8 * MIB
    await refused(stats(block, image.target), Code.NOT_FOUND, str(image.target))
    await refused(stats(image, harness.home), Code.NOT_FOUND, "not mounted")
    for use in (image, block):
        await ended(use, client)


async def test_publishing_needs_staging_and_its_own_place(client: Client, harness: Harness) -> None:
    use = await made(client, harness, "ext4")
    await refused(use.publish(), Code.FAILED_PRECONDITION, "not staged")
    await use.stage()
    use.target.write_text("somebody's file")
    await refused(use.publish(), Code.FAILED_PRECONDITION, "no folder")
    use.target.unlink()
    other = await made(client, harness, "directory", "w")
    await other.stage()
    await other.publish(use.target)
    await refused(use.publish(), Code.FAILED_PRECONDITION, "has a mount")
    await use.unpublish()  # it is not there, so the other one's mount stays
    assert any(line.startswith(f"{use.target} ") for line in leaks.mounts())
    await other.unpublish(use.target)
    await ended(other, client)
    await ended(use, client)


async def test_a_raw_volume_is_never_mounted_afterwards(client: Client, harness: Harness) -> None:
    both = [localdriver.block_capability(), capability()]
    volume = await client.create(create_request("v", want=both, parameters={"backend": "image"}))
    raw = Use(client, harness.home, volume, both[0])
    await raw.stage()
    await raw.publish()
    write(raw.target, b"precious")
    await raw.unpublish()
    await raw.unstage()
    mounted = Use(client, harness.home, volume, both[1])
    await refused(mounted.stage(), Code.FAILED_PRECONDITION, "raw")
    await raw.stage()
    await raw.publish()
    assert read(raw.target, 8) == b"precious"
    await ended(raw, client)


async def test_a_pod_ends_even_if_the_metadata_is_gone(client: Client, harness: Harness) -> None:
    use = await made(client, harness, "ext4")
    await use.stage()
    await use.publish()
    assert harness.process is not None
    await harness.process.stop()
    (harness.state / "volumes" / f"{use.volume_id}.json").unlink()
    process = await harness.start()
    await process.wait_for_output("cannot be removed")  # the sweep leaves alone what is in use
    async with harness.client() as again:
        use.on(again)
        await ended(use, again)
        assert harness.content() == []


async def test_many_pods_at_once_leave_nothing(client: Client, harness: Harness) -> None:
    async def life(number: int) -> None:
        kind = list(KINDS)[number % len(KINDS)]
        use = await made(client, harness, kind, f"v{number}")
        await use.stage()
        await use.publish()
        write(use.target, f"data of {number}".encode())
        assert read(use.target, 7) == b"data of"
        await ended(use, client)

    await asyncio.gather(*(life(number) for number in range(40)))
    assert harness.content() == []


async def test_a_busy_mount_is_told_and_goes_when_its_user_has_gone(
    client: Client, harness: Harness
) -> None:
    use = await made(client, harness, "ext4")
    await use.stage()
    await use.publish()
    sleeper = await asyncio.create_subprocess_exec("sleep", "60", cwd=use.target)
    await refused(use.unpublish(), Code.FAILED_PRECONDITION, "still uses it")
    sleeper.kill()
    await sleeper.wait()
    await ended(use, client)


async def test_without_root_volumes_are_made_and_the_rest_is_refused_with_the_reason(
    harness: Harness, spawner: processes.Processes
) -> None:
    home = harness.home / "user"
    home.mkdir()
    home.chmod(0o777)
    harness.home.chmod(0o755)
    user = Harness(home, spawner)
    process = await user.start(as_user=65534)
    await process.wait_for_output("Not root")
    async with user.client() as client:
        for name, kind in (("v", "directory"), ("w", "ext4")):
            use = await made(client, harness, kind, name)
            use.staging.chmod(0o777)
            await refused(use.stage(), Code.FAILED_PRECONDITION, "run the driver as root")
            await client.delete(use.volume_id)
        assert user.content() == []
    assert await process.stop() == 0
