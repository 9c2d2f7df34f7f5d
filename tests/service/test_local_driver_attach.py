"""Attaching, modifying and health, each in the generation of CSI that is announced."""

import asyncio
import json
import pathlib
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from bitts.csi import v1
from bitts.rpc.codes import Code, RpcError
from local_driver.steps import STEPS_OF
from support import localdriver, processes
from support.localdriver import MIB, Client, Harness, Use, capability, create_request

TIMEOUT = localdriver.TIMEOUT
Status = v1.VolumeHealthErrorType


@pytest.fixture
async def harness(short_dir: pathlib.Path, spawner: processes.Processes) -> AsyncIterator[Harness]:
    made = Harness(short_dir, spawner)
    yield made
    leaked = await asyncio.to_thread(made.leaked)
    await asyncio.to_thread(made.close)
    assert leaked == []


async def refused(call: object, code: Code, word: str = "") -> None:
    with pytest.raises(RpcError) as caught:
        await call  # type: ignore[misc]
    assert caught.value.code is code, caught.value
    assert word in caught.value.message


async def attach(
    client: Client, volume_id: str, node: str = localdriver.NODE, *, readonly: bool = False
) -> None:
    request = v1.ControllerPublishVolumeRequest(
        volume_id=volume_id, node_id=node, volume_capability=capability(), readonly=readonly
    )
    await client.controller.controller_publish_volume(request, timeout=TIMEOUT)


async def detach(client: Client, volume_id: str, node: str = localdriver.NODE) -> None:
    request = v1.ControllerUnpublishVolumeRequest(volume_id=volume_id, node_id=node)
    await client.controller.controller_unpublish_volume(request, timeout=TIMEOUT)


async def published(client: Client) -> list[list[str]]:
    reply = await client.controller.list_volumes(v1.ListVolumesRequest(), timeout=TIMEOUT)
    return [entry.status.published_node_ids for entry in reply.entries if entry.status is not None]


async def test_a_node_takes_so_many_volumes_and_no_more(harness: Harness) -> None:
    process = await harness.start("--attach", "--max-volumes-per-node=2")
    async with harness.client() as client:
        made = [(await client.create(create_request(f"v{n}"))).volume_id for n in range(4)]
        outcomes = await asyncio.gather(
            *(attach(client, volume_id) for volume_id in made), return_exceptions=True
        )
        failed = [one for one in outcomes if isinstance(one, RpcError)]
        assert [one.code for one in failed] == [Code.RESOURCE_EXHAUSTED] * 2
        held = [volume_id for volume_id, one in zip(made, outcomes, strict=True) if one is None]
        await attach(client, held[0])
        call = attach(client, held[0], readonly=True)
        await refused(call, Code.ALREADY_EXISTS, "readonly")
        await refused(attach(client, held[0], "node-9"), Code.NOT_FOUND, "node-9")
        await refused(attach(client, "none"), Code.NOT_FOUND, "none")
        await refused(client.delete(held[0]), Code.FAILED_PRECONDITION, "detach")
        assert sorted(await published(client)) == [[], [], ["node-1"], ["node-1"]]
    process.kill()
    await harness.start("--attach", "--max-volumes-per-node=2")
    async with harness.client() as client:
        assert sorted(await published(client)) == [[], [], ["node-1"], ["node-1"]]
        await detach(client, held[0])
        await detach(client, held[1], "")
        await detach(client, held[1])
        await detach(client, "none")
        for volume_id in made:
            await client.delete(volume_id)


ATTACHING = [
    (rpc, point)
    for rpc in ("ControllerPublishVolume", "ControllerUnpublishVolume", "ControllerModifyVolume")
    for point in ("before", *STEPS_OF[rpc], "after")
]


@pytest.mark.parametrize(("rpc", "point"), ATTACHING)
async def test_a_change_of_a_record_that_was_cut_off_is_made_or_not(
    harness: Harness, rpc: str, point: str
) -> None:
    words = ("--attach", f"--fault-socket={harness.home}/faults.sock")
    await harness.start(*words)
    changes: dict[str, Callable[[Client, str], Awaitable[None]]] = {
        "ControllerPublishVolume": attach,
        "ControllerUnpublishVolume": detach,
        "ControllerModifyVolume": modify,
    }
    async with harness.client() as client:
        request = create_request("v", parameters={"backend": "image"})
        volume_id = (await client.create(request)).volume_id
        if rpc == "ControllerUnpublishVolume":
            await attach(client, volume_id)
        before = recorded(harness, volume_id)
        await harness.faults(f"add {rpc}:crash={point}")
        await refused(changes[rpc](client, volume_id), Code.UNAVAILABLE)
    assert harness.process is not None
    await harness.process.wait()
    await harness.start(*words)
    async with harness.client() as client:
        is_made = point in ("document-renamed", "after")
        assert (recorded(harness, volume_id) != before) is is_made
        await changes[rpc](client, volume_id)
        after = recorded(harness, volume_id)
        assert after != before
        await changes[rpc](client, volume_id)
        assert recorded(harness, volume_id) == after
        await detach(client, volume_id)
        await client.delete(volume_id)
    assert harness.content() == []


def recorded(harness: Harness, volume_id: str) -> object:
    """Return what the disk has of a volume."""
    return json.loads((harness.state / "volumes" / f"{volume_id}.json").read_bytes())


