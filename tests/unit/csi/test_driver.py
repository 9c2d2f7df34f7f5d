"""From a socket to a driver that can be called, and what can go wrong on the way."""

import asyncio
import pathlib
from collections.abc import AsyncIterator

import pytest
from bitts.csi import capabilities, driver, v1
from bitts.rpc import server
from bitts.rpc.codes import Code, RpcError
from support import drivers, waiting

Measured = tuple[str, str, str]


@pytest.fixture
def path(short_dir: pathlib.Path) -> str:
    return str(short_dir / "csi.sock")


@pytest.fixture
def identity() -> drivers.Identity:
    return drivers.Identity()


@pytest.fixture
async def served(path: str, identity: drivers.Identity) -> AsyncIterator[server.Server]:
    parts = [identity, drivers.Controller(), drivers.Node(), drivers.GroupController()]
    running = server.Server(parts, path)
    await running.start()
    yield running
    await running.stop(grace=0.0)


async def connected(path: str, **options: object) -> driver.Driver:
    return await driver.Driver.connect(path, timeout=5.0, **options)  # type: ignore[arg-type]


async def test_a_driver_tells_who_it_is_and_what_it_can_do(
    path: str, served: server.Server, identity: drivers.Identity
) -> None:
    identity.services.append(drivers.PluginType.GROUP_CONTROLLER_SERVICE)
    found = await connected(f"unix://{path}", needs_node=True, needs_groups=True)
    assert found.info == capabilities.DriverInfo(
        name=drivers.NAME,
        version="1.2.3",
        plugin=frozenset(
            {
                capabilities.PluginCapability.CONTROLLER_SERVICE,
                capabilities.PluginCapability.GROUP_CONTROLLER_SERVICE,
            }
        ),
        expansion=frozenset({capabilities.VolumeExpansion.ONLINE}),
        controller=frozenset(
            {
                capabilities.ControllerCapability.CREATE_DELETE_VOLUME,
                capabilities.ControllerCapability.GET_VOLUME_HEALTH,
            }
        ),
        node=frozenset({capabilities.NodeCapability.STAGE_UNSTAGE_VOLUME}),
        group_controller=frozenset(
            {capabilities.GroupCapability.CREATE_DELETE_GET_VOLUME_GROUP_SNAPSHOT}
        ),
    )
    await found.close()


async def test_a_nodes_process_is_not_asked_for_the_controller_that_it_announces(
    path: str, identity: drivers.Identity
) -> None:
    identity.services.append(drivers.PluginType.GROUP_CONTROLLER_SERVICE)
    running = server.Server([identity, drivers.Node()], path)
    await running.start()
    found = await connected(path, needs_node=True, needs_controller=False)
    assert found.info.node == {capabilities.NodeCapability.STAGE_UNSTAGE_VOLUME}
    assert capabilities.PluginCapability.CONTROLLER_SERVICE in found.info.plugin
    await found.close()
    with pytest.raises(driver.DriverError, match="ControllerGetCapabilities"):
        await connected(path, needs_node=True)
    await running.stop()


async def test_services_that_a_driver_lacks_are_not_asked(
    path: str, identity: drivers.Identity
) -> None:
    identity.services.clear()
    running = server.Server([identity], path)
    await running.start()
    found = await connected(path, needs_groups=True)
    assert [*found.info.controller, *found.info.group_controller, *found.info.node] == []
    await found.close()
    await running.stop()


async def test_calls_go_through_the_stubs(path: str, served: server.Server) -> None:
    found = await connected(path)
    reply = await found.controller.create_volume(v1.CreateVolumeRequest(name="pvc-1"), timeout=5.0)
    assert reply.volume is not None
    assert reply.volume.volume_id == "pvc-1"
    with pytest.raises(RpcError) as caught:
        await found.controller.list_volumes(v1.ListVolumesRequest(), timeout=5.0)
    assert caught.value.code is Code.UNIMPLEMENTED
    await found.close()


