import asyncio

import pytest
from bitts.rpc import channel, health, server
from bitts.rpc._generated import health as wire
from bitts.rpc.codes import Code, RpcError


async def test_the_process_and_its_services_say_how_they_are(path: str) -> None:
    ready = {"csi": False}
    running = server.Server([health.Health({"csi": lambda: ready["csi"]})], path)
    await running.start()
    opened = channel.Channel(path)
    stub = wire.HealthStub(opened)

    async def status(service: str) -> health.Status:
        return (await stub.check(wire.HealthCheckRequest(service=service), timeout=5.0)).status

    assert await status("") is health.Status.SERVING
    assert await status("csi") is health.Status.NOT_SERVING
    ready["csi"] = True
    assert await status("csi") is health.Status.SERVING
    with pytest.raises(RpcError, match="no service 'other'") as caught:
        await status("other")
    assert caught.value.code is Code.NOT_FOUND
    await opened.close()
    await running.stop()


async def test_watching_tells_changes_only(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "POLL_INTERVAL", 0.01)
    serving = asyncio.Event()
    running = server.Server([health.Health({"": serving.is_set})], path)
    await running.start()
    opened = channel.Channel(path)
    statuses = wire.HealthStub(opened).watch(wire.HealthCheckRequest(), timeout=10.0)
    assert (await anext(statuses)).status is health.Status.NOT_SERVING
    serving.set()
    assert (await anext(statuses)).status is health.Status.SERVING
    await statuses.aclose()
    unknown = wire.HealthStub(opened).watch(wire.HealthCheckRequest(service="x"), timeout=10.0)
    assert (await anext(unknown)).status is health.Status.SERVICE_UNKNOWN
    await unknown.aclose()
    await opened.close()
    await running.stop(grace=0.0)
