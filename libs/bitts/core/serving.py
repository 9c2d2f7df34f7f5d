"""The HTTP endpoint of a service: metrics, health of the leader election, and dumps.

Handlers know nothing of the HTTP library: they take the query and return a Reply. Routes may be
added while the server runs, as upstream adds the health path when its election begins.
"""

import gzip
import os
from asyncio import to_thread
from collections.abc import Callable, Mapping

from aiohttp import web

from bitts.core import dumps, logs, metrics
from bitts.core.httplistener import Handler, Reply, host_and_port
from bitts.core.ledger import Ledger
from bitts.core.process import ExitError
from bitts.core.workqueue import WorkQueue

HEALTH_PATH = "/healthz/leader-election"

_STOP = 2.0  # seconds that requests in progress have when the server stops


class HttpServer:
    """Serves GET requests on ``host:port``; ``flag`` names where the address came from."""

    def __init__(self, address: str, *, flag: str = "--http-endpoint") -> None:
        self._address = address
        self._flag = flag
        self._routes: dict[str, Handler] = {}
        self._runner: web.ServerRunner | None = None
        self._log = logs.get("serving")

    def route(self, path: str, handler: Handler) -> None:
        """Answer ``path`` with what ``handler`` returns."""
        self._routes[path] = handler

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

    async def start(self) -> None:
        """Bind and serve. Raises ExitError(1) naming the flag if the address cannot be bound."""
        host, port = host_and_port(self._address, self._flag)
        self._runner = web.ServerRunner(
            web.Server(self._answer, access_log=None), shutdown_timeout=_STOP
        )
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, host, port).start()
        except OSError as error:
            await self.stop()
            reason = os.strerror(error.errno) if error.errno and error.errno > 0 else error
            raise ExitError(1, f"cannot listen on {self._flag}={self._address}: {reason}") from None
        self._log.info("Serving HTTP", address=self._address, paths=sorted(self._routes))

    async def stop(self) -> None:
        """Stop serving; may be called again."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    @property
    def port(self) -> int:
        """The port that is served on; of use when the address asked for any (port 0)."""
        if self._runner is None or not self._runner.addresses:
            raise RuntimeError("the HTTP server is not started")
        return int(self._runner.addresses[0][1])

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        handler = self._routes.get(request.path)
        if handler is None:
            return web.Response(status=404, text="404 page not found\n")
        if request.method not in ("GET", "HEAD"):
            return web.Response(status=405, text="405 method not allowed\n")
        try:
            reply = await handler(request.query)
        except Exception:  # noqa: BLE001 - a broken dump must not close the endpoint
            self._log.exception("HTTP handler failed", path=request.path)
            reply = Reply("internal error, see the log\n", status=500)
        body = reply.body.encode() if isinstance(reply.body, str) else reply.body
        headers = {"Content-Type": reply.content_type}
        if "gzip" in request.headers.get("Accept-Encoding", ""):
            body = await to_thread(gzip.compress, body, 5)
            headers["Content-Encoding"] = "gzip"
        return web.Response(status=reply.status, body=body, headers=headers)
