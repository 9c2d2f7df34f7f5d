"""What local-driver's volumes cost: each call alone, and many at once, per sort of volume.

The driver is asked over its socket by one client in this process, so the figures hold what
gRPC costs on both sides. Node calls need root and are left out without it.
"""

import argparse
import asyncio
import os
import pathlib
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass

from bitts.csi import v1
from support import localdriver, processes
from support.localdriver import MIB, Client, Harness, Use

from bench import measuring

AT_ONCE = 50


@dataclass(frozen=True, slots=True)
class Sort:
    """A sort of volume."""

    name: str
    backend: str
    want: v1.VolumeCapability
    size: int


SORTS = (
    Sort("directory", "directory", localdriver.capability(), 8 * MIB),
    Sort("ext4", "image", localdriver.capability(fs_type="ext4"), 8 * MIB),
    Sort("xfs", "image", localdriver.capability(fs_type="xfs"), 300 * MIB),
    Sort("block", "image", localdriver.block_capability(), 8 * MIB),
)


async def timed(calls: Iterable[Callable[[], Awaitable[object]]]) -> list[float]:
    """Make calls one after the other; return the milliseconds of each."""
    taken = []
    for call in calls:
        started = time.perf_counter()
        await call()
        taken.append(1000 * (time.perf_counter() - started))
    return taken


async def per_second(calls: Sequence[Callable[[], Awaitable[object]]]) -> float:
    """Make calls, ``AT_ONCE`` at a time; return how many a second."""
    gate = asyncio.Semaphore(AT_ONCE)

    async def through(call: Callable[[], Awaitable[object]]) -> None:
        async with gate:
            await call()

    started = time.perf_counter()
    await asyncio.gather(*map(through, calls))
    return round(len(calls) / (time.perf_counter() - started), 1)


def spread(taken: Sequence[float]) -> str:
    """Return ``p50 / p99`` in milliseconds."""
    ordered = sorted(taken)
    return f"{statistics.median(ordered):.2f} / {ordered[int(len(ordered) * 0.99)]:.2f}"


async def measure(client: Client, home: pathlib.Path, sort: Sort, count: int) -> dict[str, object]:
    """Go through the life of ``count`` volumes, one call at a time and then at once."""

    def create(name: str) -> Callable[[], Awaitable[v1.Volume]]:
        parameters = {"backend": sort.backend}
        request = localdriver.create_request(
            name, size=sort.size, want=[sort.want], parameters=parameters
        )
        return lambda: client.create(request)

    def delete(volume: v1.Volume) -> Callable[[], Awaitable[None]]:
        return lambda: client.delete(volume.volume_id)

    row: dict[str, object] = {"volume": sort.name}
    made = [create(f"{sort.name}-{number}") for number in range(count)]
    row["create ms"] = spread(await timed(made))
    volumes = [await again() for again in made]  # the same requests find the same volumes
    if os.geteuid() == 0:
        uses = [Use(client, home, volume, sort.want) for volume in volumes]
        row["first stage ms"] = spread(await timed(use.stage for use in uses))
        row["publish ms"] = spread(await timed(use.publish for use in uses))
        row["unpublish ms"] = spread(await timed(use.unpublish for use in uses))
        row["unstage ms"] = spread(await timed(use.unstage for use in uses))
    row["delete ms"] = spread(await timed(map(delete, volumes)))
    burst = [create(f"{sort.name}-burst-{number}") for number in range(count * 10)]
    row["creates/s"] = await per_second(burst)
    volumes = [await again() for again in burst]
    row["deletes/s"] = await per_second([delete(volume) for volume in volumes])
    return row


async def run(count: int) -> None:
    """Measure every sort of volume on one driver."""
    with tempfile.TemporaryDirectory(prefix="b-") as folder:
        home = pathlib.Path(folder)
        started = processes.Processes(home / "logs")
        harness = Harness(home, started)
        try:
            begun = time.perf_counter()
            process = await harness.start("--capacity=100Ti")
            ready = round(time.perf_counter() - begun, 3)
            rss, anonymous = measuring.memory(process.pid)
            async with harness.client() as client:
                rows = [await measure(client, home, sort, count) for sort in SORTS]
            rss_after, _ = measuring.memory(process.pid)
        finally:
            started.close()
            harness.close()
    measuring.print_result("local-driver (ms: p50 / p99, one call at a time)", rows)
    measuring.print_summary(
        {
            "creates_per_second": {str(row["volume"]): row["creates/s"] for row in rows},
            "deletes_per_second": {str(row["volume"]): row["deletes/s"] for row in rows},
            "ready_seconds": ready,
            "rss_mb": rss,
            "anonymous_mb": anonymous,
            "rss_after_mb": rss_after,
        }
    )


def main() -> None:
    """Read the arguments and measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--volumes", type=int, default=100, help="volumes of each sort")
    asyncio.run(run(parser.parse_args().volumes))


if __name__ == "__main__":
    main()
