"""The embedded cluster: API server and controllers in one process, on one event loop."""

import asyncio
import contextlib
import json
import os
import socket
from typing import TYPE_CHECKING, Any

from aiohttp import web
from bitts.core import ledger, logs
from bitts.core.process import ExitError, Process

from devcluster import bodies, bootstrap, files, sqlite, tls
from devcluster.api import Api
from devcluster.clusters import Options
from devcluster.server import Server
from devcluster.store import Store

if TYPE_CHECKING:
    from devcluster.loops import keyed

_log = logs.get("devcluster")
_SHUTDOWN = 0.3
"""Seconds that open requests get at the end; watches are simply cut."""


class Embedded:
    """The cluster of kind ``embedded``."""

    def __init__(self, options: Options) -> None:
        self._options = options

    async def run(self, process: Process) -> None:
        """Serve until the process is asked to stop."""
        options = self._options
        options.directory.mkdir(parents=True, exist_ok=True)
        (options.directory / files.READY).unlink(missing_ok=True)
        credentials = await asyncio.to_thread(tls.prepare, options.directory)
        store = Store()
        async with contextlib.AsyncExitStack() as stack:
            if options.store == "sqlite":
                path = options.directory / "objects.db"
                log = await stack.enter_async_context(sqlite.opened(path, store))
                process.start("commit", log.run())
            api = Api(store)
            bootstrap.complete(api)
            server = Server(api, credentials.token)
            port = await self._listen(stack, server, credentials)
            noted, loops = ledger.Ledger(), list["keyed.KeyedLoop"]()
            if options.loops:
                certificate = await asyncio.to_thread(credentials.ca.read_text)
                process.start("loops", _run_loops(api, noted, loops, certificate))
            self._announce(f"https://127.0.0.1:{port}", credentials)
            # Nobody waits for this, so its imports come after the announcement.
            from devcluster import introspect

            told = introspect.sources(store, noted, loops)
            await stack.enter_async_context(introspect.serve(options.directory, told))
            process.started()
            await process.stopping.wait()
            (options.directory / files.READY).unlink(missing_ok=True)
            server.drop_watches()

    async def _listen(
        self, stack: contextlib.AsyncExitStack, server: Server, credentials: tls.Credentials
    ) -> int:
        # A client that leaves cancels its handler, so an idle watch ends with it.
        http = web.Server(
            server.handle, request_factory=_request, handler_cancellation=True, access_log=None
        )
        runner = web.ServerRunner(http, shutdown_timeout=_SHUTDOWN)
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        listener = await self._bound()
        site = web.SockSite(runner, listener, ssl_context=credentials.context)
        await site.start()
        port: int = listener.getsockname()[1]
        return port

    async def _bound(self) -> socket.socket:
        """Listen where clients of an earlier run look, unless told otherwise or it is taken."""
        if not self._options.port:
            former = await asyncio.to_thread(files.former_port, self._options.directory)
            with contextlib.suppress(ExitError):
                return _bind(former)
        return _bind(self._options.port)

    def _announce(self, url: str, credentials: tls.Credentials) -> None:
        directory = self._options.directory
        kubeconfig = directory / "kubeconfig"
        files.write_kubeconfig(kubeconfig, url, credentials.ca, credentials.token)
        ready = {"server": url, "kubeconfig": str(kubeconfig.resolve()), "pid": os.getpid()}
        files.write_private(directory / files.READY, json.dumps(ready) + "\n")
        _log.info("Ready", server=url, kubeconfig=str(kubeconfig))


def _request(message: Any, payload: Any, protocol: Any, writer: Any, task: Any) -> web.BaseRequest:
    loop = asyncio.get_running_loop()
    return web.BaseRequest(
        message, payload, protocol, writer, task, loop, client_max_size=bodies.MAXIMUM
    )


def _bind(port: int) -> socket.socket:
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(("127.0.0.1", port))
    except OSError as error:
        listener.close()
        raise ExitError(1, f"cannot listen on --port={port}: {error.strerror}") from error
    return listener


async def _run_loops(
    api: Api, noted: ledger.Ledger, running: "list[keyed.KeyedLoop]", certificate: str
) -> None:
    from devcluster import loops  # not loaded where --loops=false leaves them out

    async with asyncio.TaskGroup() as tasks:
        running.extend(loops.start(api, tasks, noted, certificate))
        await asyncio.Event().wait()
