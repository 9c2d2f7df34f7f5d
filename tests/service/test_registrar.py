"""The registrar between a real driver and a real node agent, each of them killed and restarted."""

import asyncio
import signal

import pytest
from bitts.rpc import introspection
from support import cluster as clusters
from support import nodeside, waiting
from support.nodeside import NodeSide


@pytest.fixture
async def node(no_leaks: None, cluster: clusters.Cluster) -> NodeSide:
    made = NodeSide(cluster)
    await made.start_agent()
    return made


async def test_a_driver_is_registered_and_deregistered(node: NodeSide) -> None:
    await node.start_driver()
    registrar = node.start_registrar()
    await node.registered()
    assert await nodeside.until_status(registrar.port, "/readyz", 200) == "ok"
    assert await nodeside.ask(registrar.port) == (200, "ok")
    assert await asyncio.to_thread(node.files) == [node.registration.name]
    assert (await asyncio.to_thread(node.registration.stat)).st_mode & 0o777 == 0o700
    assert await registrar.process.stop() == 0
    assert await asyncio.to_thread(node.files) == []
    await node.deregistered()


async def test_the_registrar_waits_for_its_driver(node: NodeSide) -> None:
    registrar = node.start_registrar()
    text = await nodeside.until_status(registrar.port, "/healthz", 404)
    assert "the driver has not answered yet" in text
    assert (await nodeside.ask(registrar.port, "/readyz"))[0] == 503
    await node.start_driver()
    await node.registered()
    await nodeside.until_status(registrar.port, "/readyz", 200)


async def test_sigint_takes_the_driver_off_the_node_too(node: NodeSide) -> None:
    await node.start_driver()
    registrar = node.start_registrar()
    await node.registered()
    registrar.process.send_signal(signal.SIGINT)
    assert await registrar.process.wait() == 0
    assert await asyncio.to_thread(node.files) == []
    await node.deregistered()


async def test_a_driver_that_was_killed_is_registered_anew(node: NodeSide) -> None:
    driver = await node.start_driver()
    registrar = node.start_registrar()
    await node.registered()
    driver.process.kill()
    await registrar.process.wait_for_output("Lost the connection to the driver")
    assert await nodeside.ask(registrar.port) == (200, "ok")
    assert await asyncio.to_thread(node.registration.exists), "pods need it for the way back"
    await node.start_driver()
    await node.registered(times=2)
    await nodeside.until_status(registrar.port, "/readyz", 200)
    assert "the driver was restarted" in registrar.process.output()


async def test_a_killed_registrar_leaves_a_stale_socket_that_the_next_replaces(
    node: NodeSide,
) -> None:
    await node.start_driver()
    registrar = node.start_registrar()
    await node.registered()
    registrar.process.kill()
    assert await asyncio.to_thread(node.files) == [node.registration.name]
    second = node.start_registrar()
    await node.registered(times=2)
    await nodeside.until_status(second.port, "/readyz", 200)


async def test_a_restarted_agent_finds_the_driver(node: NodeSide) -> None:
    await node.start_driver()
    registrar = node.start_registrar()
    await node.registered()
    assert node.agent is not None
    node.agent.process.kill()
    await node.start_agent()
    await node.registered()
    told = "The kubelet registered the driver"
    await waiting.until(lambda: registrar.process.output().count(told) == 2, "the second word")
    assert await nodeside.ask(registrar.port, "/readyz") == (200, "ok")


async def test_of_two_registrars_one_waits_for_the_other_s_end(node: NodeSide) -> None:
    await node.start_driver()
    first = node.start_registrar()
    await node.registered()
    second = node.start_registrar("--introspection-socket=" + str(node.root / "second.sock"))
    await second.process.wait_for_output("another process serves")
    assert (await nodeside.ask(second.port, "/readyz"))[0] == 503
    assert await nodeside.ask(first.port, "/readyz") == (200, "ok")
    first.process.kill()
    await node.registered(times=2)
    await nodeside.until_status(second.port, "/readyz", 200)
    assert await second.process.stop() == 0
    await node.deregistered()


async def test_a_refusal_is_tried_again_until_its_cause_is_gone(node: NodeSide) -> None:
    await node.label("elsewhere")
    await node.start_driver()
    registrar = node.start_registrar()
    output = await registrar.process.wait_for_output("The kubelet refused the driver")
    assert "contradicts the node's label" in output
    assert registrar.process.alive
    async with introspection.connect(f"{node.socket.parent}/{INTROSPECTION}") as asked:
        found = await asked.object(str(node.socket))
        assert "contradicts" in found.objects[0].reason
    await node.label(None)
    await node.registered()
    await nodeside.until_status(registrar.port, "/readyz", 200)


INTROSPECTION = "bitts-csi-node-driver-registrar.sock"


async def test_the_last_refusal_is_exit_code_1_and_leaves_no_socket(node: NodeSide) -> None:
    await node.label("elsewhere")
    await node.start_driver()
    registrar = node.start_registrar("--registration-attempts=1")
    assert await registrar.process.wait() == 1
    assert "refusal 1 of 1" in registrar.process.output()
    assert await asyncio.to_thread(node.files) == []


async def test_a_registration_socket_that_somebody_removes_is_put_back(node: NodeSide) -> None:
    await node.start_driver()
    node.start_registrar()
    await node.registered()
    await asyncio.to_thread(node.registration.unlink)
    await node.registered(times=2)


@pytest.mark.parametrize("way", ["no folder", "a file in the way", "a name too long"])
async def test_a_folder_that_takes_no_socket_is_exit_code_1(
    cluster: clusters.Cluster, way: str
) -> None:
    driver = await cluster.start_driver()
    folder = cluster.directory / ("x" * 90 if way == "a name too long" else "registry")
    if way != "no folder":
        await asyncio.to_thread(folder.mkdir)
    if way == "a file in the way":
        await asyncio.to_thread((folder / f"{driver.name}-reg.sock").touch)
    registrar = cluster.processes.spawn(
        [
            "csi-node-driver-registrar",
            f"--csi-address={driver.socket}",
            "--kubelet-registration-path=/host/csi.sock",
            f"--plugin-registration-path={folder}",
        ]
    )
    assert await registrar.wait() == 1
    assert "look at --plugin-registration-path" in registrar.output()


async def test_what_goes_on_can_be_asked(node: NodeSide) -> None:
    await node.start_driver()
    registrar = node.start_registrar("--enable-pprof")
    await nodeside.until_status(registrar.port, "/readyz", 200)
    async with introspection.connect(f"{node.socket.parent}/{INTROSPECTION}") as asked:
        found = await asked.object(node.cluster.driver_name)
        assert [one.text for one in found.findings] == ["the kubelet registered the driver"]
        figures = {one.name: one.value for one in (await asked.process()).figures}
        assert figures == {"offers": 1.0, "refusals in a row": 0.0, "registered": 1.0}
    assert "registration worker 0" in (await nodeside.ask(registrar.port, "/debug/bitts/tasks"))[1]
    decisions = await nodeside.ask(registrar.port, "/debug/bitts/decisions")
    assert "finished" in decisions[1]


async def test_a_taken_port_is_exit_code_1(node: NodeSide) -> None:
    first = node.start_registrar()
    await nodeside.until_status(first.port, "/healthz", 404)
    second = node.start_registrar(f"--http-endpoint=127.0.0.1:{first.port}")
    assert await second.process.wait() == 1
    assert "cannot listen on --http-endpoint" in second.process.output()
