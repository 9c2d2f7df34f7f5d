"""The ``devcluster`` command: a cluster in the foreground until SIGTERM."""

import pathlib
import sys

import bitts
from bitts.core import flags, sidecarflags

_PORTS = 1 << 16


def main() -> None:
    """Read flags and run."""
    known = flags.FlagSet(
        "devcluster", "A Kubernetes cluster to develop and test on.", version=bitts.__version__
    )
    directory = known.string(
        "dir", "", "folder for certificates, kubeconfig, ready.json and the store"
    )
    kind = known.choice("kind", ("embedded", "kubernetes"), "embedded", "which cluster to run")
    store = known.choice("store", ("memory", "sqlite"), "memory", "where objects are kept")
    port = known.unsigned("port", 0, "port on 127.0.0.1; 0 lets the system choose")
    nodes = known.unsigned(
        "nodes", 0, "kubernetes: nodes on this machine, each with kubelet and containerd; need root"
    )
    nodes_directory = known.string(
        "nodes-dir", "", "kubernetes: folder for the nodes' files, with a short path (unix sockets)"
    )
    network = known.choice(
        "pod-network",
        ("bitts", "reference"),
        "reference",
        "kubernetes: cni-daemon of Bitts or the CNI reference plugins of the machine",
    )
    clear = known.boolean(
        "clear", False, "kubernetes: only remove what a killed cluster of this folder left"
    )
    loops = known.boolean("loops", True, "run the controllers (binder, attach, garbage, …) too")
    logging = sidecarflags.LogFlags(known)

    def build(values: flags.FlagValues) -> flags.FlagValues:
        if not values[directory]:
            raise flags.FlagError("--dir is required: name a folder for the cluster's files")
        if values[port] >= _PORTS:
            raise flags.FlagError(f"--port must be below {_PORTS}, not {values[port]}")
        if not values[clear]:
            _prepare(values[directory])
        return values

    values = known.resolve(sys.argv[1:], build)
    # Loading asyncio and the HTTP server is what --help must not wait for.
    from bitts.core import logs, process

    from devcluster import clusters

    logs.configure(logging.options(values), "devcluster")
    options = clusters.Options(
        pathlib.Path(values[directory]),
        values[store],
        values[port],
        values[loops],
        values[nodes],
        pathlib.Path(values[nodes_directory]) if values[nodes_directory] else None,
        values[network],
    )
    if values[clear]:
        sys.exit(clusters.clear(options))

    async def run(running: process.Process) -> None:
        await clusters.KINDS[values[kind]](options).run(running)

    sys.exit(process.run(run, "devcluster", grace=clusters.GRACE[values[kind]]))


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
