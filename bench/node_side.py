"""The helpers beside a driver on each node: time to ready, memory, CPU at rest and per probe.

A cluster has thousands of these processes and none of them does anything most of the time, so
what they cost at rest is what they cost. The driver is a real local-driver; the benchmark plays
the kubelet. Programs of others can be measured in the same way by giving their paths.
"""

import argparse
import asyncio
import contextlib
import pathlib
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass

from bitts.csi import registration
from bitts.rpc.codes import RpcError
from support import cluster as clusters
from support import nodeside, processes, waiting

from bench import measuring

DRIVER = "local.csi.bitts.dev"
SETTLE = 2.0
"""Seconds before memory is read."""
DEADLINE = 30.0


@dataclass(frozen=True, slots=True)
class Place:
    """A driver and the folders around it."""

    folder: pathlib.Path

    @property
    def socket(self) -> pathlib.Path:
        """The driver's socket."""
        return self.folder / "csi.sock"

    @property
    def offered(self) -> pathlib.Path:
        """Where the registrar offers the driver."""
        return self.folder / "registry" / f"{DRIVER}-reg.sock"


@dataclass(frozen=True, slots=True)
class Case:
    """A program with its flags, and what being ready means for it."""

    name: str
    command: tuple[str, ...]
    port: int
    is_ready: Callable[[], Awaitable[bool]]


def cpu(pid: int) -> float:
    """Return the seconds that all threads of a process have run, to the nanosecond."""
    found = 0.0
    for thread in pathlib.Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):
            found += int((thread / "schedstat").read_text().split()[0]) / 1e9
    return found


@contextlib.asynccontextmanager
async def driver(spawner: processes.Processes) -> AsyncIterator[Place]:
    """Run a driver in a folder with a short path."""
    with tempfile.TemporaryDirectory(prefix="b-", dir="/tmp") as name:
        place = Place(pathlib.Path(name))
        place.offered.parent.mkdir()
        command = [
            "local-driver",
            f"--endpoint=unix://{place.socket}",
            f"--state-dir={place.folder / 'state'}",
            "--node-id=bench",
        ]
        process = spawner.spawn(command)
        await process.wait_ready(lambda: clusters.accepts(place.socket), "the driver's socket")
        yield place
        await process.stop()


def cases(place: Place, options: argparse.Namespace) -> list[Case]:
    """Return what to measure: each program without and with HTTP."""
    port = nodeside.free_port()
    address = f"--csi-address={place.socket}"
    registrar = (
        options.registrar,
        address,
        f"--kubelet-registration-path={place.socket}",
        f"--plugin-registration-path={place.offered.parent}",
    )
    http = f"--http-endpoint=127.0.0.1:{port}"

    async def offers() -> bool:
        if not place.offered.is_socket():
            return False
        with contextlib.suppress(RpcError):
            return (await registration.get_info(str(place.offered))).name == DRIVER
        return False

    async def healthy() -> bool:
        return (await nodeside.ask(port))[0] == 200

    probe = (options.livenessprobe, address)
    return [
        Case("registrar", registrar, 0, offers),
        Case("registrar, HTTP", (*registrar, http), port, offers),
        Case("livenessprobe", (*probe, f"--health-port={port}"), port, healthy),
        Case("livenessprobe, metrics", (*probe, http), port, healthy),
    ]


async def ready_seconds(case: Case, spawner: processes.Processes) -> float:
    """Start the program once, and return the seconds until it is of use."""
    started = time.monotonic()
    process = spawner.spawn(case.command, name="timed")
    await waiting.until(case.is_ready, f"{case.name} ready", DEADLINE, interval=0.001)
    found = time.monotonic() - started
    await process.stop()
    return found


async def probed(case: Case, pid: int, count: int) -> float:
    """Probe over HTTP so many times, and return the program's CPU seconds."""
    before = cpu(pid)
    for _ in range(count):
        status, text = await nodeside.ask(case.port)
        assert status == 200, text
    return cpu(pid) - before


async def measure(
    case: Case, spawner: processes.Processes, options: argparse.Namespace
) -> dict[str, object]:
    """Return one row of the table."""
    times = [await ready_seconds(case, spawner) for _ in range(options.starts)]
    process = spawner.spawn(case.command, name="measured")
    await waiting.until(case.is_ready, f"{case.name} ready", DEADLINE)
    await asyncio.sleep(SETTLE)
    resident, anonymous = measuring.memory(process.pid)
    before = cpu(process.pid)
    await asyncio.sleep(options.idle)
    idle = (cpu(process.pid) - before) / options.idle
    row: dict[str, object] = {
        "program": case.name,
        "ready_seconds": round(statistics.median(times), 3),
        "ready_worst": round(max(times), 3),
        "rss_mb": resident,
        "anonymous_mb": anonymous,
        "idle_cpu_percent": round(100 * idle, 3),
        "cpu_ms_per_probe": "",
        "rss_after_probes_mb": "",
    }
    if case.port:
        used = await probed(case, process.pid, options.probes)
        row["cpu_ms_per_probe"] = round(1000 * used / options.probes, 2)
        row["rss_after_probes_mb"] = measuring.memory(process.pid)[0]
    await process.stop()
    return row


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="make bench NAME=node_side", description=__doc__)
    parser.add_argument("--starts", type=int, default=9, help="starts to take the median of")
    parser.add_argument("--idle", type=float, default=20.0, help="seconds at rest")
    parser.add_argument("--probes", type=int, default=500, help="HTTP probes")
    parser.add_argument("--registrar", default=processes.script("csi-node-driver-registrar"))
    parser.add_argument("--livenessprobe", default=processes.script("livenessprobe"))
    return parser.parse_args(words)


async def main() -> None:
    """Measure every case, print the table and a summary."""
    options = parse()
    with tempfile.TemporaryDirectory(prefix="bench-") as logs:
        spawner = processes.Processes(pathlib.Path(logs))
        try:
            async with driver(spawner) as place:
                rows = [await measure(case, spawner, options) for case in cases(place, options)]
        finally:
            spawner.close()
    measuring.print_result("helpers on a node", rows)
    keys = ("ready_seconds", "rss_mb", "idle_cpu_percent")
    measuring.print_summary({str(row["program"]): {key: row[key] for key in keys} for row in rows})


if __name__ == "__main__":
    asyncio.run(main())
