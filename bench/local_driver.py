"""What local-driver's volumes cost: each call alone, and many at once, per sort of volume.

With ``--peer PATH``, a binary of csi-driver-host-path, both drivers do the same in turns. It
has folders and raw images, without any flushing to disk. Beside sort ``btrfs`` stands its floor
where root measures: the same system calls on the same disk, without a driver.
"""

import argparse
import asyncio
import contextlib
import functools
import os
import pathlib
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass

from bitts.csi import v1
from bitts.rpc import channel
from support import cluster, localdriver, processes
from support.localdriver import MIB, Client, Harness

from bench import measuring, volumefloor, volumelife
from bench.volumelife import Figures, Life, Sort

SORTS = (
    Sort("directory", {"backend": "directory"}, localdriver.capability(), 8 * MIB),
    Sort("ext4", {"backend": "image"}, localdriver.capability(fs_type="ext4"), 8 * MIB),
    Sort("xfs", {"backend": "image"}, localdriver.capability(fs_type="xfs"), 300 * MIB),
    Sort("block", {"backend": "image"}, localdriver.block_capability(), 8 * MIB),
    Sort("btrfs", {"backend": "btrfs"}, localdriver.capability(), 8 * MIB),
)
PEER_SORTS = (
    Sort("peer", {}, localdriver.capability(), 8 * MIB),
    Sort("peer block", {}, localdriver.block_capability(), 8 * MIB),
)
FLOOR = "btrfs floor"
RIVALS = (("directory", "peer"), ("btrfs", "peer"), ("block", "peer block"), ("btrfs", FLOOR))
"""Which sort of ours stands against which of the peer's, or against the kernel alone."""

RATES = ("creates/s", "deletes/s")


@dataclass(frozen=True, slots=True)
class Choice:
    """What is measured: volumes per sort and round, GiB to write before snapshots, the peer."""

    volumes: int
    rounds: int
    gib: int
    sorts: Sequence[Sort]
    peer: str


def shown(name: str, taken: Sequence[float]) -> str:
    """Return ``p50 / p99`` of milliseconds, or a rate."""
    if name in RATES:
        return f"{statistics.median(taken):.0f}"
    ordered = sorted(taken)
    return f"{statistics.median(ordered):.2f} / {ordered[int(len(ordered) * 0.99)]:.2f}"


def medians(figures: Figures) -> dict[str, float]:
    """Return the middle value of each figure."""
    return {name: round(statistics.median(taken), 3) for name, taken in figures.items()}


def ratios(found: Mapping[str, Figures]) -> dict[str, dict[str, float]]:
    """Return our medians divided by the other's, by sort and figure."""
    every = {name: medians(figures) for name, figures in found.items()}
    return {
        f"{ours}/{peer}": {
            name: round(every[ours][name] / value, 3) for name, value in every[peer].items()
        }
        for ours, peer in RIVALS
        if ours in every and peer in every
    }


@contextlib.asynccontextmanager
async def peer_client(
    path: str, home: pathlib.Path, spawner: processes.Processes
) -> AsyncIterator[Client]:
    """Start csi-driver-host-path and connect to it."""
    socket = home / "peer.sock"
    flags = [f"-endpoint=unix://{socket}", f"-statedir={home}/peer", "-nodeid=node-1", "-v=0"]
    process = spawner.spawn([path, *flags], name="peer")
    await process.wait_ready(lambda: cluster.accepts(socket), "the peer's socket")
    opened = channel.Channel(str(socket))
    try:
        await opened.connect(localdriver.TIMEOUT)
        yield Client(opened)
    finally:
        await opened.close()


async def snapshots_of_much(
    client: Client, home: pathlib.Path, gib: int
) -> dict[str, dict[str, float | str]]:
    """Snapshots of a btrfs volume with ``gib`` GiB written: the driver's and, in turns, bare ones.

    The first are those taken as soon as all is written and flushed.
    """
    size = (gib + 1) << 30
    request = localdriver.create_request("much", size=size, parameters={"backend": "btrfs"})
    volume = await client.create(request)
    pool = home / "state" / "btrfs"
    content = pool / volume.volume_id
    block = os.urandom(64 * MIB)

    def fill() -> None:
        with (content / "data").open("wb") as opened:
            for _ in range(gib * 16):
                opened.write(block)
            opened.flush()
            os.fsync(opened.fileno())
        os.sync()

    await asyncio.to_thread(fill)
    floor = volumefloor.Floor(pool, home, size)
    taken: Figures = {"ours": [], "floor": []}
    for number in range(20):
        call = functools.partial(client.snapshot, f"much-{number}", volume.volume_id)
        taken["ours"] += await volumelife.timed([call])
        if os.geteuid() == 0:
            taken["floor"].append(await floor.snapshot(content, f"floor-{number}"))
    return {
        name: {"first": round(each[0], 2), "p50 / p99": shown("snapshot", each)}
        for name, each in taken.items()
        if each
    }