async def test_calls_are_measured_under_the_driver_s_name_once_it_is_known(
    path: str, served: server.Server
) -> None:
    measured: list[Measured] = []

    def observe(name: str, method: str, code: str, seconds: float) -> None:
        assert seconds >= 0
        measured.append((name, method, code))

    found = await connected(path, metrics=observe)
    await found.controller.create_volume(v1.CreateVolumeRequest(name="pvc-1"), timeout=5.0)
    await found.close()
    identity, controller = "/csi.v1.Identity", "/csi.v1.Controller"
    assert measured == [
        ("", f"{identity}/Probe", "OK"),
        ("", f"{identity}/GetPluginInfo", "OK"),
        (drivers.NAME, f"{identity}/GetPluginCapabilities", "OK"),
        (drivers.NAME, f"{controller}/ControllerGetCapabilities", "OK"),
        (drivers.NAME, f"{controller}/CreateVolume", "OK"),
    ]


async def test_groups_that_nobody_needs_are_not_asked_about(
    path: str, identity: drivers.Identity
) -> None:
    """A driver may announce the service and serve it elsewhere; only snapshotters ask."""
    identity.services.append(drivers.PluginType.GROUP_CONTROLLER_SERVICE)
    running = server.Server([identity, drivers.Controller()], path)
    await running.start()
    found = await connected(path)
    assert found.info.group_controller == frozenset()
    await found.close()
    await running.stop()


async def test_probing_goes_on_until_the_driver_is_ready(
    path: str, served: server.Server, identity: drivers.Identity, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver, "PROBE_INTERVAL", 0.01)
    late = RpcError(Code.DEADLINE_EXCEEDED, "slow start")
    identity.probes = [False, late, False, None]
    found = await connected(path)
    assert identity.probed == 4
    await found.close()


async def test_a_probe_without_an_answer_is_repeated(
    path: str, served: server.Server, identity: drivers.Identity
) -> None:
    identity.hangs = True
    found = await driver.Driver.connect(path, timeout=0.3)
    assert identity.probed >= 2
    await found.close()


async def test_any_other_failure_of_probe_ends_the_start(
    path: str, served: server.Server, identity: drivers.Identity
) -> None:
    identity.probes = [RpcError(Code.UNIMPLEMENTED, "no such thing")]
    with pytest.raises(driver.DriverError) as caught:
        await connected(path)
    assert str(caught.value) == (
        f"CSI driver at {path}: Probe failed: rpc error: code = Unimplemented desc = no such thing"
    )


async def test_a_driver_without_a_name_is_refused(
    path: str, served: server.Server, identity: drivers.Identity
) -> None:
    identity.name = ""
    with pytest.raises(driver.DriverError, match="GetPluginInfo returned no name: configure one"):
        await connected(path)


async def test_capabilities_that_cannot_be_had_are_named(
    path: str, identity: drivers.Identity
) -> None:
    running = server.Server([identity], path)
    await running.start()
    with pytest.raises(driver.DriverError, match=r"ControllerGetCapabilities failed: .*Unimpl"):
        await connected(path)
    await running.stop()


async def test_a_driver_that_never_comes_is_an_error(path: str) -> None:
    with pytest.raises(driver.DriverError, match=r"no connection within 0.1 s: cannot connect to"):
        await connected(path, connect_timeout=0.1)


async def test_an_address_that_is_no_socket_is_refused_early() -> None:
    with pytest.raises(ValueError, match=r"localhost:1"):
        await connected("localhost:1")


async def test_giving_up_a_start_leaves_no_connection(
    path: str, served: server.Server, identity: drivers.Identity
) -> None:
    identity.hangs = True
    start = asyncio.create_task(connected(path))
    await waiting.until(lambda: identity.probed, "the driver is probed")
    start.cancel()
    await asyncio.wait([start])
    await waiting.until(lambda: not served.connections, "the connection is closed")


async def test_the_loss_of_the_driver_is_told_while_idle(path: str, served: server.Server) -> None:
    lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    found = await connected(path, on_lost=lost.set_result)
    for connection in set(served.connections):
        connection.link.transport.abort()
    assert "was lost" in await asyncio.wait_for(lost, 60.0)
    with pytest.raises(RpcError) as caught:
        await found.identity.probe(v1.ProbeRequest(), timeout=5.0)
    assert caught.value.code is Code.UNAVAILABLE
    await found.close()


async def test_a_role_that_outlives_its_driver_reconnects(path: str, served: server.Server) -> None:
    found = await connected(path, reconnect=True)
    for connection in set(served.connections):
        connection.link.transport.abort()
    await waiting.until(lambda: not found.channel.is_connected, "the connection is lost")
    await found.identity.probe(v1.ProbeRequest(), timeout=5.0)
    await found.close()
