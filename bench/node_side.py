"""The helpers beside a driver on each node: time to ready, memory, CPU at rest and per probe.

A cluster has thousands of these processes and none of them does anything most of the time, so
what they cost at rest is what they cost. The benchmark plays driver and kubelet. CPU seconds to
ready are what remains of the time on a machine that does nothing else. Programs of others can
be measured in the same way by giving their paths.
"""

import argparse
import asyncio
import contextlib
import pathlib
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from bitts.csi import registration
from bitts.rpc.codes import RpcError
from support import ports, processes, waiting
from support.identitydriver import IdentityDriver

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


def cases(place: Place, options: argparse.Namespace) -> list[Case]:
    """Return what to measure: each program without and with HTTP."""
    port = ports.free()
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
        return await probe(port)

    checker = (options.livenessprobe, address)
    return [
        Case("registrar", registrar, 0, offers),
        Case("registrar, HTTP", (*registrar, http), port, offers),
        Case("livenessprobe", (*checker, f"--health-port={port}"), port, healthy),
        Case("livenessprobe, metrics", (*checker, http), port, healthy),
    ]


async def probe(port: int) -> bool:
    """Probe as a kubelet does; return whether the answer was 200."""
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    try:
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        return (await reader.read()).startswith(b"HTTP/1.1 200")
    finally:
        writer.close()


async def started(case: Case, spawner: processes.Processes) -> tuple[float, float]:
    """Start the program once; return the seconds until it is of use, and its CPU seconds."""
    begin = time.monotonic()
    process = spawner.spawn(case.command, name="timed")
    await waiting.until(case.is_ready, f"{case.name} ready", DEADLINE, interval=0.002)
    found = time.monotonic() - begin, cpu(process.pid)
    await process.stop()
    return found


async def probed(case: Case, pid: int, count: int) -> float:
    """Probe over HTTP so many times, and return the program's CPU seconds."""
    before = cpu(pid)
    for _ in range(count):
        assert await probe(case.port), "a probe failed"
    return cpu(pid) - before


async def measure(
    case: Case, spawner: processes.Processes, options: argparse.Namespace
) -> dict[str, object]:
    """Return one row of the table."""
    starts = [await started(case, spawner) for _ in range(options.starts)]
    times = [seconds for seconds, _ in starts]
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
        "ready_best": round(min(times), 3),
        "ready_cpu_seconds": round(statistics.median(used for _, used in starts), 3),
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
    with tempfile.TemporaryDirectory(prefix="b-", dir="/tmp") as folder:
        spawner = processes.Processes(pathlib.Path(folder) / "logs")
        try:
            place = Place(pathlib.Path(folder))
            place.offered.parent.mkdir()
            async with IdentityDriver(place.socket, DRIVER):
                rows = [await measure(case, spawner, options) for case in cases(place, options)]
        finally:
            spawner.close()
    measuring.print_result("helpers on a node", rows)
    keys = ("ready_seconds", "ready_cpu_seconds", "rss_mb", "idle_cpu_percent")
    measuring.print_summary({str(row["program"]): {key: row[key] for key in keys} for row in rows})


if __name__ == "__main__":
    asyncio.run(main())
