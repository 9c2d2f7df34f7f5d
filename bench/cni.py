"""ADD and DEL of our daemon beside the reference plugins in Go, and beside the kernel alone.

Everything happens in namespaces of the benchmark's own, in rounds that alternate between the
two, so that whatever else the machine does hits both. Programs are started and timed by a small
C program (cniharness.c), which also does the same kernel work without anything around it: the
floor. Milliseconds throughout.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from cni_daemon.shim import build
from devcluster import gobuild
from support import cnidaemon, netns, peers, processes

from bench import cniburst, cnicrowd, measuring
from bench.cnichain import Chain
from bench.cnicrowd import Crowd

_SOURCE = pathlib.Path(__file__).with_name("cniharness.c")
_PEER_PLUGINS = ("bridge", "host-local", "portmap", "firewall", "bandwidth")


@dataclass
class Figures:
    """Times of one program, in milliseconds, by verb."""

    add: list[float] = field(default_factory=list)
    delete: list[float] = field(default_factory=list)


class Harness:
    """The C program, inside the namespace that plays the node."""

    def __init__(self, folder: pathlib.Path, host: str) -> None:
        program = folder / "harness"
        compile_ = [*build.compiler("x86_64"), "-O2", "-o", str(program), str(_SOURCE)]
        subprocess.run(compile_, check=True, timeout=60)
        self._folder = folder
        self._child = subprocess.Popen(
            ["nsenter", f"--net={host}", "--", str(program)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def close(self) -> None:
        """End it."""
        self._child.communicate(timeout=10)

    def run(self, line: str) -> float:
        """Run one command; returns milliseconds. Fails where the program did."""
        ((status, took),) = self.ask([line], 1)
        if status != "0":
            raise AssertionError(f"{line}: {(self._folder / 'stdout').read_text()}")
        return int(took) / 1e6

    def ask(self, lines: Sequence[str], count: int) -> list[tuple[str, str]]:
        """Send command lines; returns the words of so many answers."""
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        self._child.stdin.write("\n".join(lines) + "\n")
        self._child.stdin.flush()
        found = [self._child.stdout.readline().split() for _ in range(count)]
        return [(words[0], words[1]) for words in found]


@dataclass
class Measured:
    """Everything that came out. Times are milliseconds, ``cpu`` seconds, memory megabytes."""

    ours: Figures
    theirs: Figures
    floor: Sequence[float]
    shim: float
    cpu: float
    chains: Sequence[Chain]
    bursts: Mapping[str, tuple[float, float]]
    idle: float
    crowd: Crowd | None = None
    memory: float = 0.0


@dataclass
class Side:
    """One implementation: where its plugins are and what it is configured with."""

    name: str
    plugins: pathlib.Path
    config: pathlib.Path
    harness: Harness
    figures: Figures = field(default_factory=Figures)

    def line(self, command: str, pod: str, number: int) -> str:
        """Return the harness's command for one call."""
        words = (
            "R", str(self.plugins / "bridge"), str(self.config), str(self.config.parent / "stdout"),
            f"CNI_COMMAND={command}", f"CNI_CONTAINERID=bench{number}", f"CNI_NETNS={pod}",
            "CNI_IFNAME=eth0", f"CNI_PATH={self.plugins}", "PATH=/usr/sbin:/usr/bin:/sbin:/bin",
        )  # fmt: skip
        return "\t".join(words)

    def round(self, pods: Sequence[str]) -> None:
        """Attach and detach every pod, one after the other."""
        for number, pod in enumerate(pods):
            self.figures.add.append(self.harness.run(self.line("ADD", pod, number)))
        for number, pod in enumerate(pods):
            self.figures.delete.append(self.harness.run(self.line("DEL", pod, number)))


def configure(folder: pathlib.Path, name: str, bridge: str, subnet: str) -> pathlib.Path:
    """Write a plain configuration: a bridge that is the gateway, and host-local."""
    document = {
        "cniVersion": "1.0.0", "name": name, "type": "bridge", "bridge": bridge,
        "isDefaultGateway": True, "hairpinMode": True,
        "ipam": {"type": "host-local", "dataDir": str(folder / "ipam"),
                 "ranges": [[{"subnet": subnet}]]},
    }  # fmt: skip
    path = folder / f"{name}.json"
    path.write_text(json.dumps(document))
    return path


