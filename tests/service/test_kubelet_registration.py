"""The registrar and the livenessprobe beside a driver on a node, each of the parts restarted."""

import asyncio

import pytest
from support import processes, workloads
from support.kubeletside import DRIVER, PROBE, REGISTRAR
from support.workloads import STAY, Work

pytestmark = [pytest.mark.root, pytest.mark.timeout(480)]


async def test_a_registered_driver_is_on_the_node_s_objects(work: Work) -> None:
    plugin = work.plugin
    key = f"topology.{plugin.name}/node"
    assert await work.registered() == {
        "name": plugin.name,
        "nodeID": plugin.node,
        "topologyKeys": [key],
    }
    node = await work.cluster.request("GET", f"/api/v1/nodes/{plugin.node}")
    assert node["metadata"]["labels"][key] == plugin.node
    assert plugin.name in node["metadata"]["annotations"]["csi.volume.kubernetes.io/nodeid"]
    assert await plugin.answers(REGISTRAR, "/readyz", 200) == "ok"
    assert await plugin.ask(REGISTRAR) == (200, "ok")


async def test_a_registrar_that_ends_takes_the_driver_off_the_node(work: Work) -> None:
    plugin = work.plugin
    assert await asyncio.to_thread(work.registrations) == [f"{plugin.name}-reg.sock"]
    assert await plugin.daemons[REGISTRAR].process.stop() == 0
    assert await asyncio.to_thread(work.registrations) == []
    await work.registered(there=False)
    await plugin.start_registrar()
    await work.registered()


async def test_a_killed_registrar_is_succeeded_by_the_next(work: Work) -> None:
    plugin = work.plugin
    plugin.daemons[REGISTRAR].kill()
    await plugin.daemons[REGISTRAR].process.wait()
    assert await asyncio.to_thread(work.registrations) == [f"{plugin.name}-reg.sock"]
    await plugin.start_registrar()
    await plugin.answers(REGISTRAR, "/readyz", 200)
    await work.registered()
    assert await asyncio.to_thread(work.registrations) == [f"{plugin.name}-reg.sock"]


async def test_a_killed_driver_is_registered_anew(work: Work) -> None:
    plugin = work.plugin
    await plugin.answers(REGISTRAR, "/readyz", 200)
    times = plugin.registrations()
    plugin.daemons[DRIVER].kill()
    await plugin.daemons[DRIVER].process.wait()
    await plugin.start_driver()
    await plugin.registered_again(times + 1)
    await plugin.answers(REGISTRAR, "/readyz", 200)
    await work.registered()


async def test_a_restarted_kubelet_registers_the_driver_again(work: Work) -> None:
    plugin = work.plugin
    await plugin.answers(REGISTRAR, "/readyz", 200)
    times = plugin.registrations()
    await plugin.restart_kubelet()
    await plugin.registered_again(times + 1)
    await work.registered()
    assert await plugin.ask(REGISTRAR, "/readyz") == (200, "ok")


async def test_a_refusal_is_tried_again_until_its_cause_is_gone(work: Work) -> None:
    plugin = work.plugin
    await plugin.daemons[REGISTRAR].process.stop()
    await work.registered(there=False)
    await work.label("elsewhere")
    try:
        await plugin.start_registrar()
        process = plugin.daemons[REGISTRAR].process
        assert "elsewhere" in await process.wait_for_output("The kubelet refused the driver")
        assert "refused" in await plugin.answers(REGISTRAR, "/readyz", 503)
        await work.registered(there=False)
    finally:
        await work.label(plugin.node)
    await work.registered()
    await plugin.answers(REGISTRAR, "/readyz", 200)


async def test_a_frozen_driver_fails_its_probe_until_it_goes_on(work: Work) -> None:
    plugin = work.plugin
    assert await plugin.answers(PROBE, "/healthz", 200) == "ok"
    plugin.daemons[DRIVER].freeze(frozen=True)
    assert "DeadlineExceeded" in await plugin.answers(PROBE, "/healthz", 500)
    assert await plugin.ask(REGISTRAR) == (200, "ok"), "it is about the registration alone"
    plugin.daemons[DRIVER].freeze(frozen=False)
    assert await plugin.answers(PROBE, "/healthz", 200) == "ok"
    await work.registered()


@pytest.mark.kubernetes(reason="the embedded cluster's node agent makes no probes")
async def test_a_kubelet_restarts_the_container_of_a_frozen_driver(work: Work) -> None:
    """The container stands for the driver's: the probe of its pod asks our livenessprobe."""
    plugin = work.plugin
    get = {"host": "127.0.0.1", "port": plugin.daemons[PROBE].port, "path": "/healthz"}
    probe = {"httpGet": get, "periodSeconds": 1, "timeoutSeconds": 3, "failureThreshold": 1}
    container = {**workloads.container(STAY, {}), "livenessProbe": probe}
    await work.pod("driver", "", containers=[container], restartPolicy="Always")
    assert (await work.runs("driver"))["restartCount"] == 0
    plugin.daemons[DRIVER].freeze(frozen=True)
    try:
        await work.event("driver", "Unhealthy")
        await work.until("driver", lambda pod: restarts(pod) >= 1, "is restarted")
    finally:
        plugin.daemons[DRIVER].freeze(frozen=False)
    await work.runs("driver")


def restarts(pod: workloads.Obj) -> int:
    return int(pod["status"]["containerStatuses"][0]["restartCount"])


async def test_an_old_manifest_s_probe_command_succeeds(work: Work) -> None:
    place = work.plugin.place
    command = [
        *work.plugin.enter,
        processes.script(REGISTRAR),
        "--mode=kubelet-registration-probe",
        f"--kubelet-registration-path={place.home(inside=True)}/csi.sock",
    ]
    assert await processes.run(command) == ""
    assert await asyncio.to_thread(work.registrations) == [f"{work.plugin.name}-reg.sock"]
