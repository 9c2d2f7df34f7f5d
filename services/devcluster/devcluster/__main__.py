"""The ``devcluster`` command: a cluster in the foreground until SIGTERM."""

import pathlib
import sys
from typing import TYPE_CHECKING

import bitts
from bitts.core import beginning, flags, sidecarflags

if TYPE_CHECKING:
    from devcluster import clusters

_PORTS = 1 << 16


class Flags:
    """The flags and how to read them."""

    def __init__(self, version: str) -> None:
        self.set = known = flags.FlagSet(
            "devcluster", "A Kubernetes cluster to develop and test on.", version=version
        )
        self._directory = known.string(
            "dir", "", "folder for certificates, kubeconfig, ready.json and the store"
        )
        self.kind = known.choice(
            "kind", ("embedded", "kubernetes"), "embedded", "which cluster to run"
        )
        self._store = known.choice(
            "store", ("memory", "sqlite"), "memory", "where objects are kept"
        )
        self._port = known.unsigned("port", 0, "port on 127.0.0.1; 0 lets the system choose")
        self._nodes = known.unsigned(
            "nodes",
            0,
            "kubernetes: nodes on this machine, each with kubelet and containerd; need root",
        )
        self._nodes_directory = known.string(
            "nodes-dir",
            "",
            "kubernetes: folder for the nodes' files, with a short path (unix sockets)",
        )
        self._network = known.choice(
            "pod-network",
            ("bitts", "reference"),
            "bitts",
            "kubernetes: cni-daemon of Bitts or the CNI reference plugins of the machine",
        )
        self.clear = known.boolean(
            "clear", False, "kubernetes: only remove what a killed cluster of this folder left"
        )
        self._loops = known.boolean(
            "loops", True, "run the controllers (binder, attach, garbage, …) too"
        )
        self.logs = sidecarflags.LogFlags(known)

    def check(self, values: flags.FlagValues) -> flags.FlagValues:
        """Make the folder; raises FlagError naming the flag that is wrong."""
        if not values[self._directory]:
            raise flags.FlagError("--dir is required: name a folder for the cluster's files")
        if values[self._port] >= _PORTS:
            raise flags.FlagError(f"--port must be below {_PORTS}, not {values[self._port]}")
        if not values[self.clear]:
            _prepare(values[self._directory])
        return values

    def options(self, values: flags.FlagValues) -> "clusters.Options":
        """Return what a cluster is started with."""
        from devcluster import clusters

        short = values[self._nodes_directory]
        return clusters.Options(
            directory=pathlib.Path(values[self._directory]),
            store=values[self._store],
            port=values[self._port],
            loops=values[self._loops],
            nodes=values[self._nodes],
            nodes_directory=pathlib.Path(short) if short else None,
            network=values[self._network],
        )


def main() -> None:
    """Read flags and run."""
    beginning.heed_signals()
    known = Flags(bitts.__version__)
    values = known.set.resolve(sys.argv[1:], known.check)
    # Loading asyncio and the HTTP server is what --help must not wait for.
    from bitts.core import logs, process

    from devcluster import clusters

    logs.configure(known.logs.options(values), "devcluster")
    options, kind = known.options(values), values[known.kind]
    if values[known.clear]:
        sys.exit(clusters.clear(options))

    async def run(running: process.Process) -> None:
        await clusters.KINDS[kind](options).run(running)

    sys.exit(process.run(run, "devcluster", grace=clusters.GRACE[kind]))


def _prepare(directory: str) -> None:
    """Make the folder; raises FlagError unless files can be made in it."""
    import tempfile  # not for --help

    try:
        pathlib.Path(directory).mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory):
            pass
    except OSError as error:
        text = f"--dir={directory}: {error.strerror}: name a folder that can be written"
        raise flags.FlagError(text, 1) from None


if __name__ == "__main__":
    main()
