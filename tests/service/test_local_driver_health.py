"""What the RPCs of CSI 1.13 tell of volumes and disks that are not well."""

import asyncio
import os
import pathlib
import shutil
from collections.abc import AsyncIterator, Iterator

import pytest
from bitts.csi import v1
from bitts.rpc.codes import Code, RpcError
from local_driver import mounts
from support import localdriver, processes
from support.localdriver import Client, Harness, create_request

TIMEOUT = localdriver.TIMEOUT
Status = v1.VolumeHealthErrorType
Below = v1.StorageHealthErrorType


@pytest.fixture
async def harness(short_dir: pathlib.Path, spawner: processes.Processes) -> AsyncIterator[Harness]:
    made = Harness(short_dir, spawner)
    yield made
    if made.process is not None and made.process.alive:
        await made.process.stop()


async def listed(client: Client, size: int = 0) -> list[list[v1.VolumeHealth]]:
    """Return the abnormal volumes, page by page."""
    pages, token = [], ""
    while True:
        request = v1.ControllerListVolumeHealthRequest(max_entries=size, starting_token=token)
        reply = await client.controller.controller_list_volume_health(request, timeout=TIMEOUT)
        pages.append(reply.entries)
        token = reply.next_token
        if not token:
            return pages


def told(health: v1.VolumeHealth) -> tuple[Status, str]:
    (only,) = health.health_statuses
    return Status(only.status), only.reason


async def test_a_volume_that_gets_well_between_two_pages_hides_no_other(harness: Harness) -> None:
    await harness.start("--backends=directory", "--csi=1.13")
    async with harness.client() as client:
        ids = sorted(
            [(await client.create(create_request(name))).volume_id for name in ("a", "b", "c")]
        )
        for volume_id in ids:
            (harness.state / "directory" / volume_id).rmdir()
        rpc = client.controller.controller_list_volume_health
        request = v1.ControllerListVolumeHealthRequest(max_entries=2)
        page = await rpc(request, timeout=TIMEOUT)
        assert [one.volume_id for one in page.entries] == ids[:2]
        (harness.state / "directory" / ids[0]).mkdir()
        await client.delete(ids[1])  # the very one that the next page starts after
        request = v1.ControllerListVolumeHealthRequest(starting_token=page.next_token)
        assert [one.volume_id for one in (await rpc(request, timeout=TIMEOUT)).entries] == ids[2:]
        for token in ("2", ids[0], "x"):
            request = v1.ControllerListVolumeHealthRequest(starting_token=token)
            with pytest.raises(RpcError, match="none of ours") as caught:
                await rpc(request, timeout=TIMEOUT)
            assert caught.value.code is Code.ABORTED


async def test_every_abnormal_volume_is_listed_page_by_page_with_what_is_wrong(
    harness: Harness,
) -> None:
    process = await harness.start("--backends=directory,image", "--csi=1.13")
    async with harness.client() as client:
        kept, gone, ill, off = [
            (await client.create(create_request(name, parameters={"backend": backend}))).volume_id
            for name, backend in (
                ("kept", "directory"),
                ("gone", "directory"),
                ("ill", "directory"),
                ("off", "image"),
            )
        ]
    await process.stop()
    await asyncio.to_thread(shutil.rmtree, harness.state / "directory" / gone)
    (harness.state / "volumes" / f"{ill}.json").write_text("{")
    await harness.start("--backends=directory", "--csi=1.13")
    async with harness.client() as client:
        expected = {
            gone: (Status.DATA_LOSS, "ContentMissing"),
            ill: (Status.INACCESSIBLE, "RecordDamaged"),
            off: (Status.INACCESSIBLE, "BackendOff"),
        }
        (whole,) = await listed(client)
        assert {one.volume_id: told(one) for one in whole} == expected
        pages = await listed(client, 2)
        assert [len(page) for page in pages] == [2, 1]
        assert [one for page in pages for one in page] == whole
        for volume_id in (gone, off, kept):
            request = v1.ControllerGetVolumeHealthRequest(volume_id=volume_id)
            reply = await client.controller.controller_get_volume_health(request, timeout=TIMEOUT)
            seen = v1.NodeGetVolumeHealthRequest(volume_id=volume_id)
            at_node = await client.node.node_get_volume_health(seen, timeout=TIMEOUT)
            for health in (reply.volume_health, at_node.volume_health):
                assert health is not None
                found = told(health) if health.health_statuses else None
                assert found == expected.get(volume_id)


