"""local-driver as a process: what it makes, lists, counts and refuses. No root needed."""

import asyncio
import json
import pathlib
import signal
import stat
from collections.abc import AsyncIterator

import pytest
from bitts.csi import v1
from bitts.rpc import codes, introspection
from bitts.rpc.codes import Code, RpcError
from support import localdriver, processes, waiting
from support.localdriver import MIB, SEGMENTS, Client, Harness, capability, create_request

TIMEOUT = localdriver.TIMEOUT
Controller = v1.ControllerServiceCapabilityRpcType
Node = v1.NodeServiceCapabilityRpcType


@pytest.fixture
async def harness(short_dir: pathlib.Path, spawner: processes.Processes) -> Harness:
    return Harness(short_dir, spawner)


@pytest.fixture
async def client(harness: Harness) -> AsyncIterator[Client]:
    await harness.start("--capacity=100Mi")
    async with harness.client() as opened:
        yield opened


async def refused(call: object, code: Code, *words: str) -> None:
    with pytest.raises(RpcError) as caught:
        await call  # type: ignore[misc]
    assert caught.value.code is code, caught.value
    assert all(word in caught.value.message for word in words), caught.value


async def test_it_says_who_it_is_and_what_it_serves(client: Client) -> None:
    info = await client.identity.get_plugin_info(v1.GetPluginInfoRequest(), timeout=TIMEOUT)
    assert info.name == "local.csi.bitts.dev"
    assert info.vendor_version
    probe = await client.identity.probe(v1.ProbeRequest(), timeout=TIMEOUT)
    assert probe.ready == v1.BoolValue(value=True)
    controller = await client.controller.controller_get_capabilities(
        v1.ControllerGetCapabilitiesRequest(), timeout=TIMEOUT
    )
    assert {item.rpc.type for item in controller.capabilities if item.rpc} == {
        Controller.CREATE_DELETE_VOLUME, Controller.LIST_VOLUMES, Controller.GET_CAPACITY,
        Controller.GET_VOLUME, Controller.CREATE_DELETE_SNAPSHOT, Controller.LIST_SNAPSHOTS,
        Controller.GET_SNAPSHOT, Controller.CLONE_VOLUME, Controller.EXPAND_VOLUME,
        Controller.MODIFY_VOLUME, Controller.VOLUME_CONDITION,
        Controller.SINGLE_NODE_MULTI_WRITER,
    }  # fmt: skip
    node = await client.node.node_get_info(v1.NodeGetInfoRequest(), timeout=TIMEOUT)
    assert node.node_id == localdriver.NODE
    assert node.accessible_topology is not None
    assert node.accessible_topology.segments == SEGMENTS


async def test_the_same_request_makes_one_volume(client: Client, harness: Harness) -> None:
    volumes = await asyncio.gather(*(client.create(create_request("v")) for _ in range(8)))
    assert len({volume.volume_id for volume in volumes}) == 1
    assert volumes[0].capacity_bytes == 8 * MIB
    assert volumes[0].volume_context["backend"] == "directory"
    assert volumes[0].accessible_topology[0].segments == SEGMENTS
    assert await client.list_ids() == [volumes[0].volume_id]
    assert len(harness.content()) == 2
    await asyncio.gather(*(client.delete(volumes[0].volume_id) for _ in range(8)))
    assert harness.content() == []


async def test_another_volume_under_the_same_name_is_refused(client: Client) -> None:
    await client.create(create_request("v", parameters={"backend": "image"}))
    same = {"parameters": {"backend": "image"}}
    block = [localdriver.block_capability()]
    for request, word in [
        (create_request("v", size=9 * MIB, **same), "required_bytes"),  # type: ignore[arg-type]
        (create_request("v", size=1, limit=MIB * 5, **same), "limit_bytes"),  # type: ignore[arg-type]
        (create_request("v"), "backend"),
        (create_request("v", want=block, **same), "is block"),  # type: ignore[arg-type]
        (create_request("v", want=[capability(fs_type="xfs")], **same), "xfs"),  # type: ignore[arg-type]
    ]:
        await refused(client.create(request), Code.ALREADY_EXISTS, "volume v", word)


async def test_wrong_requests_name_the_field(client: Client) -> None:
    for request, code, word in [
        (create_request(""), Code.INVALID_ARGUMENT, "name"),
        (create_request("v", parameters={"bakend": "x"}), Code.INVALID_ARGUMENT, "'bakend'"),
        (create_request("v", parameters={"backend": "x"}), Code.INVALID_ARGUMENT, "'backend'"),
        (create_request("v", size=9, limit=8), Code.OUT_OF_RANGE, "limit_bytes"),
        (create_request("v", size=101 * MIB), Code.RESOURCE_EXHAUSTED, "required_bytes"),
        (create_request("v", requisite=[{"zone": "z"}]), Code.RESOURCE_EXHAUSTED, "zone=z"),
    ]:
        await refused(client.create(request), code, word)
    assert await client.list_ids() == []


