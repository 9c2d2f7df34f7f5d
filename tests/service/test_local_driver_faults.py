"""Faults on demand, as clients meet them, and registration with kubelet."""

import asyncio
import pathlib
from collections.abc import AsyncIterator

import pytest
from bitts.csi import registration, v1
from bitts.rpc.codes import Code, RpcError
from support import cluster, processes, waiting
from support.localdriver import SEGMENTS, Client, Harness, create_request


@pytest.fixture
async def harness(short_dir: pathlib.Path, spawner: processes.Processes) -> Harness:
    return Harness(short_dir, spawner)


@pytest.fixture
async def client(harness: Harness) -> AsyncIterator[Client]:
    await harness.start(f"--fault-socket={harness.home}/faults.sock")
    async with harness.client() as opened:
        yield opened


async def failed(call: object) -> RpcError:
    with pytest.raises(RpcError) as caught:
        await call  # type: ignore[misc]
    return caught.value


async def test_any_code_is_answered_with_nothing_done(client: Client, harness: Harness) -> None:
    await harness.faults("add CreateVolume:code=ResourceExhausted,times=1,name=pvc")
    assert await client.create(create_request("other"))
    error = await failed(client.create(create_request("pvc-1")))
    assert error.code is Code.RESOURCE_EXHAUSTED
    assert len(await client.list_ids()) == 1
    assert await client.create(create_request("pvc-1"))


async def test_a_lost_answer_leaves_the_work_done(client: Client, harness: Harness) -> None:
    await harness.faults("add CreateVolume:lost,times=1")
    assert (await failed(client.create(create_request("v")))).code is Code.UNAVAILABLE
    async with harness.client() as again:
        (volume_id,) = await again.list_ids()
        assert (await again.create(create_request("v"))).volume_id == volume_id


@pytest.mark.parametrize(("fault", "is_made"), [("hang", False), ("hang=after", True)])
async def test_a_hang_ends_with_the_clients_patience(
    client: Client,
    harness: Harness,
    fault: str,
    is_made: bool,
) -> None:
    await harness.faults(f"add CreateVolume:{fault}")
    call = client.controller.create_volume(create_request("v"), timeout=0.2)
    assert (await failed(call)).code is Code.DEADLINE_EXCEEDED
    assert len(await client.list_ids()) == is_made


async def test_latency_delays_calls_without_holding_up_others(
    client: Client, harness: Harness
) -> None:
    await harness.faults("add CreateVolume:latency=60s..70s")
    slow = asyncio.create_task(client.create(create_request("v")))

    async def has_arrived() -> bool:
        return "CreateVolume 1" in await harness.faults("counts")

    await waiting.until(has_arrived, "the call at the driver")
    assert await client.list_ids() == []
    assert not slow.done()
    slow.cancel()
    await harness.faults("clear", "add CreateVolume:latency=1ms..2ms")
    assert (await client.create(create_request("v"))).volume_id in await client.list_ids()


async def test_wrong_answers_are_wrong_in_one_way(client: Client, harness: Harness) -> None:
    async def answer(fault: str) -> v1.Volume:
        await harness.faults("clear", f"add CreateVolume:{fault}")
        return await client.create(create_request("v", size=1000))

    right = await client.create(create_request("v", size=1000))
    assert (await answer("missing-id")).volume_id == ""
    assert (await answer("capacity-too-small")).capacity_bytes == 500
    elsewhere = (await answer("other-topology")).accessible_topology[0].segments
    assert elsewhere.keys() == SEGMENTS.keys()
    assert elsewhere != SEGMENTS
    assert (await answer("other-content")).content_source is not None
    await harness.faults("clear", "add CreateVolume:huge-context")
    error = await failed(client.create(create_request("v", size=1000)))
    assert error.code is Code.RESOURCE_EXHAUSTED
    await harness.faults("clear", "add CreateVolume:empty")
    request = create_request("v", size=1000)
    assert (await client.controller.create_volume(request, timeout=5)).volume is None
    await harness.faults("clear")
    assert await client.create(create_request("v", size=1000)) == right


async def test_faults_are_listed_and_calls_counted(client: Client, harness: Harness) -> None:
    await harness.faults("add CreateVolume:code=Internal,times=1", "add *:latency=1ms")
    await failed(client.create(create_request("v")))
    await client.create(create_request("v"))
    assert await harness.faults("list", "counts") == ["*:latency=1ms", "CreateVolume 2"]


async def test_faults_can_be_given_from_the_start(harness: Harness) -> None:
    process = await harness.start(
        "--fault=Probe:empty", "--fault=CreateVolume:code=Internal", "-v=2"
    )
    async with harness.client() as client:
        assert (await client.identity.probe(v1.ProbeRequest(), timeout=5)).ready is None
        assert (await failed(client.create(create_request("v")))).code is Code.INTERNAL
    await process.wait_for_output("CreateVolume:code=Internal")


async def test_kubelet_is_told_and_told_again_after_a_refusal(harness: Harness) -> None:
    folder = harness.home / "plugins_registry"
    folder.mkdir()
    process = await harness.start(
        f"--registration-dir={folder}", "--kubelet-registration-path=/var/lib/kubelet/d/csi.sock"
    )
    socket = folder / "local.csi.bitts.dev-reg.sock"
    await waiting.until(lambda: cluster.accepts(socket), "registration socket")
    info = await registration.get_info(str(socket))
    assert (info.type, info.name) == ("CSIPlugin", "local.csi.bitts.dev")
    assert info.endpoint == "/var/lib/kubelet/d/csi.sock"
    assert info.supported_versions == ["1.0.0"]
    first = socket.stat().st_ino
    await registration.notify(str(socket), registered=False, error="label has another value")
    await waiting.until(
        lambda: cluster.accepts(socket) and socket.stat().st_ino != first, "another offer"
    )
    await registration.notify(str(socket), registered=True)
    assert await process.stop() == 0
    assert list(folder.iterdir()) == []
    assert "label has another value" in process.output()
