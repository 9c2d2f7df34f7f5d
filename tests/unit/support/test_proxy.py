"""The faulty wire itself: what a sidecar sees, and what the driver has done by then."""

import asyncio
import pathlib
from collections.abc import AsyncIterator

import pytest
from bitts.csi import driver, v1
from bitts.rpc import server
from bitts.rpc.codes import Code, RpcError
from support import drivers, proxy, waiting
from support.proxy import Fault, Loss, When


@pytest.fixture
def controller() -> drivers.Controller:
    return drivers.Controller()


@pytest.fixture
async def wire(
    short_dir: pathlib.Path, controller: drivers.Controller
) -> AsyncIterator[proxy.Proxy]:
    target = str(short_dir / "driver.sock")
    running = server.Server([drivers.Identity(), controller], target)
    await running.start()
    async with proxy.Proxy(str(short_dir / "csi.sock"), target) as between:
        yield between
    await running.stop(grace=0.0)


@pytest.fixture
async def sidecar(wire: proxy.Proxy) -> AsyncIterator[driver.Driver]:
    found = await driver.Driver.connect(wire.path, timeout=5.0, reconnect=True)
    yield found
    await found.close()


async def create(sidecar: driver.Driver, name: str = "pvc-1", timeout: float = 5.0) -> str:
    request = v1.CreateVolumeRequest(name=name, secrets={"key": "value"})
    reply = await sidecar.controller.create_volume(request, timeout=timeout)
    assert reply.volume is not None
    return reply.volume.volume_id


async def failure(sidecar: driver.Driver, name: str = "pvc-1", timeout: float = 5.0) -> Code:
    with pytest.raises(RpcError) as caught:
        await create(sidecar, name, timeout)
    return caught.value.code


async def test_calls_pass_and_are_counted(wire: proxy.Proxy, sidecar: driver.Driver) -> None:
    assert await create(sidecar) == "pvc-1"
    assert await create(sidecar, "pvc-2") == "pvc-2"
    await sidecar.controller.delete_volume(v1.DeleteVolumeRequest(volume_id="pvc-1"), timeout=5.0)
    assert wire.count("CreateVolume") == 2
    assert wire.count(volume="pvc-1") == 2
    assert wire.count("DeleteVolume", volume="pvc-2") == 0
    assert wire.volumes("CreateVolume") == {"pvc-1", "pvc-2"}
    assert [one.code for one in wire.seen("CreateVolume")] == [Code.OK, Code.OK]
    await wire.wait_for("CreateVolume", times=2)


async def test_the_driver_s_own_failures_pass(wire: proxy.Proxy, sidecar: driver.Driver) -> None:
    with pytest.raises(RpcError) as caught:
        await sidecar.controller.list_volumes(v1.ListVolumesRequest(), timeout=5.0)
    assert caught.value.code is Code.UNIMPLEMENTED
    assert wire.seen("ListVolumes")[0].code is Code.UNIMPLEMENTED


async def test_a_code_before_the_work(
    wire: proxy.Proxy, sidecar: driver.Driver, controller: drivers.Controller
) -> None:
    wire.inject(Fault("CreateVolume", code=Code.RESOURCE_EXHAUSTED))
    assert await failure(sidecar) is Code.RESOURCE_EXHAUSTED
    assert controller.volumes == set()
    assert await create(sidecar) == "pvc-1"


async def test_a_code_after_the_work(
    wire: proxy.Proxy, sidecar: driver.Driver, controller: drivers.Controller
) -> None:
    wire.inject(Fault("CreateVolume", When.AFTER, code=Code.UNAVAILABLE))
    assert await failure(sidecar) is Code.UNAVAILABLE
    assert controller.volumes == {"pvc-1"}


@pytest.mark.parametrize("loss", list(Loss))
async def test_a_lost_answer(
    wire: proxy.Proxy, sidecar: driver.Driver, controller: drivers.Controller, loss: Loss
) -> None:
    wire.inject(Fault("CreateVolume", When.AFTER, lost=loss))
    assert await failure(sidecar) is Code.UNAVAILABLE
    assert controller.volumes == {"pvc-1"}
    if loss is Loss.CALL:
        assert sidecar.channel.is_connected
    assert await create(sidecar) == "pvc-1"


async def test_a_fault_for_one_volume_as_often_as_wanted(
    wire: proxy.Proxy, sidecar: driver.Driver
) -> None:
    fault = wire.inject(Fault(volume="pvc-2", times=None, code=Code.ABORTED))
    assert await create(sidecar, "pvc-1") == "pvc-1"
    assert [await failure(sidecar, "pvc-2") for _ in range(3)] == [Code.ABORTED] * 3
    assert fault.hit == 3
    wire.clear()
    assert await create(sidecar, "pvc-2") == "pvc-2"


async def test_a_hanging_call_ends_with_its_deadline(
    wire: proxy.Proxy, sidecar: driver.Driver
) -> None:
    wire.inject(Fault("CreateVolume", hangs=True))
    assert await failure(sidecar, timeout=0.1) is Code.DEADLINE_EXCEEDED


async def test_a_hanging_call_goes_on_when_it_is_released(
    wire: proxy.Proxy, sidecar: driver.Driver
) -> None:
    fault = wire.inject(Fault("CreateVolume", hangs=True))
    call = asyncio.create_task(create(sidecar))
    await wire.wait_for("CreateVolume")
    assert not call.done()
    fault.release()
    assert await call == "pvc-1"


async def test_a_delay_only_takes_time(wire: proxy.Proxy, sidecar: driver.Driver) -> None:
    fault = wire.inject(Fault("CreateVolume", delay=0.01))
    assert await create(sidecar) == "pvc-1"
    assert fault.hit == 1


@pytest.mark.parametrize("when", list(When))
async def test_a_crash_leaves_no_socket_until_the_restart(
    wire: proxy.Proxy, sidecar: driver.Driver, controller: drivers.Controller, when: When
) -> None:
    wire.inject(Fault("CreateVolume", when, crashes=True))
    assert await failure(sidecar) is Code.UNAVAILABLE
    assert controller.volumes == ({"pvc-1"} if when is When.AFTER else set())
    await waiting.until(lambda: not wire.is_serving, "the crash is over")
    assert not await asyncio.to_thread(pathlib.Path(wire.path).exists)
    assert await failure(sidecar) is Code.UNAVAILABLE
    await wire.start()
    assert await create(sidecar) == "pvc-1"


async def test_the_end_of_the_driver_is_the_end_of_the_sidecar_s_connection(
    short_dir: pathlib.Path,
) -> None:
    target = str(short_dir / "driver.sock")
    running = server.Server([drivers.Identity(), drivers.Controller()], target)
    await running.start()
    async with proxy.Proxy(str(short_dir / "csi.sock"), target) as wire:
        lost = asyncio.get_running_loop().create_future()
        sidecar = await driver.Driver.connect(wire.path, timeout=5.0, on_lost=lost.set_result)
        await running.stop(grace=0.0)
        await asyncio.wait_for(lost, 60.0)
        await sidecar.close()
