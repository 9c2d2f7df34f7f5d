"""What sidecars answer over HTTP: metrics, health of the leader election, and dumps.

Routes may be added while the listener runs, as upstream adds the health path when its election
begins.
"""

from collections.abc import Callable, Mapping

from bitts.core import dumps, metrics
from bitts.core.httplistener import Listener, Reply
from bitts.core.ledger import Ledger
from bitts.core.workqueue import WorkQueue

HEALTH_PATH = "/healthz/leader-election"


class HttpServer(Listener):
    """The listener of ``--http-endpoint`` with the routes that every sidecar has."""

    def metrics(self, path: str, registry: metrics.Registry) -> None:
        """Serve the metrics of ``registry``, and count there how often that was done."""
        scrapes = metrics.Scrapes(registry)

        async def render(query: Mapping[str, str]) -> Reply:
            with scrapes.counted():
                return Reply(registry.render(), content_type=metrics.CONTENT_TYPE)

        self.route(path, render)

    def leader_election(self, healthy: Callable[[], bool]) -> None:
        """Serve the health that kubelet restarts a stuck leader by."""

        async def check(query: Mapping[str, str]) -> Reply:
            if healthy():
                return Reply("ok")
            return Reply("the Lease was not renewed in time\n", status=500)

        self.route(HEALTH_PATH, check)

    def dumps(self, *, queues: list[WorkQueue], ledger: Ledger) -> None:
        """Serve what is going on inside; for ``--enable-pprof`` only."""

        async def tasks(query: Mapping[str, str]) -> Reply:
            return Reply(dumps.tasks())

        async def depths(query: Mapping[str, str]) -> Reply:
            return Reply("\n".join(map(dumps.queue, queues)) + "\n")

        async def decisions(query: Mapping[str, str]) -> Reply:
            return Reply(dumps.decisions(ledger, query.get("key", "")))

        self.route(f"{dumps.PATH}/tasks", tasks)
        self.route(f"{dumps.PATH}/queues", depths)
        self.route(f"{dumps.PATH}/decisions", decisions)
