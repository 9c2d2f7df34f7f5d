"""The HTTP endpoint of a service: metrics, health of the leader election, and dumps.

Handlers know nothing of the HTTP library: they take the query and return a Reply. Routes may be
added while the server runs, as upstream adds the health path when its election begins.
"""

import gzip
import os
import traceback
from asyncio import all_tasks, to_thread
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from aiohttp import web

from bitts.core import logs, metrics
from bitts.core.ledger import Ledger
from bitts.core.process import ExitError
from bitts.core.workqueue import WorkQueue

HEALTH_PATH = "/healthz/leader-election"
DUMP_PATH = "/debug/bitts"

_LONGEST_LIST = 1_000  # objects in one dump
_STOP = 2.0  # seconds that requests in progress have when the server stops


@dataclass(frozen=True, slots=True)
class Reply:
    """What a handler answers."""

    body: bytes | str
    status: int = 200
    content_type: str = "text/plain; charset=utf-8"


Handler = Callable[[Mapping[str, str]], Awaitable[Reply]]


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
        """Serve the metrics of ``registry``."""

        async def render(query: Mapping[str, str]) -> Reply:
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
            return Reply(dump_tasks())

        async def depths(query: Mapping[str, str]) -> Reply:
            return Reply("\n".join(map(dump_queue, queues)) + "\n")

        async def decisions(query: Mapping[str, str]) -> Reply:
            return Reply(dump_decisions(ledger, query.get("key", "")))

        self.route(f"{DUMP_PATH}/tasks", tasks)
        self.route(f"{DUMP_PATH}/queues", depths)
        self.route(f"{DUMP_PATH}/decisions", decisions)

    async def start(self) -> None:
        """Bind and serve. Raises ExitError(1) naming the flag if the address cannot be bound."""
        host, port = self._host_and_port()
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

    def _host_and_port(self) -> tuple[str | None, int]:
        host, colon, port = self._address.rpartition(":")
        if not colon or not port.isdecimal() or int(port) > 65535:
            raise ExitError(1, f'{self._flag} must be host:port or :port, not "{self._address}"')
        return host.removeprefix("[").removesuffix("]") or None, int(port)

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


def dump_tasks() -> str:
    """Describe every task: its name and where it waits."""
    texts = []
    for task in sorted(all_tasks(), key=lambda task: task.get_name()):
        frames = [
            f"  {name}:{line} {function}\n"
            for frame in task.get_stack()
            for name, line, function, _ in traceback.extract_stack(frame, limit=1)
        ]
        texts.append(f"{task.get_name()}\n{''.join(frames)}")
    return "\n".join(texts)


def dump_queue(queue: WorkQueue) -> str:
    """Describe one queue in a line."""
    return (
        f"{queue.name}: {queue.depth} ready, {queue.processing} in work, {queue.delayed} delayed,"
        f" {queue.retrying} failing, next waits {queue.oldest_wait:.3f}s"
    )


def dump_decisions(ledger: Ledger, key: str = "") -> str:
    """List the objects in work, waiting and finished, with the last decision about each."""
    entries = [entry for entry in ledger.snapshot() if key in entry.key]
    lines = [
        f"{entry.loop} {entry.key} {entry.phase}: {entry.decision} ({entry.reason})"
        f" failures={entry.failures} retry_at={entry.retry_at} error={entry.error!r}\n"
        for entry in entries[:_LONGEST_LIST]
    ]
    if len(entries) > _LONGEST_LIST:
        lines.append(f"... and {len(entries) - _LONGEST_LIST} more\n")
    return "".join(lines)
