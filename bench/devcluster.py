"""The embedded cluster: time to ready, creations, and watchers that must lose nothing.

The server has the first core and the load the last one, so that the figures are those of one
core. The load is that of the tests (``support.fanout``). With CLUSTER=kubernetes the same is
asked of Kubernetes itself, which has all cores.
"""

import argparse
import asyncio
import contextlib
import json
import os
import pathlib
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass

from support import cluster as clusters
from support import fanout, processes, servers

from bench import measuring, stack

DEADLINE = 300.0


@dataclass(frozen=True, slots=True)
class Result:
    """What one kind of store showed: seconds, rates, MB. ``lost`` counts over all watchers.

    ``cpu`` is the server's for one creation and its deliveries, in seconds: unlike the rates it
    means something on a machine that does other work too.
    """

    store: str
    ready: float
    creations: float
    deliveries: float
    cpu: float
    lost: int
    rss: float
    anonymous: float

    @property
    def figures(self) -> dict[str, object]:
        """The keys of the last line."""
        return {
            "ready_seconds": round(self.ready, 2),
            "creations_per_second": self.creations,
            "deliveries_per_second": self.deliveries,
            "cpu_ms_per_creation": round(1000 * self.cpu, 3),
            "events_lost": self.lost,
            "rss_mb": self.rss,
            "anonymous_mb": self.anonymous,
        }


@contextlib.asynccontextmanager
async def started(
    folder: pathlib.Path, kind: str, store: str
) -> AsyncIterator[tuple[servers.Server, float]]:
    """Start a server in a new folder; yield it and the seconds that it took."""
    os.sched_setaffinity(0, stack.CORES if kind == "kubernetes" else {min(stack.CORES)})
    spawner = processes.Processes(folder / "logs")
    server = servers.Server(spawner, clusters.short_directory() / "c", kind=kind, store=store)
    try:
        began = time.monotonic()
        await server.start()
        took = time.monotonic() - began
        os.sched_setaffinity(0, {max(stack.CORES)})
        yield server, took
    finally:
        spawner.close()
        clusters.remove_tree(server.directory.parent)


async def measure(folder: pathlib.Path, store: str, options: argparse.Namespace) -> Result:
    """Start ``rounds`` servers and load the last one."""
    times = []
    for _ in range(options.rounds - 1):
        async with started(folder, options.cluster, store) as (_, took):
            times.append(took)
    async with started(folder, options.cluster, store) as (server, took):
        rss, anonymous = measuring.memory(server.process.pid)
        cpu = measuring.cpu_seconds(server.process.pid)
        load = [sys.executable, fanout.__file__, str(server.directory)]
        counts = [str(options.events), str(options.watchers)]
        seen = json.loads(await processes.run([*load, *counts], timeout=DEADLINE))
        cpu = measuring.cpu_seconds(server.process.pid) - cpu
    return Result(
        store,
        statistics.median([*times, took]),
        seen["creations_per_second"],
        seen["deliveries_per_second"],
        cpu / options.events,
        _lost(seen, options),
        rss,
        anonymous,
    )


def _lost(seen: dict[str, float], options: argparse.Namespace) -> int:
    """Count events that are missing; watchers that disagree have lost all that one can lose."""
    if seen["sequences"] != 1 or not seen["is_ordered"]:
        return int(options.events * options.watchers)
    return int((options.events - seen["events"]) * options.watchers)


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="make bench NAME=devcluster", description=__doc__)
    parser.add_argument("--cluster", choices=["embedded", "kubernetes"], default="embedded")
    parser.add_argument("--events", type=int, default=10_000)
    parser.add_argument("--watchers", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=5, help="starts to take the median of")
    parser.add_argument("--store", nargs="*", default=["memory", "sqlite"])
    return parser.parse_args()


async def main() -> None:
    """Run each store, print the table and the summary of the first one."""
    options = parse()
    results = []
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        for store in options.store:
            results.append(await measure(pathlib.Path(folder), store, options))
            print(f"{store}: done", flush=True)
    rows = [{"store": result.store, **result.figures} for result in results]
    measuring.print_result(f"devcluster, {options.cluster}", rows)
    measuring.print_summary(results[0].figures)


if __name__ == "__main__":
    asyncio.run(main())
