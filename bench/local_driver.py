"""What local-driver's volumes cost: each call alone, and many at once, per sort of volume.

The driver is asked over its socket by one client in this process, so the figures hold what
gRPC costs on both sides. Node calls need root and are left out without it.
"""

import argparse
import asyncio
import functools
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
    Sort("btrfs", "btrfs", localdriver.capability(), 8 * MIB),
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
    row |= await copies(client, sort, volumes)
    if os.geteuid() == 0:
        row |= await create_and_publish(client, home, sort, count)
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


async def copies(client: Client, sort: Sort, volumes: Sequence[v1.Volume]) -> dict[str, object]:
    """Take a snapshot of each volume, restore and clone it, expand the clone; all goes again."""
    taken: list[v1.Snapshot] = []
    made: list[v1.Volume] = []

    async def snapshot(volume: v1.Volume) -> None:
        taken.append(await client.snapshot(f"s-{volume.volume_id}", volume.volume_id))

    def copy(name: str, source: v1.Snapshot | v1.Volume) -> Callable[[], Awaitable[None]]:
        request = localdriver.create_request(
            name,
            size=sort.size,
            want=[sort.want],
            parameters={"backend": sort.backend},
            source=source,
        )

        async def call() -> None:
            made.append(await client.create(request))

        return call

    def expand(volume: v1.Volume) -> Callable[[], Awaitable[bool]]:
        return lambda: client.expand(volume.volume_id, 2 * sort.size)

    row: dict[str, object] = {}
    snapshots = [functools.partial(snapshot, volume) for volume in volumes]
    row["snapshot ms"] = spread(await timed(snapshots))
    restores = [copy(f"r-{one.snapshot_id}", one) for one in taken]
    row["restore ms"] = spread(await timed(restores))
    clones = [copy(f"c-{one.volume_id}", one) for one in volumes]
    row["clone ms"] = spread(await timed(clones))
    row["expand ms"] = spread(await timed(map(expand, made)))
    for one in made:
        await client.delete(one.volume_id)
    for snapshot_made in taken:
        await client.delete_snapshot(snapshot_made.snapshot_id)
    return row


async def create_and_publish(
    client: Client, home: pathlib.Path, sort: Sort, count: int
) -> dict[str, object]:
    """From CreateVolume to the volume at a pod's path, as one figure."""

    def whole(number: int) -> Callable[[], Awaitable[None]]:
        request = localdriver.create_request(
            f"{sort.name}-whole-{number}",
            size=sort.size,
            want=[sort.want],
            parameters={"backend": sort.backend},
        )

        async def call() -> None:
            use = Use(client, home, await client.create(request), sort.want)
            await use.stage()
            await use.publish()
            uses.append(use)

        return call

    uses: list[Use] = []
    row: dict[str, object] = {
        "create+stage+publish ms": spread(await timed(map(whole, range(count))))
    }
    for use in uses:
        await use.unpublish()
        await use.unstage()
        await client.delete(use.volume_id)
    return row


async def snapshot_of_much(client: Client, home: pathlib.Path, gib: int) -> str:
    """Snapshots of a btrfs volume with ``gib`` GiB written."""
    size = (gib + 1) << 30
    request = localdriver.create_request("much", size=size, parameters={"backend": "btrfs"})
    volume = await client.create(request)
    file = home / "state" / "btrfs" / volume.volume_id / "data"
    block = os.urandom(64 * MIB)

    def fill() -> None:
        with file.open("wb") as opened:
            for _ in range(gib * 16):
                opened.write(block)
            opened.flush()
            os.fsync(opened.fileno())
        os.sync()

    await asyncio.to_thread(fill)
    calls = [functools.partial(client.snapshot, f"much-{n}", volume.volume_id) for n in range(20)]
    return spread(await timed(calls))


async def run(count: int, gib: int) -> None:
    """Measure every sort of volume on one driver."""
    with tempfile.TemporaryDirectory(prefix="b-") as folder:
        home = pathlib.Path(folder)
        started = processes.Processes(home / "logs")
        harness = Harness(home, started)
        much: dict[str, object] = {}
        try:
            begun = time.perf_counter()
            process = await harness.start("--capacity=100Ti", f"--btrfs-size={gib + 8}Gi")
            ready = round(time.perf_counter() - begun, 3)
            rss, anonymous = measuring.memory(process.pid)
            async with harness.client() as client:
                rows = [await measure(client, home, sort, count) for sort in SORTS]
                if gib:
                    much["snapshot_ms_of_gib"] = {
                        str(gib): await snapshot_of_much(client, home, gib)
                    }
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
            **much,
        }
    )


def main() -> None:
    """Read the arguments and measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--volumes", type=int, default=100, help="volumes of each sort")
    parser.add_argument(
        "--gib", type=int, default=0, help="GiB written before snapshots of it are measured"
    )
    arguments = parser.parse_args()
    asyncio.run(run(arguments.volumes, arguments.gib))


if __name__ == "__main__":
    main()
