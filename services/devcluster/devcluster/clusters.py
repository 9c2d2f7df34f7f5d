"""The kinds of cluster that ``--kind`` chooses from, behind one interface."""

import collections.abc
import pathlib
import sys
from dataclasses import dataclass
from typing import Protocol

from bitts.core.process import ExitError, Process

from devcluster import files


@dataclass(frozen=True, slots=True)
class Options:
    """What every kind of cluster is started with; port 0 lets the system choose.

    What stands after ``loops`` is for kubernetes only; ``nodes_directory`` is by default inside
    ``directory``, ``network`` is one of ``podnetwork.CHOICES``.
    """

    directory: pathlib.Path
    store: str
    port: int
    loops: bool
    nodes: int = 0
    nodes_directory: pathlib.Path | None = None
    network: str = "bitts"


class Cluster(Protocol):
    """A cluster that runs until its process is asked to stop.

    When it is ready it has written ca.crt, token, kubeconfig and ready.json into the folder.
    """

    async def run(self, process: Process) -> None:
        """Start, tell that it is ready, serve, stop."""


def _embedded(options: Options) -> Cluster:
    from devcluster import app  # loads the HTTP server, which other kinds do not need

    if options.nodes:
        raise ExitError(
            2, "--nodes is for --kind=kubernetes: the embedded cluster's are devcluster-node"
        )
    return app.Embedded(options)


def _kubernetes(options: Options) -> Cluster:
    from devcluster.kubernetes import app  # as above

    return app.Kubernetes(options)


KINDS: dict[str, collections.abc.Callable[[Options], Cluster]] = {
    "embedded": _embedded,
    "kubernetes": _kubernetes,
}

GRACE = {"embedded": 5.0, "kubernetes": 20.0}
"""Seconds in which a cluster of each kind ends."""


def clear(options: Options) -> int:
    """Remove what a killed Kubernetes of this folder left, say what, return the exit code."""
    from devcluster.kubernetes import cgroups, layout, sweep  # as above

    found = layout.layout(options.directory, options.nodes_directory)
    try:
        with sweep.owned(found):
            removed = sweep.sweep(found, keep=options.store != "memory")
            (options.directory / files.INTROSPECTION).unlink(missing_ok=True)
    except (sweep.InUseError, cgroups.CgroupError, OSError) as error:
        sys.stderr.write(f"devcluster: {error}\n")
        return 1
    sys.stdout.writelines(f"{line}\n" for line in removed)
    return 0