async def test_capacity_is_shared_out_once(client: Client) -> None:
    async def room(**fields: object) -> int:
        request = v1.GetCapacityRequest(**fields)  # type: ignore[arg-type]
        reply = await client.controller.get_capacity(request, timeout=TIMEOUT)
        return reply.available_capacity

    outcomes = await asyncio.gather(
        *(client.create(create_request(f"v{n}", size=30 * MIB)) for n in range(10)),
        return_exceptions=True,
    )
    failed = [one for one in outcomes if isinstance(one, RpcError)]
    assert [one.code for one in failed] == [Code.RESOURCE_EXHAUSTED] * 7
    assert await room() == 10 * MIB
    assert await room(accessible_topology=v1.Topology(segments=SEGMENTS)) == 10 * MIB
    assert await room(accessible_topology=v1.Topology(segments={"zone": "z"})) == 0
    await client.delete((await client.list_ids())[0])
    assert (
        await room(parameters={"backend": "image", "csi.storage.k8s.io/fstype": "xfs"}) == 40 * MIB
    )
    await refused(room(parameters={"backend": "tape"}), Code.INVALID_ARGUMENT, "tape")


async def test_lists_come_in_pages(client: Client) -> None:
    made = [(await client.create(create_request(f"v{n}", size=1))).volume_id for n in range(5)]

    async def page(token: str, limit: int = 2) -> tuple[list[str], str]:
        request = v1.ListVolumesRequest(max_entries=limit, starting_token=token)
        reply = await client.controller.list_volumes(request, timeout=TIMEOUT)
        return [one.volume.volume_id for one in reply.entries if one.volume], reply.next_token

    first, token = await page("")
    await client.delete(first[-1])
    second, token = await page(token)
    third, end = await page(token)
    assert first + second + third == made
    assert end == ""
    await refused(page("nonsense"), Code.ABORTED, "starting_token")
    await refused(page("", -1), Code.INVALID_ARGUMENT, "max_entries")


async def test_one_volume_is_told_about(client: Client) -> None:
    volume = await client.create(create_request("v"))
    request = v1.ControllerGetVolumeRequest(volume_id=volume.volume_id)
    found = await client.controller.controller_get_volume(request, timeout=TIMEOUT)
    assert found.volume == volume
    request = v1.ControllerGetVolumeRequest(volume_id="other")
    await refused(
        client.controller.controller_get_volume(request, timeout=TIMEOUT), Code.NOT_FOUND, "other"
    )


async def test_capabilities_are_confirmed_or_the_lack_is_named(client: Client) -> None:
    volume = await client.create(create_request("v"))

    async def validate(
        want: v1.VolumeCapability, **fields: object
    ) -> v1.ValidateVolumeCapabilitiesResponse:
        request = v1.ValidateVolumeCapabilitiesRequest(
            volume_id=volume.volume_id,
            volume_capabilities=[want],
            **fields,  # type: ignore[arg-type]
        )
        return await client.controller.validate_volume_capabilities(request, timeout=TIMEOUT)

    fine = await validate(capability(), volume_context=volume.volume_context)
    assert fine.confirmed is not None
    assert fine.confirmed.volume_capabilities == [capability()]
    for want, fields, word in [
        (localdriver.block_capability(), {}, "block"),
        (capability(fs_type="zfs"), {}, "zfs"),
        (capability(mode=localdriver.Mode.MULTI_NODE_MULTI_WRITER), {}, "MULTI_NODE"),
        (capability(), {"parameters": {"backend": "image"}}, "backend"),
        (capability(), {"volume_context": {"backend": "image"}}, "volume_context"),
    ]:
        answer = await validate(want, **fields)
        assert answer.confirmed is None
        assert word in answer.message


async def test_ids_of_others_name_nothing(client: Client, harness: Harness) -> None:
    outside = harness.home / "precious"
    outside.mkdir()
    await client.delete("../../precious")
    await client.delete("not-one-of-ours")
    assert outside.exists()


async def test_a_restart_finds_everything_again(harness: Harness) -> None:
    process = await harness.start()
    async with harness.client() as client:
        made = [await client.create(create_request(f"v{n}")) for n in range(3)]
    process.kill()
    await harness.start()
    async with harness.client() as client:
        assert await client.list_ids() == [volume.volume_id for volume in made]
        assert await client.create(create_request("v1")) == made[1]


async def test_damaged_metadata_costs_one_volume_and_no_data(harness: Harness) -> None:
    process = await harness.start()
    async with harness.client() as client:
        first, second = [await client.create(create_request(f"v{n}")) for n in range(2)]
    assert await process.stop() == 0
    data = harness.state / "directory" / first.volume_id / "data"
    data.write_text("precious")
    document = harness.state / "volumes" / f"{first.volume_id}.json"
    document.write_bytes(document.read_bytes()[:-20])
    process = await harness.start()
    async with harness.client() as client:
        assert await client.list_ids() == [second.volume_id]
        await refused(client.create(create_request("v0")), Code.INTERNAL, str(document))
        await refused(client.delete(first.volume_id), Code.INTERNAL, str(document))
    assert str(document) in process.output()
    assert data.read_text() == "precious"


