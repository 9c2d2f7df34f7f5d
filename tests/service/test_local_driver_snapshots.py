"""Snapshots, restores and clones of real volumes with data in them, in use and not."""

import asyncio
import os
import pathlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass

import pytest
from bitts.csi import v1
from bitts.rpc.codes import Code, RpcError
from local_driver import volumes
from local_driver.steps import STEPS_OF
from support import localdriver, processes, waiting
from support.localdriver import MIB, Client, Harness, Use, capability, create_request

pytestmark = pytest.mark.root
TIMEOUT = localdriver.TIMEOUT


@dataclass(frozen=True)
class Kind:
    """A sort of volume."""

    backend: str
    want: v1.VolumeCapability
    size: int = 8 * MIB

    @property
    def parameters(self) -> Mapping[str, str]:
        return {"backend": self.backend}


KINDS = {
    "directory": Kind("directory", capability()),
    "btrfs": Kind("btrfs", capability()),
    "ext4": Kind("image", capability(fs_type="ext4")),
    "xfs": Kind("image", capability(fs_type="xfs"), 300 * MIB),
    "block": Kind("image", localdriver.block_capability()),
}
IN_USE = ["ext4", "xfs", "btrfs"]
FLAGS = ["--btrfs-size=1Gi", "--capacity=100Gi"]


@pytest.fixture
async def harness(short_dir: pathlib.Path, spawner: processes.Processes) -> AsyncIterator[Harness]:
    made = Harness(short_dir, spawner)
    yield made
    if made.process is not None and made.process.alive:
        await made.process.stop()
    leaked = await asyncio.to_thread(made.leaked)
    await asyncio.to_thread(made.close)
    assert leaked == []


@pytest.fixture
async def client(harness: Harness) -> AsyncIterator[Client]:
    await harness.start(f"--fault-socket={harness.home}/faults.sock", *FLAGS)
    async with harness.client() as opened:
        yield opened


async def created(
    client: Client,
    harness: Harness,
    kind: Kind,
    name: str,
    source: v1.Snapshot | v1.Volume | None = None,
    size: int = 0,
) -> tuple[v1.Volume, Use]:
    volume = await client.create(
        create_request(
            name,
            size=size or kind.size,
            want=[kind.want],
            parameters=kind.parameters,
            source=source,
        )
    )
    return volume, Use(client, harness.home, volume, kind.want)


async def refused(call: object, code: Code, word: str = "") -> None:
    with pytest.raises(RpcError) as caught:
        await call  # type: ignore[misc]
    assert caught.value.code is code, caught.value
    assert word in caught.value.message


async def up(use: Use) -> None:
    await use.stage()
    await use.publish()


async def down(use: Use) -> None:
    await use.unpublish()
    await use.unstage()


async def write(use: Use, data: bytes) -> None:
    await asyncio.to_thread(_write, use.target, data)


def _write(path: pathlib.Path, data: bytes) -> None:
    place = path / "data" if path.is_dir() else path
    with place.open("wb" if path.is_dir() else "r+b") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


async def read(use: Use, size: int = 3) -> bytes:
    def reading() -> bytes:
        path = use.target
        with (path / "data" if path.is_dir() else path).open("rb") as file:
            return file.read(size)

    return await asyncio.to_thread(reading)


@pytest.mark.parametrize("name", KINDS)
async def test_content_of_an_instant_comes_back(
    client: Client, harness: Harness, name: str
) -> None:
    kind = KINDS[name]
    volume, use = await created(client, harness, kind, "v")
    await up(use)
    await write(use, b"old")
    await down(use)
    snapshot = await client.snapshot("s", volume.volume_id)
    assert snapshot.ready_to_use
    assert (snapshot.source_volume_id, snapshot.size_bytes) == (volume.volume_id, kind.size)
    assert await client.snapshot("s", volume.volume_id) == snapshot
    clone, cloned = await created(client, harness, kind, "clone", volume)
    await up(use)
    await write(use, b"new")
    restored, back = await created(client, harness, kind, "back", snapshot, kind.size * 2)
    assert restored.capacity_bytes == kind.size * 2
    assert restored.content_source == v1.VolumeContentSource(
        snapshot=v1.VolumeContentSourceSnapshotSource(snapshot_id=snapshot.snapshot_id)
    )
    await up(back)
    await up(cloned)
    assert [await read(one) for one in (use, cloned, back)] == [b"new", b"old", b"old"]
    if name in IN_USE:
        assert await back.total() > kind.size * 1.5
    await write(cloned, b"own")
    assert [await read(one) for one in (use, cloned, back)] == [b"new", b"own", b"old"]
    for one in (use, cloned, back):
        await down(one)
    for gone in (volume, clone):  # a snapshot outlives its volume, and what was made of it
        await client.delete(gone.volume_id)
    assert await client.list_snapshots() == [snapshot]
    await client.delete_snapshot(snapshot.snapshot_id)
    await client.delete_snapshot(snapshot.snapshot_id)
    await client.delete(restored.volume_id)
    assert harness.content() == []