def peer_plugins(folder: pathlib.Path) -> pathlib.Path:
    """Return a folder with the reference plugins, built where needed."""
    target = folder / "peer"
    target.mkdir()
    for name in _PEER_PLUGINS:
        program = gobuild.build(peers.MODULES / "cni-plugins", name, announce=print)
        (target / name).symlink_to(program)
    return target


def percentile(values: Sequence[float], share: float) -> float:
    """Return a percentile by rank."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def row(name: str, values: Sequence[float]) -> dict[str, object]:
    """Return one line of the table."""
    return {
        "what": name, "n": len(values), "p50": round(percentile(values, 0.5), 3),
        "p90": round(percentile(values, 0.9), 3), "p99": round(percentile(values, 0.99), 3),
        "min": round(min(values), 3),
    }  # fmt: skip


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="make bench NAME=cni", description=__doc__)
    parser.add_argument("--pods", type=int, default=20, help="pods per round")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--chain-rounds", type=int, default=3, help="rounds of a whole list")
    parser.add_argument("--burst", type=int, default=200, help="pods at once; 0 for none")
    parser.add_argument(
        "--present", type=int, default=1000, help="attachments to be one of; 0 for none"
    )
    return parser.parse_args()


def main() -> None:
    """Measure, print the table, and the summary as the last line."""
    options = parse()
    spaces = netns.Namespaces()
    with tempfile.TemporaryDirectory(prefix="bcni-", dir="/tmp") as name:
        folder = pathlib.Path(name)
        started = processes.Processes(folder / "logs")
        try:
            measure(options, folder, spaces, started)
        finally:
            started.close()
            spaces.close()


def measure(
    options: argparse.Namespace, folder: pathlib.Path, spaces: netns.Namespaces,
    started: processes.Processes,
) -> None:  # fmt: skip
    """Run every round and print what came out."""
    host = spaces.make("node")
    daemon = cnidaemon.Daemon(started, host, folder / "d")
    process = daemon.start()
    idle, _ = measuring.memory(process.pid)
    harness = Harness(folder, host)
    ours = Side("bitts", daemon.plugins, configure(folder, "ours", "br-a", "10.90.0.0/16"), harness)
    config = configure(folder, "theirs", "br-b", "10.91.0.0/16")
    peer = peer_plugins(folder)
    theirs = Side("go", peer, config, harness)
    pods = [spaces.make(f"p{number}") for number in range(max(options.pods, options.burst))]
    floor: list[float] = []
    before = measuring.cpu_seconds(process.pid)
    for number in range(options.rounds):
        for side in (theirs, ours):
            side.round(pods[: options.pods])
        first = number * options.pods
        floor += [harness.run(f"F {pod} {first + i}") for i, pod in enumerate(pods[: options.pods])]
    cpu = (measuring.cpu_seconds(process.pid) - before) / (options.rounds * options.pods)
    chains = (
        Chain("gochain", folder, peer, "br-c", "10.92.0.0/16", harness.run),
        Chain("walked", folder, daemon.plugins, "br-d", "10.93.0.0/16", harness.run),
        Chain("whole", folder, daemon.plugins, "br-d", "10.93.0.0/16", harness.run, is_whole=True),
    )
    for _ in range(options.chain_rounds):
        for chain in chains:
            chain.round(pods[: options.pods])
    many = pods[: options.burst]
    bursts = {side.name: burst(side, many) for side in (theirs, ours)} if many else {}
    for chain in chains if many and options.chain_rounds else ():
        bursts[chain.name] = cniburst.chains(harness.ask, chain, many)
    measured = Measured(
        ours.figures, theirs.figures, floor, shim(ours, pods[0]), cpu, chains, bursts, idle
    )
    if options.present:
        measured.crowd, measured.memory = cnicrowd.measure(
            harness.run, daemon.plugins, folder, pods[: options.pods], options.present,
            lambda: measuring.memory(process.pid)[0],
        )  # fmt: skip
    harness.close()
    report(measured)


def burst(side: Side, pods: Sequence[str]) -> tuple[float, float]:
    """Attach and detach many pods at once; returns both wall times."""
    added, deleted = (
        cniburst.together(
            side.harness.ask,
            [[side.line(command, pod, number)] for number, pod in enumerate(pods)],
        )
        for command in ("ADD", "DEL")
    )
    return added, deleted


def shim(side: Side, pod: str) -> float:
    """Return what the program costs that answers by itself, without the daemon."""
    return statistics.median(side.harness.run(side.line("VERSION", pod, 0)) for _ in range(50))


def report(measured: Measured) -> None:
    """Print the table and the last line."""
    ours, theirs, floor = measured.ours, measured.theirs, measured.floor
    rows = [
        row("ADD go", theirs.add), row("ADD bitts", ours.add), row("DEL go", theirs.delete),
        row("DEL bitts", ours.delete), row("floor", floor),
    ]  # fmt: skip
    chains = measured.chains
    for chain in chains if chains[0].add else ():
        rows += [row(f"ADD {chain.name}", chain.add), row(f"DEL {chain.name}", chain.delete)]
    measuring.print_result("CNI, milliseconds", rows)
    print(f"bursts (wall ADD, DEL): {measured.bursts}")
    add, bare = statistics.median(ours.add), statistics.median(floor)
    measuring.print_summary(
        {
            "add_ratio": ratio(ours.add, theirs.add),
            "del_ratio": ratio(ours.delete, theirs.delete),
            **burst_ratios(measured.bursts),
            "floor_ratio": round((add - measured.shim) / bare, 2),
            "add_ms": round(add, 3),
            "del_ms": round(statistics.median(ours.delete), 3),
            "floor_ms": round(bare, 3),
            "shim_ms": round(measured.shim, 3),
            "cpu_ms": round(measured.cpu * 1000, 2),
            **chain_ratios(chains),
            **crowd_ratios(measured.crowd),
            "rss_mb": measured.idle,
            "rss_full_mb": measured.memory,
        }
    )


def ratio(mine: Sequence[float], other: Sequence[float]) -> float:
    """Return the ratio of two medians."""
    return round(statistics.median(mine) / statistics.median(other), 4)


def burst_ratios(bursts: Mapping[str, tuple[float, float]]) -> dict[str, float]:
    """Return walls beside Go's: of one program for each pod, and of a whole list."""
    found: dict[str, float] = {}
    for name, mine, theirs in (
        ("burst_plain", "bitts", "go"), ("burst", "whole", "gochain"),
        ("burst_walked", "walked", "gochain"),
    ):  # fmt: skip
        if mine in bursts:
            for index, suffix in enumerate(("_ratio", "_del_ratio")):
                found[name + suffix] = round(bursts[mine][index] / bursts[theirs][index], 4)
    return found


def crowd_ratios(crowd: Crowd | None) -> dict[str, float]:
    """Return what an attachment costs beside many, for each millisecond beside few."""
    if crowd is None:
        return {}
    return {
        "crowd_add_ratio": round(crowd.many[0] / crowd.few[0], 3),
        "crowd_del_ratio": round(crowd.many[1] / crowd.few[1], 3),
        "crowd_floor_ratio": round(crowd.many[2] / crowd.few[2], 3),
    }


def chain_ratios(chains: Sequence[Chain]) -> dict[str, float]:
    """Return what a whole list costs beside Go's: in one call, which the aim is for, and walked."""
    go, walked, whole = chains
    if not go.add:
        return {}
    return {
        "chain_add_ratio": ratio(whole.add, go.add),
        "chain_del_ratio": ratio(whole.delete, go.delete),
        "chain_walked_add_ratio": ratio(walked.add, go.add),
        "chain_walked_del_ratio": ratio(walked.delete, go.delete),
    }


if __name__ == "__main__":
    main()
