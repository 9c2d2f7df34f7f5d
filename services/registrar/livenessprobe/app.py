"""The composition root: parts are made, put together, served and taken apart here.

The ports are opened before anything is asked of the driver: a probe gets an answer from the
first moment, and an address that is taken ends the process at once instead of later.
"""

import asyncio
import concurrent.futures
import contextlib
from collections.abc import Iterable, Mapping

import bitts
from bitts.core import httplistener, ledger, logs
from bitts.core.httplistener import Reply
from bitts.core.process import ExitError, Process
from bitts.rpc import addresses, introspection, server, sockets

from livenessprobe import names
from livenessprobe.checking import Checker
from livenessprobe.options import Endpoint, Options

_SOCKET_MODE = 0o600


async def main(running: Process, options: Options) -> None:
    """Answer probes until a signal comes."""
    logs.configure(options.logs, names.PROGRAM)
    for warning in options.warnings:
        running.log.warning(warning)
    # Looks at files only: two threads do, and the default would keep six.
    pool = concurrent.futures.ThreadPoolExecutor(2, "files")
    asyncio.get_running_loop().set_default_executor(pool)
    book = ledger.Ledger(waiting=10, finished=10)
    scrape = _Metrics() if any(one.has_metrics for one in options.endpoints) else None
    checker = Checker(
        options.csi_address,
        options.timeout,
        options.rules,
        metric=scrape.observe if scrape else None,
        book=book,
    )
    if scrape is not None:
        scrape.follow(checker)
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(checker.close)
        for endpoint in options.endpoints:
            listener = httplistener.Listener(endpoint.address, flag=endpoint.flag)
            if endpoint.has_health:
                listener.route(names.HEALTH_PATH, _health(checker))
            if endpoint.has_metrics and scrape is not None:
                listener.route(options.metrics_path, scrape.render)
            await _listen(listener, endpoint, stack)
        stack.push_async_callback((await _introspect(options, checker, book)).stop, 0.5)
        running.start("introduction", checker.introduce())
        running.started()
        await running.stopping.wait()


class _Metrics:
    """Upstream's series; loaded only where somebody asks for them."""

    def __init__(self) -> None:
        from bitts.core import metrics

        self._registry = metrics.Registry()
        self._content_type = metrics.CONTENT_TYPE
        self.observe = metrics.CsiOperations(self._registry).observe

    def follow(self, checker: Checker) -> None:
        """Show how near the driver is to being held for dead."""
        failures = self._registry.gauge(
            "bitts_livenessprobe_failures_in_a_row", "Checks that failed since the last good one"
        )
        failures.set_function(lambda: checker.history.failures)

    async def render(self, query: Mapping[str, str]) -> Reply:
        """Answer a scrape."""
        return Reply(self._registry.render(), content_type=self._content_type)


def _health(checker: Checker) -> httplistener.Handler:
    async def handler(query: Mapping[str, str]) -> Reply:
        found = await checker.verdict()
        text = found.text if found.text == "ok" else f"{found.text}\n"
        return Reply(text, status=found.status)

    return handler


async def _listen(
    listener: httplistener.Listener, endpoint: Endpoint, stack: contextlib.AsyncExitStack
) -> None:
    """Serve at one endpoint until the stack unwinds; raises ExitError naming the flag."""
    if not endpoint.address.startswith("unix:"):
        await listener.start()
    else:
        try:
            path = addresses.socket_path(endpoint.address)
            socket = sockets.ListeningSocket(path, _SOCKET_MODE)
            opened = await asyncio.to_thread(socket.open)
        except (OSError, ValueError) as error:
            raise ExitError(1, f"{endpoint.flag}: {error}") from error
        stack.push_async_callback(asyncio.to_thread, socket.remove)
        await listener.start(opened)
        await asyncio.to_thread(socket.publish)
    stack.push_async_callback(listener.stop)


async def _introspect(options: Options, checker: Checker, book: ledger.Ledger) -> server.Server:
    def figures() -> Iterable[introspection.Figure]:
        yield introspection.Figure(
            area="driver", name="failures in a row", value=float(checker.history.failures)
        )

    def explain(key: str) -> Iterable[introspection.Finding]:
        if key in (options.csi_address, checker.driver_name):
            found = checker.judged()
            yield introspection.Finding(
                subject=key, text=f"{found.status}: {found.text}", blocks=found.status != 200
            )

    sources = introspection.Sources(
        program=names.PROGRAM,
        version=bitts.__version__,
        ledger=book,
        figures=figures,
        explain=explain,
    )
    chosen = options.introspection
    checks = {"driver": checker.is_healthy}
    return await introspection.serve(sources, chosen.path, checks, is_required=chosen.is_required)