async def modify(client: Client, volume_id: str, **parameters: str) -> None:
    request = v1.ControllerModifyVolumeRequest(
        volume_id=volume_id, mutable_parameters=parameters or {"readIops": "100"}
    )
    await client.controller.controller_modify_volume(request, timeout=TIMEOUT)


@pytest.mark.root
async def test_a_volume_is_used_only_where_and_as_it_is_attached(harness: Harness) -> None:
    await harness.start("--attach")
    async with harness.client() as client:
        volume = await client.create(create_request("v"))
        use = Use(client, harness.home, volume, capability())
        await refused(use.stage(), Code.FAILED_PRECONDITION, "not attached")
        await attach(client, volume.volume_id, readonly=True)
        await use.stage()
        await use.publish()
        with pytest.raises(OSError, match="Read-only"):
            await asyncio.to_thread((use.target / "file").touch)
        await use.unpublish()
        await use.unstage()
        await detach(client, volume.volume_id)
        await client.delete(volume.volume_id)


async def test_what_is_not_announced_is_not_served(harness: Harness) -> None:
    await harness.start()
    async with harness.client() as client:
        await refused(attach(client, "v"), Code.UNIMPLEMENTED, "--attach")
        await refused(detach(client, "v"), Code.UNIMPLEMENTED, "--attach")
        request = v1.ControllerGetVolumeHealthRequest(volume_id="v")
        call = client.controller.controller_get_volume_health(request, timeout=TIMEOUT)
        await refused(call, Code.UNIMPLEMENTED, "--csi")
        health = v1.NodeGetStorageHealthRequest()
        call2 = client.node.node_get_storage_health(health, timeout=TIMEOUT)
        await refused(call2, Code.UNIMPLEMENTED, "--csi")


async def test_limits_are_recorded_and_wrong_ones_change_nothing(harness: Harness) -> None:
    await harness.start()

    async with harness.client() as client:
        request = create_request("v", parameters={"backend": "image"})
        request.mutable_parameters = {"readIops": "100"}
        volume_id = (await client.create(request)).volume_id

        def limits() -> object:
            document = recorded(harness, volume_id)
            assert isinstance(document, dict)
            return document["mutable"]

        for _ in range(2):
            await modify(client, volume_id, writeIops="50")
        assert limits() == {
            "readIops": "100",
            "writeIops": "50",
        }
        call = modify(client, volume_id, writeIops="9", speed="high")
        await refused(call, Code.INVALID_ARGUMENT, "'speed'")
        assert limits() == {
            "readIops": "100",
            "writeIops": "50",
        }
        await refused(modify(client, "none", writeIops="9"), Code.NOT_FOUND, "none")
        folder = (await client.create(create_request("w"))).volume_id
        await refused(
            modify(client, folder, writeIops="9"), Code.INVALID_ARGUMENT, "backend directory"
        )


async def broken(harness: Harness, client: Client) -> tuple[str, str]:
    """Return a volume whose image lost its end, after one that is well."""
    made = [
        await client.create(create_request(f"v{n}", parameters={"backend": "image"}))
        for n in range(2)
    ]
    image = harness.state / "image" / f"{made[1].volume_id}.img"
    with image.open("r+b") as file:
        file.truncate(MIB)
    return made[0].volume_id, made[1].volume_id


async def test_health_is_a_condition_in_the_older_generation(harness: Harness) -> None:
    await harness.start()
    async with harness.client() as client:
        await broken(harness, client)
        reply = await client.controller.list_volumes(v1.ListVolumesRequest(), timeout=TIMEOUT)
        conditions = [
            entry.status.volume_condition for entry in reply.entries if entry.status is not None
        ]
        assert [one.abnormal for one in conditions if one] == [False, True]
        assert conditions[1] is not None
        assert "ImageTruncated" in conditions[1].message


async def test_health_has_rpcs_of_its_own_in_the_newer_generation(harness: Harness) -> None:
    await harness.start("--csi=1.13")
    async with harness.client() as client:
        well, ill = await broken(harness, client)
        reply = await client.controller.list_volumes(v1.ListVolumesRequest(), timeout=TIMEOUT)
        assert [
            entry.status.volume_condition for entry in reply.entries if entry.status is not None
        ] == [
            None,
            None,
        ]
        listed = await client.controller.controller_list_volume_health(
            v1.ControllerListVolumeHealthRequest(), timeout=TIMEOUT
        )
        (entry,) = listed.entries
        assert entry.volume_id == ill
        assert [(one.status, one.reason) for one in entry.health_statuses] == [
            (Status.DATA_LOSS, "ImageTruncated")
        ]
        request = v1.ControllerGetVolumeHealthRequest(volume_id=well)
        got = await client.controller.controller_get_volume_health(request, timeout=TIMEOUT)
        assert got.volume_health == v1.VolumeHealth(volume_id=well)
        node_request = v1.NodeGetVolumeHealthRequest(volume_id=ill)
        seen = await client.node.node_get_volume_health(node_request, timeout=TIMEOUT)
        assert seen.volume_health == entry
        storage = v1.NodeGetStorageHealthRequest()
        below = await client.node.node_get_storage_health(storage, timeout=TIMEOUT)
        assert below.backend_health == []
