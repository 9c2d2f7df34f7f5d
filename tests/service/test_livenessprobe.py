"""The probe beside a real driver that is away, hung, slow, or restarted."""

import asyncio
import pathlib
import re
import signal
from collections.abc import Iterator

import pytest
from support import localdriver, ports, processes, waiting
from support.nodeside import Helper, ask, until_status


@pytest.fixture
def driver(
    no_leaks: None, short_dir: pathlib.Path, spawner: processes.Processes
) -> Iterator[localdriver.Harness]:
    made = localdriver.Harness(short_dir, spawner)
    yield made
    made.close()


def start(driver: localdriver.Harness, spawner: processes.Processes, *words: str) -> Helper:
    port = ports.free()
    command = [
        "livenessprobe",
        f"--csi-address={driver.socket}",
        f"--http-endpoint=127.0.0.1:{port}",
        *words,
    ]
    return Helper(spawner.spawn(command), port)


async def probes(driver: localdriver.Harness) -> int:
    """How many Probe calls the driver has counted."""
    lines = await driver.faults("counts")
    found = [line for line in lines if re.match(r"Probe\b", line)]
    return int(found[0].split()[-1]) if found else 0


async def test_the_port_answers_before_the_driver_is_there(
    driver: localdriver.Harness, spawner: processes.Processes
) -> None:
    probe = start(driver, spawner)
    await until_status(probe.port, "/healthz", 503)
    await driver.start()
    assert await until_status(probe.port, "/healthz", 200) == "ok"
    assert (await ask(probe.port, "/nothing"))[0] == 404
    assert await probe.process.stop() == 0


async def test_a_driver_that_goes_and_comes_back(
    driver: localdriver.Harness, spawner: processes.Processes
) -> None:
    running = await driver.start()
    probe = start(driver, spawner, "--probe-timeout=20s")
    await until_status(probe.port, "/healthz", 200)
    running.kill()
    assert "Unavailable" in await until_status(probe.port, "/healthz", 500)
    await driver.start()
    await until_status(probe.port, "/healthz", 200)
    assert probe.process.output().count("The driver fails its probes") == 1


async def test_a_hung_driver_fails_and_recovers(
    driver: localdriver.Harness, spawner: processes.Processes
) -> None:
    running = await driver.start()
    probe = start(driver, spawner, "--probe-timeout=500ms", "--failure-threshold=2")
    await until_status(probe.port, "/healthz", 200)
    running.send_signal(signal.SIGSTOP)
    status, text = await ask(probe.port)
    assert (status, text.startswith("ok, failure 1 of 2")) == (200, True)
    status, text = await ask(probe.port)
    assert (status, "DeadlineExceeded" in text) == (500, True)
    running.send_signal(signal.SIGCONT)
    await until_status(probe.port, "/healthz", 200)


async def test_many_parallel_checks_of_a_slow_driver_are_one_probe(
    driver: localdriver.Harness, spawner: processes.Processes
) -> None:
    await driver.start(f"--fault-socket={driver.home / 'faults.sock'}")
    probe = start(driver, spawner, "--probe-timeout=20s")
    await until_status(probe.port, "/healthz", 200)
    await driver.faults("add Probe:latency=1s")
    before = await probes(driver)
    answers = await asyncio.gather(*(ask(probe.port) for _ in range(40)))
    assert answers == [(200, "ok")] * 40
    # One, and one more for those who came after it had ended.
    assert await probes(driver) - before in (1, 2)


async def test_a_recent_result_answers_for_the_driver(
    driver: localdriver.Harness, spawner: processes.Processes
) -> None:
    await driver.start(f"--fault-socket={driver.home / 'faults.sock'}")
    probe = start(driver, spawner, "--result-max-age=1h")
    await until_status(probe.port, "/healthz", 200)
    for _ in range(5):
        assert await ask(probe.port) == (200, "ok")
    assert await probes(driver) == 1


async def test_a_slow_start_is_forgiven_if_asked_for(
    driver: localdriver.Harness, spawner: processes.Processes
) -> None:
    probe = start(driver, spawner, "--startup-grace=1h")
    assert (await until_status(probe.port, "/healthz", 200)).startswith("ok, starting")
    running = await driver.start()
    await waiting.until(lambda: "The driver answers" in probe.process.output(), "the driver")
    assert await ask(probe.port) == (200, "ok")
    running.kill()
    assert (await ask(probe.port))[0] == 500, "grace is for drivers that were never healthy"


async def test_metrics_have_their_own_address_and_health_a_unix_socket(
    driver: localdriver.Harness, spawner: processes.Processes
) -> None:
    await driver.start()
    probe = start(driver, spawner, f"--metrics-endpoint=unix://{driver.home}/m.sock")
    await until_status(probe.port, "/healthz", 200)
    assert (await ask(probe.port, "/metrics"))[0] == 404
    reader, writer = await asyncio.open_unix_connection(f"{driver.home}/m.sock")
    writer.write(b"GET /metrics HTTP/1.1\r\nConnection: close\r\n\r\n")
    text = (await reader.read()).decode()
    writer.close()
    name = 'driver_name="local.csi.bitts.dev",method_name="/csi.v1.Identity/Probe"'
    assert re.search(
        rf'csi_sidecar_operations_seconds_count{{{name},grpc_status_code="OK"}} \d', text
    )
    assert "process_start_time_seconds" in text
    assert "bitts_livenessprobe_failures_in_a_row 0" in text
    assert await probe.process.stop() == 0
    assert not await asyncio.to_thread((driver.home / "m.sock").exists)


async def test_a_taken_port_is_exit_code_1_with_a_clear_message(
    driver: localdriver.Harness, spawner: processes.Processes
) -> None:
    first = start(driver, spawner)
    await until_status(first.port, "/healthz", 503)
    second = spawner.spawn(
        ["livenessprobe", f"--csi-address={driver.socket}", f"--health-port={first.port}"]
    )
    assert await second.wait() == 1
    assert f"cannot listen on --health-port=0.0.0.0:{first.port}" in second.output()
    assert "choose another port" in second.output()
