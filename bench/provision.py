"""Provision and delete bursts: speed, API writes per claim, memory and start-up time.

Ours and, with ``--peer``, upstream's csi-provisioner run one after the other on the same kind
of cluster and against the same driver, in one run. The sidecar is pinned to one core, so that
the figures are those of one core; an embedded cluster and the rest have the first one. On
Kubernetes the writes of every program are counted, from the audit log. CPU is counted until all
volumes are stored, and (of the other programs, too) until all claims are bound.
"""

import argparse
import asyncio
import contextlib
import os
import pathlib
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from support import peers, processes

from bench import measuring, stack

PROGRAM = "csi-provisioner"
READY_DEADLINE = 60.0
BURST_DEADLINE = 900.0
IDLE = 3.0
"""Seconds before idle memory is read."""
SETTLE = 8.0
"""Seconds after a burst in which late writes (events) are still counted."""


@dataclass(frozen=True, slots=True)
class Case:
    """One run: which program, how slow the driver is, which limits are set."""

    who: str
    binary: str
    claims: int
    latency: str
    limits: str
    flags: tuple[str, ...]
    cluster: str = "embedded"


@dataclass(frozen=True, slots=True)
class Result:
    """What one run showed: seconds, writes by verb and resource, MB."""

    case: Case
    seconds: float
    delete_seconds: float
    cpu: float
    writes: Counter[str]
    delete_writes: Counter[str]
    ready: float
    rss: float
    anonymous: float
    rss_after: float
    writers: Counter[str]
    bound_seconds: float
    bound_cpu: float
    others_cpu: dict[str, float]

    @property
    def figures(self) -> dict[str, object]:
        """The agreed keys of the last line."""
        claims = self.case.claims
        return {
            "seconds": round(self.seconds, 2),
            "pv_per_second": round(claims / self.seconds, 1),
            "delete_per_second": round(claims / self.delete_seconds, 1),
            "writes_per_claim": round(self.writes.total() / claims, 3),
            "writes_per_delete": round(self.delete_writes.total() / claims, 3),
            "cpu_ms_per_claim": round(1000 * self.cpu / claims, 2),
            "bound_seconds": round(self.bound_seconds, 2),
            "bound_cpu_ms_per_claim": round(1000 * self.bound_cpu / claims, 2),
            "ready_seconds": round(self.ready, 2),
            "rss_mb": self.rss,
            "anonymous_mb": self.anonymous,
            "rss_after_mb": self.rss_after,
        }


@contextlib.asynccontextmanager
async def sidecar(place: stack.Stack, case: Case) -> AsyncIterator[processes.Process]:
    """Run the program under test on the last core."""
    command = [
        case.binary,
        f"--kubeconfig={place.cluster.kubeconfig}",
        f"--csi-address={place.driver.socket}",
        *case.flags,
    ]
    process = place.cluster.processes.spawn(command, name=case.who)
    os.sched_setaffinity(process.pid, {max(stack.CORES)})
    try:
        yield process
    finally:
        await process.stop(timeout=60)


