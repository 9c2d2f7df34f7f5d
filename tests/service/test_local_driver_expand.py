"""Volumes made larger, lying idle and in use, and across a crash: real file systems that grow."""

import asyncio
import os
import pathlib
from collections.abc import AsyncIterator

import pytest
from bitts.csi import v1
from bitts.rpc.codes import Code, RpcError
from local_driver import growing
from local_driver.steps import STEPS_OF
from support import localdriver, processes
from support.localdriver import MIB, Client, Harness, Use, capability, create_request

SIZES = {"ext4": 8 * MIB, "xfs": 300 * MIB, "block": 8 * MIB}
ONLINE = growing.is_online("ext4")
IMAGES = [pytest.param(kind, id=kind) for kind in SIZES]


@pytest.fixture
async def harness(short_dir: pathlib.Path, spawner: processes.Processes) -> AsyncIterator[Harness]:
    made = Harness(short_dir, spawner)
    yield made
    leaked = await asyncio.to_thread(made.leaked)
    await asyncio.to_thread(made.close)
    assert leaked == []


async def made(harness: Harness, client: Client, kind: str) -> Use:
    block = localdriver.block_capability()
    want = block if kind == "block" else capability(fs_type=kind)
    request = create_request("v", size=SIZES[kind], want=[want], parameters={"backend": "image"})
    return Use(client, harness.home, await client.create(request), want)


async def seen_size(use: Use) -> int:
    """The bytes that the pod sees: of the file system, or of the device."""
    if use.target.is_dir():
        return await use.total()

    def measured() -> int:
        with use.target.open("rb") as device:
            return device.seek(0, os.SEEK_END)

    return await asyncio.to_thread(measured)


async def refused(call: object, code: Code, word: str) -> None:
    with pytest.raises(RpcError) as caught:
        await call  # type: ignore[misc]
    assert caught.value.code is code, caught.value
    assert word in caught.value.message


@pytest.mark.root
@pytest.mark.parametrize("kind", IMAGES)
async def test_a_volume_grows_while_it_is_used(harness: Harness, kind: str) -> None:
    await harness.start()
    async with harness.client() as client:
        use = await made(harness, client, kind)
        await use.stage()
        await use.publish()
        place = use.target / "data" if use.target.is_dir() else use.target
        await asyncio.to_thread(place.write_bytes, b"precious")
        before = await seen_size(use)
        assert await client.expand(use.volume_id, 3 * SIZES[kind])
        assert await seen_size(use) == before
        if kind == "ext4" and not ONLINE:
            await refused(use.expand(3 * SIZES[kind]), Code.FAILED_PRECONDITION, "CAP_SYS_RESOURCE")
            await use.unpublish()
            await use.unstage()
            await use.stage()
            await use.publish()
        assert await use.expand(3 * SIZES[kind]) == 3 * SIZES[kind]
        assert await use.expand(3 * SIZES[kind], use.staging) == 3 * SIZES[kind]
        assert await seen_size(use) > 2 * SIZES[kind]
        assert (await asyncio.to_thread(place.read_bytes))[:8] == b"precious"
        await use.unpublish()
        await use.unstage()
        await client.delete(use.volume_id)


@pytest.mark.root
@pytest.mark.parametrize("kind", IMAGES)
async def test_a_volume_that_grew_idle_is_staged_at_its_new_size(
    harness: Harness, kind: str
) -> None:
    await harness.start()
    async with harness.client() as client:
        use = await made(harness, client, kind)
        await use.stage()
        await use.unstage()
        await client.expand(use.volume_id, 2 * SIZES[kind])
        await use.stage()
        await use.publish()
        assert await seen_size(use) > 1.5 * SIZES[kind]
        await use.unpublish()
        await use.unstage()
        await client.delete(use.volume_id)


CUT_OFF = """#!/bin/sh
for image; do :; done
dd if=/dev/urandom of="$image" bs=4096 count=512 conv=notrunc,fsync 2>/dev/null
kill -9 $PPID
"""
"""A resize2fs that dies in the middle of its work, and the driver with it."""