async def test_volumes_that_are_not_there_have_no_health(harness: Harness) -> None:
    await harness.start("--csi=1.13")
    async with harness.client() as client:
        by_controller = client.controller.controller_get_volume_health
        by_node = client.node.node_get_volume_health
        cases = [
            (by_controller(v1.ControllerGetVolumeHealthRequest(), timeout=TIMEOUT), 3),
            (by_controller(v1.ControllerGetVolumeHealthRequest("none"), timeout=TIMEOUT), 5),
            (by_node(v1.NodeGetVolumeHealthRequest(), timeout=TIMEOUT), 3),
            (by_node(v1.NodeGetVolumeHealthRequest(volume_id="none"), timeout=TIMEOUT), 5),
        ]
        for call, code in cases:
            with pytest.raises(RpcError) as caught:
                await call
            assert caught.value.code is Code(code)


@pytest.fixture
def disk(short_dir: pathlib.Path) -> Iterator[pathlib.Path]:
    """A disk of the driver's own, which the kernel makes read-only when it meets an error."""
    with localdriver.disk(short_dir, ["mkfs.ext4", "-q", "-m0"], "loop,errors=remount-ro"):
        yield short_dir / "state"


async def below(client: Client) -> dict[str, Below]:
    """What is wrong with the storage below all volumes."""
    request = v1.NodeGetStorageHealthRequest()
    reply = await client.node.node_get_storage_health(request, timeout=TIMEOUT)
    return {one.reason: Below(one.status) for one in reply.backend_health}


@pytest.mark.root
async def test_a_disk_that_is_nearly_full_is_degraded_storage(
    disk: pathlib.Path, harness: Harness
) -> None:
    await harness.start("--backends=directory,image", "--csi=1.13")

    async with harness.client() as client:
        assert await below(client) == {}
        await asyncio.to_thread(fill, disk / "filler")
        degraded = Below.STORAGE_DEGRADED
        assert await below(client) == {"DiskFullDirectory": degraded, "DiskFullImage": degraded}
        (disk / "filler").unlink()
        assert await below(client) == {}


@pytest.mark.root
async def test_a_disk_that_the_kernel_made_read_only_is_told_of_and_takes_no_more(
    disk: pathlib.Path, harness: Harness
) -> None:
    await harness.start("--backends=directory,image", "--capacity=100Gi", "--csi=1.13")
    async with harness.client() as client:
        volume = await client.create(create_request("v"))
        await asyncio.to_thread(spoil, disk)
        degraded = Below.STORAGE_DEGRADED
        assert await below(client) == {
            "DiskReadOnlyDirectory": degraded, "DiskReadOnlyImage": degraded
        }  # fmt: skip
        ((health,),) = await listed(client)
        assert (health.volume_id, told(health)) == (
            volume.volume_id, (Status.DEGRADED, "DiskReadOnly")
        )  # fmt: skip
        for backend in ("directory", "image"):
            with pytest.raises(RpcError, match="nothing can be made here") as caught:
                await client.create(create_request("w", parameters={"backend": backend}))
            assert caught.value.code is Code.RESOURCE_EXHAUSTED
        with pytest.raises(RpcError, match="see dmesg") as caught:
            await client.delete(volume.volume_id)
        assert caught.value.code is Code.FAILED_PRECONDITION
        assert await client.create(create_request("v")) == volume


def spoil(disk: pathlib.Path) -> None:
    """Have the kernel meet an error in a file system."""
    device = mounts.containing(disk).source.rpartition("/")[2]
    pathlib.Path(f"/sys/fs/ext4/{device}/trigger_fs_error").write_text("test\n")


def fill(place: pathlib.Path) -> None:
    """Take all but a hundredth of a disk."""
    stats = os.statvfs(place.parent)
    with place.open("wb") as file:
        left = (stats.f_bavail - stats.f_blocks // 100) * stats.f_frsize
        os.posix_fallocate(file.fileno(), 0, left)
