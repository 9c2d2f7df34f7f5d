"""The kinds of cluster that ``--kind`` chooses from, behind one interface."""

import collections.abc
import pathlib
from dataclasses import dataclass
from typing import Protocol

from bitts.core.process import ExitError, Process


@dataclass(frozen=True, slots=True)
class Options:
    """What every kind of cluster is started with; port 0 lets the system choose."""

    directory: pathlib.Path
    store: str
    port: int
    loops: bool


class Cluster(Protocol):
    """A cluster that runs until its process is asked to stop.

    When it is ready it has written ca.crt, token, kubeconfig and ready.json into the folder.
    """

    async def run(self, process: Process) -> None:
        """Start, tell that it is ready, serve, stop."""


def _embedded(options: Options) -> Cluster:
    from devcluster import app  # loads the HTTP server, which other kinds do not need

    return app.Embedded(options)


def _kubernetes(options: Options) -> Cluster:
    raise ExitError(
        2, "--kind=kubernetes is not available in this version: use --kind=embedded (the default)"
    )


KINDS: dict[str, collections.abc.Callable[[Options], Cluster]] = {
    "embedded": _embedded,
    "kubernetes": _kubernetes,
}