@pytest.mark.parametrize("name", IN_USE)
async def test_a_file_system_in_use_is_copied_whole(
    client: Client, harness: Harness, name: str
) -> None:
    kind = KINDS[name]
    volume, use = await created(client, harness, kind, "v")
    await up(use)
    await write(use, b"old")
    snapshot = await client.snapshot("s", volume.volume_id)
    clone, cloned = await created(client, harness, kind, "clone", volume)
    await write(use, b"new")  # the file system is thawed
    back_volume, back = await created(client, harness, kind, "back", snapshot)
    await up(back)
    await up(cloned)
    assert [await read(one) for one in (use, back, cloned)] == [b"new", b"old", b"old"]
    for one in (use, back, cloned):
        await down(one)
    for gone in (volume, clone, back_volume):
        await client.delete(gone.volume_id)
    await client.delete_snapshot(snapshot.snapshot_id)
    assert harness.content() == []


async def test_what_cannot_be_copied_at_one_instant_is_refused_in_use(
    client: Client, harness: Harness
) -> None:
    volume, use = await created(client, harness, KINDS["directory"], "v")
    raw, device = await created(client, harness, KINDS["block"], "raw")
    await up(use)
    await up(device)
    call = client.snapshot("s", volume.volume_id)
    await refused(call, Code.FAILED_PRECONDITION, "inUse")
    await refused(client.snapshot("t", raw.volume_id), Code.FAILED_PRECONDITION, "raw device")
    call = client.snapshot("s", volume.volume_id, inUse="maybe")
    await refused(call, Code.INVALID_ARGUMENT, "maybe")
    call = client.snapshot("s", volume.volume_id, other="x")
    await refused(call, Code.INVALID_ARGUMENT, "'other'")
    loose = await client.snapshot("s", volume.volume_id, inUse="copy")
    await client.delete_snapshot(loose.snapshot_id)
    await down(use)
    await down(device)
    assert len(harness.content()) == 4


async def test_a_volume_that_is_just_being_made_is_neither_there_nor_not(
    harness: Harness, short_dir: pathlib.Path
) -> None:
    gate, begun, slow = short_dir / "gate", short_dir / "begun", short_dir / "cp"
    gate.touch()
    slow.write_text(
        f'#!/bin/sh\ntouch {begun}\nwhile [ -e {gate} ]; do sleep 0.01; done\nexec /bin/cp "$@"\n'
    )
    slow.chmod(0o755)
    await harness.start(environ={"PATH": f"{short_dir}:{os.environ['PATH']}"})
    async with harness.client() as client:
        source = await client.create(create_request("v"))
        wanted = create_request("copy", source=source)
        making = asyncio.create_task(client.create(wanted))
        await waiting.until(begun.exists, "the copy to begin")
        volume_id = volumes.volume_id(localdriver.NODE, "copy")
        request = v1.ControllerGetVolumeRequest(volume_id=volume_id)
        get = client.controller.controller_get_volume
        with pytest.raises(RpcError, match="just being made") as caught:
            await get(request, timeout=localdriver.TIMEOUT)
        assert caught.value.code is Code.ABORTED
        gate.unlink()
        made = await making
        assert (await get(request, timeout=localdriver.TIMEOUT)).volume == made
        for volume in (made, source):
            await client.delete(volume.volume_id)


async def test_wrong_snapshots_and_sources_are_refused(client: Client, harness: Harness) -> None:
    kind = KINDS["directory"]
    volume, _ = await created(client, harness, kind, "v")
    other, _ = await created(client, harness, kind, "w")
    snapshot = await client.snapshot("s", volume.volume_id)
    await refused(client.snapshot("s", other.volume_id), Code.ALREADY_EXISTS, volume.volume_id)
    await refused(client.snapshot("t", "nothing"), Code.NOT_FOUND, "nothing")
    await refused(client.snapshot("", volume.volume_id), Code.INVALID_ARGUMENT, "name")
    cases: list[tuple[v1.Snapshot | v1.Volume, int, str, Code, str]] = [
        (v1.Snapshot(snapshot_id="none"), 8 * MIB, "", Code.NOT_FOUND, "none"),
        (v1.Volume(volume_id="none"), 8 * MIB, "", Code.NOT_FOUND, "none"),
        (snapshot, MIB, "", Code.OUT_OF_RANGE, "required_bytes"),
        (snapshot, 8 * MIB, "image", Code.INVALID_ARGUMENT, "backend"),
    ]
    for source, size, backend, code, word in cases:
        parameters = {"backend": backend} if backend else {}
        request = create_request("new", size=size, source=source, parameters=parameters)
        await refused(client.create(request), code, word)
    assert await client.list_ids() == [volume.volume_id, other.volume_id]
    made = await client.create(create_request("new", source=snapshot))
    await client.delete_snapshot(snapshot.snapshot_id)
    assert await client.create(create_request("new", source=snapshot)) == made
    await refused(client.create(create_request("new")), Code.ALREADY_EXISTS, "was made of")