async def test_a_new_volume_gets_no_number_of_a_damaged_record(harness: Harness) -> None:
    process = await harness.start()
    async with harness.client() as client:
        made = [await client.create(create_request(f"v{number}")) for number in range(3)]
    assert await process.stop() == 0
    documents = [harness.state / "volumes" / f"{volume.volume_id}.json" for volume in made]
    documents[2].write_bytes(documents[2].read_bytes()[:-20])
    await harness.start()
    async with harness.client() as client:
        fresh = await client.create(create_request("fresh"))
    record = json.loads((harness.state / "volumes" / f"{fresh.volume_id}.json").read_text())
    numbers = [json.loads(one.read_text())["serial"] for one in documents[:2]]
    assert [*numbers, record["serial"]] == [1, 2, 4]


async def test_sigterm_lets_calls_end_and_leaves_no_socket(harness: Harness) -> None:
    process = await harness.start("--fault=CreateVolume:latency=300ms")
    async with harness.client() as client:
        call = asyncio.create_task(client.create(create_request("v")))
        await waiting.until(lambda: not call.done(), "call under way")
        await client.identity.probe(v1.ProbeRequest(), timeout=TIMEOUT)
        process.send_signal(signal.SIGTERM)
        assert (await call).volume_id
    assert await process.wait() == 0
    assert not harness.socket.exists()
    assert not (harness.home / "bitts-local-driver.sock").exists()


async def test_sockets_are_for_the_owner_alone(harness: Harness) -> None:
    await harness.start(f"--fault-socket={harness.home}/faults.sock")
    await waiting.until((harness.home / "faults.sock").exists, "fault socket")
    for name in ("csi.sock", "bitts-local-driver.sock"):
        assert stat.S_IMODE((harness.home / name).stat().st_mode) == 0o600


async def test_a_second_driver_on_the_same_state_is_refused(
    harness: Harness, spawner: processes.Processes
) -> None:
    await harness.start()
    other = spawner.spawn(
        ["local-driver", f"--endpoint={harness.home}/other.sock", f"--state-dir={harness.state}"]
    )
    assert await other.wait() == 1
    assert "another local-driver" in other.output()


async def test_a_state_directory_of_another_node_is_refused(
    harness: Harness, spawner: processes.Processes
) -> None:
    process = await harness.start()
    async with harness.client() as client:
        await client.create(create_request("v"))
    await process.stop()
    other = spawner.spawn(
        ["local-driver", f"--endpoint={harness.socket}", f"--state-dir={harness.state}",
         "--node-id=node-2"]
    )  # fmt: skip
    assert await other.wait() == 1
    assert "node-1" in other.output()
    assert "--node-id" in other.output()


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("--backends=tape", "--backends"),
        ("--fault=CreateVolume:explode", "known are latency"),
        ("--state-dir=/proc/nowhere", "--state-dir"),
        ("--no-such-flag", "--no-such-flag"),
    ],
)
async def test_a_wrong_flag_ends_the_start_with_its_name(
    spawner: processes.Processes, short_dir: pathlib.Path, word: str, message: str
) -> None:
    process = spawner.spawn(
        ["local-driver", f"--endpoint={short_dir}/csi.sock", f"--state-dir={short_dir}/s", word]
    )
    assert await process.wait() != 0
    assert message in process.output()


async def test_help_and_version_are_light(spawner: processes.Processes) -> None:
    version = spawner.spawn(["local-driver", "--version"])
    assert await version.wait() == 0
    assert "local-driver" in version.output()
    code = (
        "import sys; import local_driver.options; import local_driver.__main__;"
        "print([name for name in ('asyncio', 'grpclib', 'logging') if name in sys.modules])"
    )
    light = spawner.spawn([processes.script("python"), "-c", code])
    assert await light.wait() == 0
    assert light.output().strip() == "[]"


async def test_it_can_be_asked_what_it_did(client: Client, harness: Harness) -> None:
    volume = await client.create(create_request("v"))
    async with introspection.connect(str(harness.home / "bitts-local-driver.sock")) as asked:
        process = await asked.process()
        assert process.program == "local-driver"
        assert {figure.name: figure.value for figure in process.figures} == {
            "volumes": 1, "promised_bytes": 8 * MIB, "snapshots": 0,
        }  # fmt: skip
        found = await asked.object(volume.volume_id)
        assert [(one.loop, one.decision) for one in found.objects] == [("CreateVolume", "done")]
        with pytest.raises(codes.RpcError):
            await asked.object("unknown")


async def test_the_call_log_shows_calls_without_secrets(harness: Harness) -> None:
    process = await harness.start("-v=5", "--logging-format=json")
    async with harness.client() as client:
        request = create_request("v")
        request.secrets = {"password": "hunter2"}
        await client.create(request)
    log = await process.wait_for_output('"/csi.v1.Controller/CreateVolume"')
    assert "hunter2" not in log
    assert all(json.loads(line) for line in log.splitlines())