@pytest.mark.root
@pytest.mark.parametrize("words", [(), ("--fault=NodeStageVolume:crash=filesystem-grown",)])
async def test_growing_that_is_cut_off_leaves_the_file_system_as_it_was(
    harness: Harness, words: tuple[str, ...]
) -> None:
    folder = harness.home / "programs"
    folder.mkdir()
    (folder / "resize2fs").write_text(CUT_OFF)
    (folder / "resize2fs").chmod(0o700)
    path = f"{folder}:{os.environ['PATH']}"
    cut_off = {"PATH": path} if not words else None
    process = await harness.start(*words, without="sys_resource", environ=cut_off)
    async with harness.client() as client:
        use = await made(harness, client, "ext4")
        await use.stage()
        await asyncio.to_thread((use.staging / "data").write_bytes, b"precious")
        await use.unstage()
        await client.expand(use.volume_id, 4 * SIZES["ext4"])
        with pytest.raises(RpcError, match="Unavailable"):
            await use.stage()
    await process.wait()
    await harness.start(without="sys_resource")
    async with harness.client() as client:
        assert harness.content() == [f"image/{use.volume_id}.img", f"volumes/{use.volume_id}.json"]
        await use.on(client).stage()
        assert await asyncio.to_thread((use.staging / "data").read_bytes) == b"precious"
        await use.publish()
        assert await seen_size(use) > 3 * SIZES["ext4"]
        await use.unpublish()
        await use.unstage()
        await client.delete(use.volume_id)


async def test_sizes_that_cannot_be_are_refused(harness: Harness) -> None:
    await harness.start("--capacity=20Mi")
    async with harness.client() as client:
        volume = (await client.create(create_request("v"))).volume_id
        assert not await client.expand(volume, 8 * MIB)
        assert not await client.expand(volume, 1)
        await refused(client.expand(volume, 21 * MIB), Code.RESOURCE_EXHAUSTED, "required_bytes")
        await refused(client.expand(volume, 9 * MIB, 8 * MIB), Code.OUT_OF_RANGE, "limit_bytes")
        await refused(client.expand(volume, 1, 2), Code.OUT_OF_RANGE, "limit_bytes")
        await refused(client.expand("no-volume", 1), Code.NOT_FOUND, "no-volume")
        unsized = v1.ControllerExpandVolumeRequest(volume_id=volume)
        call = client.controller.controller_expand_volume(unsized, timeout=localdriver.TIMEOUT)
        await refused(call, Code.INVALID_ARGUMENT, "capacity_range")
        await client.expand(volume, 20 * MIB)
        use = Use(client, harness.home, v1.Volume(volume_id=volume), capability())
        await refused(use.expand(21 * MIB), Code.OUT_OF_RANGE, "controller")
        await refused(use.expand(20 * MIB), Code.NOT_FOUND, "volume_path")


async def test_many_that_grow_at_once_share_the_room(harness: Harness) -> None:
    await harness.start("--capacity=30Mi")
    async with harness.client() as client:
        made_ids = [
            (await client.create(create_request(f"v{number}", size=MIB))).volume_id
            for number in range(10)
        ]
        outcomes = await asyncio.gather(
            *(client.expand(volume_id, 6 * MIB) for volume_id in made_ids), return_exceptions=True
        )
        assert sum(not isinstance(one, BaseException) for one in outcomes) == 4


@pytest.mark.parametrize("backend", ["directory", "image"])
@pytest.mark.parametrize("point", ["before", *STEPS_OF["ControllerExpandVolume"], "after"])
async def test_a_volume_whose_growing_was_cut_off_has_the_old_size_or_the_new(
    harness: Harness, backend: str, point: str
) -> None:
    await harness.start(f"--fault-socket={harness.home}/faults.sock")
    async with harness.client() as client:
        request = create_request("v", parameters={"backend": backend})
        volume = await client.create(request)
        await harness.faults(f"add ControllerExpandVolume:crash={point}")
        with pytest.raises(RpcError):
            await client.expand(volume.volume_id, 16 * MIB)
    assert harness.process is not None
    await harness.process.wait()
    await harness.start()
    async with harness.client() as client:
        now = await client.create(request)
        assert now.capacity_bytes == (16 if point in ("document-renamed", "after") else 8) * MIB
        if backend == "image":
            image = harness.state / "image" / f"{volume.volume_id}.img"
            assert image.stat().st_size == now.capacity_bytes
        await client.expand(volume.volume_id, 16 * MIB)
        await client.delete(volume.volume_id)


@pytest.mark.root
@pytest.mark.parametrize("point", STEPS_OF["NodeExpandVolume"])
async def test_a_file_system_whose_growing_was_cut_off_grows_again(
    harness: Harness, point: str
) -> None:
    await harness.start(f"--fault-socket={harness.home}/faults.sock")
    async with harness.client() as client:
        use = await made(harness, client, "xfs")
        await use.stage()
        await use.publish()
        await client.expand(use.volume_id, 600 * MIB)
        await harness.faults(f"add NodeExpandVolume:crash={point}")
        with pytest.raises(RpcError):
            await use.expand(600 * MIB)
    assert harness.process is not None
    await harness.process.wait()
    await harness.start()
    async with harness.client() as client:
        use.on(client)
        assert await use.expand(600 * MIB) == 600 * MIB
        assert await use.total() > 500 * MIB
        await use.unpublish()
        await use.unstage()
        await client.delete(use.volume_id)