async def turns(
    choice: Choice, home: pathlib.Path, pairs: Sequence[tuple[Client, Sort]]
) -> dict[str, Figures]:
    """Measure each sort, one after the other, ``rounds`` times."""
    found: dict[str, Figures] = {}
    for number in range(choice.rounds):
        for client, sort in pairs:
            prefix = f"{sort.name.replace(' ', '-')}-{number}"
            figures = await Life(client, home, sort, choice.volumes, prefix).measure()
            _note(found, sort.name, figures)
            if sort.name == "btrfs" and os.geteuid() == 0:
                floor = volumefloor.Floor(home / "state" / "btrfs", home, sort.size)
                _note(found, FLOOR, await floor.measure(choice.volumes))
    return found


def _note(found: dict[str, Figures], name: str, figures: Figures) -> None:
    for figure, taken in figures.items():
        found.setdefault(name, {}).setdefault(figure, []).extend(taken)


async def run(choice: Choice) -> None:
    """Measure sorts of volumes on one driver, and on the peer's."""
    with tempfile.TemporaryDirectory(prefix="b-") as folder:
        home = pathlib.Path(folder)
        spawner = processes.Processes(home / "logs")
        harness = Harness(home, spawner)
        summary: dict[str, object] = {}
        try:
            begun = time.perf_counter()
            process = await harness.start("--capacity=100Ti", f"--btrfs-size={choice.gib + 8}Gi")
            summary["ready_seconds"] = round(time.perf_counter() - begun, 3)
            summary["rss_mb"], summary["anonymous_mb"] = measuring.memory(process.pid)
            async with contextlib.AsyncExitStack() as stack:
                client = await stack.enter_async_context(harness.client())
                probe = functools.partial(client.identity.probe, v1.ProbeRequest(), timeout=5.0)
                summary["probe_ms"] = shown("probe", await volumelife.timed([probe] * 500))
                pairs = [(client, sort) for sort in choice.sorts]
                if choice.peer:
                    rival = peer_client(choice.peer, home, spawner)
                    other = await stack.enter_async_context(rival)
                    pairs += [(other, sort) for sort in PEER_SORTS]
                found = await turns(choice, home, pairs)
                if choice.gib:
                    told = await snapshots_of_much(client, home, choice.gib)
                    summary["snapshot_ms_of_gib"] = {str(choice.gib): told}
            summary["rss_after_mb"], _ = measuring.memory(process.pid)
        finally:
            spawner.close()
            harness.close()
    names = list(dict.fromkeys(name for figures in found.values() for name in figures))
    rows = [
        {
            "ms: p50 / p99": sort,
            **{name: shown(name, figures[name]) if name in figures else "" for name in names},
        }
        for sort, figures in found.items()
    ]
    measuring.print_result("local-driver, one call at a time", rows)
    summary |= {"p50": {sort: medians(figures) for sort, figures in found.items()}}
    summary |= {"ratios": ratios(found)}
    measuring.print_summary(summary)


def main() -> None:
    """Read the arguments and measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--volumes", type=int, default=100, help="volumes of each sort and round")
    parser.add_argument("--rounds", type=int, default=2, help="turns of every sort")
    parser.add_argument(
        "--gib", type=int, default=0, help="GiB written before snapshots of it are measured"
    )
    parser.add_argument(
        "--sort",
        action="append",
        choices=[sort.name for sort in SORTS],
        help="a sort of volume to measure, repeatable; default: all",
    )
    parser.add_argument("--peer", default="", help="binary of csi-driver-host-path to compare with")
    given = parser.parse_args()
    sorts = [sort for sort in SORTS if sort.name in (given.sort or (sort.name,))]
    asyncio.run(run(Choice(given.volumes, given.rounds, given.gib, sorts, given.peer)))


if __name__ == "__main__":
    main()