async def test_snapshots_are_listed_and_filtered(client: Client, harness: Harness) -> None:
    kind = KINDS["directory"]
    first, _ = await created(client, harness, kind, "v")
    second, _ = await created(client, harness, kind, "w")
    made = [
        await client.snapshot(f"s{number}", volume.volume_id)
        for number, volume in enumerate([first, second, first])
    ]
    assert await client.list_snapshots() == made
    assert await client.list_snapshots(source_volume_id=first.volume_id) == [made[0], made[2]]
    assert await client.list_snapshots(snapshot_id=made[1].snapshot_id) == [made[1]]
    assert await client.list_snapshots(snapshot_id="none") == []
    request = v1.ListSnapshotsRequest(max_entries=2)
    page = await client.controller.list_snapshots(request, timeout=TIMEOUT)
    assert len(page.entries) == 2
    assert await client.list_snapshots(starting_token=page.next_token) == made[2:]
    get = v1.GetSnapshotRequest(snapshot_id=made[1].snapshot_id)
    assert (await client.controller.get_snapshot(get, timeout=TIMEOUT)).snapshot == made[1]
    get = v1.GetSnapshotRequest(snapshot_id="none")
    await refused(client.controller.get_snapshot(get, timeout=TIMEOUT), Code.NOT_FOUND)


async def killed(harness: Harness, client: Client, fault: str, call: object) -> None:
    await harness.faults(f"add {fault}")
    with pytest.raises(RpcError):
        await call  # type: ignore[misc]
    assert harness.process is not None
    await harness.process.wait()
    await harness.start(f"--fault-socket={harness.home}/faults.sock", *FLAGS)


@pytest.mark.parametrize("point", ["before", *STEPS_OF["CreateSnapshot"], "after"])
async def test_a_snapshot_that_was_cut_off_is_taken_again_and_nothing_stays_frozen(
    client: Client, harness: Harness, point: str
) -> None:
    volume, use = await created(client, harness, KINDS["ext4"], "v")
    await up(use)
    await write(use, b"old")
    call = client.snapshot("s", volume.volume_id)
    await killed(harness, client, f"CreateSnapshot:crash={point}", call)
    await write(use, b"new")  # would hang in a frozen file system
    async with harness.client() as again:
        is_taken = point in ("document-renamed", "after")
        assert len(await again.list_snapshots()) == is_taken
        await waiting.until(lambda: len(harness.content()) == 2 + 2 * is_taken, "sweep")
        snapshot = await again.snapshot("s", volume.volume_id)
        await again.delete_snapshot(snapshot.snapshot_id)
        await down(use.on(again))
        await again.delete(volume.volume_id)
    assert harness.content() == []


@pytest.mark.parametrize("name", ["directory", "ext4", "btrfs"])
@pytest.mark.parametrize("point", ["copied", "document-written", "document-renamed"])
async def test_a_clone_that_was_cut_off_is_whole_or_absent(
    client: Client, harness: Harness, name: str, point: str
) -> None:
    kind = KINDS[name]
    volume, _ = await created(client, harness, kind, "v")
    request = create_request("w", want=[kind.want], parameters=kind.parameters, source=volume)
    await killed(harness, client, f"CreateVolume:crash={point}", client.create(request))
    async with harness.client() as again:
        is_made = point == "document-renamed"
        assert len(await again.list_ids()) == 1 + is_made
        await waiting.until(lambda: len(harness.content()) == 2 + 2 * is_made, "sweep")
        clone = await again.create(request)
        for one in (volume, clone):
            await again.delete(one.volume_id)
    assert harness.content() == []


@pytest.mark.parametrize("point", ["before", *STEPS_OF["DeleteSnapshot"], "after"])
async def test_a_snapshot_whose_removal_was_cut_off_is_whole_or_gone(
    client: Client, harness: Harness, point: str
) -> None:
    volume, _ = await created(client, harness, KINDS["directory"], "v")
    snapshot = await client.snapshot("s", volume.volume_id)
    other = await client.create(create_request("w"))
    fault = f"DeleteSnapshot:crash={point}"
    await harness.faults(f"add {fault}")
    await client.delete(other.volume_id)  # comes to the same steps, and is not meant
    await harness.faults("clear")
    await killed(harness, client, fault, client.delete_snapshot(snapshot.snapshot_id))
    async with harness.client() as again:
        kept = [snapshot] if point == "before" else []
        assert await again.list_snapshots() == kept
        await waiting.until(lambda: len(harness.content()) == 2 + 2 * len(kept), "sweep")
        await again.delete_snapshot(snapshot.snapshot_id)
        assert len(harness.content()) == 2