async def measure(case: Case) -> Result:
    """Run one case on a fresh cluster."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        running = stack.running(pathlib.Path(folder), latency=case.latency, kind=case.cluster)
        async with running as place:
            await place.cluster.clear_requests()
            started = time.monotonic()
            async with sidecar(place, case) as process:
                await place.until_watching(PROGRAM, READY_DEADLINE)
                ready = time.monotonic() - started
                await asyncio.sleep(IDLE)
                rss, anonymous = measuring.memory(process.pid)
                await place.cluster.clear_requests()
                before, others = measuring.cpu_seconds(process.pid), place.cpu()
                began = time.monotonic()
                seconds = await place.create_claims(case.claims, BURST_DEADLINE)
                cpu = measuring.cpu_seconds(process.pid) - before
                await place.until_bound(case.claims, BURST_DEADLINE)
                bound_seconds = time.monotonic() - began
                bound_cpu = measuring.cpu_seconds(process.pid) - before
                others = {name: now - others.get(name, 0.0) for name, now in place.cpu().items()}
                await asyncio.sleep(SETTLE)
                writes = await place.write_counts(PROGRAM)
                writers = await place.writers()
                await place.cluster.clear_requests()
                delete_seconds = await place.delete_claims(case.claims, BURST_DEADLINE)
                await asyncio.sleep(SETTLE)
                delete_writes = await place.write_counts(PROGRAM)
                rss_after, _ = measuring.memory(process.pid)
    return Result(
        case,
        seconds,
        delete_seconds,
        cpu,
        writes,
        delete_writes,
        ready,
        rss,
        anonymous,
        rss_after,
        writers,
        bound_seconds,
        bound_cpu,
        others,
    )


def cases(options: argparse.Namespace) -> list[Case]:
    """Return what to run: each latency without limits, then each given QPS."""
    programs = [("bitts", processes.script(PROGRAM))]
    if options.peer is not None:
        programs.append(("upstream", options.peer or str(peers.tool(PROGRAM))))
    found = []
    for who, binary in programs:
        # Upstream has no "no limit" but a negative QPS; its defaults are the "5/10" line.
        unlimited = () if who == "bitts" else ("--kube-api-qps=-1",)
        found += [
            Case(who, binary, options.claims, latency, "none", unlimited, options.cluster)
            for latency in options.latency
        ]
        for qps in options.qps:
            flags = (f"--kube-api-qps={qps}", f"--kube-api-burst={2 * qps}")
            claims = min(options.claims, 30 * qps)
            limits, latency = f"{qps}/{2 * qps}", options.latency[-1]
            found.append(Case(who, binary, claims, latency, limits, flags, options.cluster))
    return found


def ratios(results: Sequence[Result]) -> dict[str, float]:
    """Compare ours with the peer's run of the same conditions: ours divided by theirs."""
    found = {}
    for ours in (result for result in results if result.case.who == "bitts"):
        for peer in (result for result in results if result.case.who != "bitts"):
            if (peer.case.latency, peer.case.limits) == (ours.case.latency, ours.case.limits):
                condition = f"latency {ours.case.latency}, limits {ours.case.limits}"
                found[condition] = round(ours.seconds / peer.seconds, 3)
    return found


def row(result: Result) -> dict[str, object]:
    """Return one line of the table."""
    case = result.case
    writes = ", ".join(f"{name} {count}" for name, count in result.writes.most_common(4))
    named = {"program": case.who, "latency": case.latency, "limits": case.limits}
    told = {**named, "claims": case.claims, **result.figures, "writes": writes}
    told["cpu_of_others_ms"] = "\n".join(
        f"{name} {1000 * seconds / case.claims:.2f}"
        for name, seconds in sorted(result.others_cpu.items(), key=lambda one: -one[1])
    )
    if case.cluster == "kubernetes":
        told["writes_by"] = "\n".join(
            f"{name} {count / case.claims:.2f}" for name, count in result.writers.most_common()
        )
    return told


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="make bench NAME=provision", description=__doc__)
    parser.add_argument("--cluster", choices=["embedded", "kubernetes"], default="embedded")
    parser.add_argument("--claims", type=int, default=1000)
    parser.add_argument("--latency", nargs="*", default=["0", "50ms"])
    parser.add_argument("--qps", type=int, nargs="*", default=[20])
    parser.add_argument(
        "--peer", nargs="?", const="", help="also run upstream's: built from source, or this path"
    )
    return parser.parse_args()


async def main() -> None:
    """Run every case, print the table and the summary of the last unlimited run of ours."""
    options = parse()
    results = []
    for case in cases(options):
        results.append(await measure(case))
        print(f"{case.who}, latency {case.latency}, limits {case.limits}: done", flush=True)
    title = f"csi-provisioner, {options.cluster} cluster"
    measuring.print_result(title, [row(result) for result in results])
    ours = [r for r in results if r.case.who == "bitts" and r.case.limits == "none"][-1]
    compared = ratios(results)
    measuring.print_summary({**ours.figures, **({"ratio": compared} if compared else {})})


if __name__ == "__main__":
    asyncio.run(main())
