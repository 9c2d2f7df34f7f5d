"""A small HTTP/1.1 listener for processes that answer little: health checks and a scrape.

aiohttp costs 12 MB and a seventh of a second, more than all the rest of a node-side helper
(docs/decisions/0012). What kubelets, load balancers, Prometheus and curl need of HTTP is short:
read a request's head, answer with a length, keep the connection if wanted. Whatever is beyond
that is refused and closes the connection.

Nobody on the network may keep a kubelet from its answer: heads are bounded in size and time, and
when there are too many connections the one that has been silent for longest goes first.
"""

import asyncio
import contextlib
import errno
import gzip
import os
import socket
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from http import HTTPStatus
from urllib.parse import parse_qsl, urlsplit

from bitts.core import logs
from bitts.core.process import ExitError

LONGEST_HEAD = 16 * 1024
"""Bytes of a request's first line and headers."""
HEAD_TIMEOUT = 10.0
"""Seconds for a new connection to send the head of a request."""
IDLE_TIMEOUT = 75.0
"""Seconds that a connection is kept for the next request."""
MOST_CONNECTIONS = 64
WORTH_PACKING = 1024
"""Bytes from which on a body is compressed for clients that take gzip."""

_SEND_TIMEOUT = 10.0  # seconds for a client to take an answer


@dataclass(frozen=True, slots=True)
class Reply:
    """What a handler answers."""

    body: bytes | str
    status: int = 200
    content_type: str = "text/plain; charset=utf-8"
    encoding: str = ""


Handler = Callable[[Mapping[str, str]], Awaitable[Reply]]
"""Takes the query; must come to an end by itself, also when the client is gone."""


@dataclass(frozen=True, slots=True)
class Request:
    """The head of a request, as far as it matters."""

    path: str
    query: Mapping[str, str]
    is_head: bool
    keeps: bool
    takes_gzip: bool = False


class BadRequest(Exception):  # noqa: N818 - named as HTTP names it
    """The bytes are no request that is understood; the text says why."""


def parse(head: bytes) -> Request:
    """Read the head of a request, up to and including the empty line; raises BadRequest.

    Any method is answered as GET is, as Go's handlers do that do not ask for it.
    """
    first, *lines = head.decode("latin-1").split("\r\n")
    words = first.split(" ")
    if len(words) != 3 or words[2] not in ("HTTP/1.0", "HTTP/1.1"):
        raise BadRequest("the first line is none of HTTP/1.0 or HTTP/1.1")
    method, target, version = words
    headers = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if line and (not colon or not name or name != name.strip()):
            raise BadRequest("a header line has no name")
        headers[name.lower()] = value.strip()
    try:
        parts = urlsplit(target)
    except ValueError as error:
        raise BadRequest("the target is no path") from error
    wish = headers.get("connection", "keep-alive" if version == "HTTP/1.1" else "close")
    # A body is not read, so nothing after it can be: the connection ends with the answer.
    has_body = headers.get("content-length", "0") != "0" or "transfer-encoding" in headers
    return Request(
        path=parts.path,
        query=dict(parse_qsl(parts.query)),
        is_head=method == "HEAD",
        keeps="keep-alive" in wish.lower() and not has_body,
        takes_gzip="gzip" in headers.get("accept-encoding", ""),
    )


async def compressed(reply: Reply) -> Reply:
    """Pack a body that is worth it, off the loop: a scrape of many series is long."""
    body = reply.body.encode() if isinstance(reply.body, str) else reply.body
    if len(body) < WORTH_PACKING:
        return reply
    packed = await asyncio.to_thread(gzip.compress, body, 5)
    return replace(reply, body=packed, encoding="gzip")


def render(reply: Reply, *, is_head: bool = False, keeps: bool = False) -> bytes:
    """Write an answer."""
    body = reply.body.encode() if isinstance(reply.body, str) else reply.body
    encoding = (f"Content-Encoding: {reply.encoding}",) if reply.encoding else ()
    lines = (
        f"HTTP/1.1 {reply.status} {HTTPStatus(reply.status).phrase}",
        f"Date: {time.strftime('%a, %d %b %Y %H:%M:%S GMT', time.gmtime())}",
        f"Content-Type: {reply.content_type}",
        f"Content-Length: {len(body)}",
        *encoding,
        "X-Content-Type-Options: nosniff",
        f"Connection: {'keep-alive' if keeps else 'close'}",
    )
    head = "\r\n".join(lines).encode() + b"\r\n\r\n"
    return head if is_head else head + body


class Listener:
    """Answers on one TCP address or on a listening socket it is handed.

    ``flag`` names where the address came from, for messages. Routes may be added at any time.
    """

    def __init__(self, address: str, *, flag: str = "--http-endpoint") -> None:
        self._address = address
        self._flag = flag
        self._routes: dict[str, Handler] = {}
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()
        self._silent: dict[asyncio.StreamWriter, None] = {}  # wait for a head, longest first
        self._tasks: set[asyncio.Task[None]] = set()
        self._log = logs.get("http")

    def route(self, path: str, handler: Handler) -> None:
        """Answer ``path`` with what ``handler`` returns."""
        self._routes[path] = handler

    async def start(self, opened: socket.socket | None = None) -> None:
        """Listen, on ``opened`` if given.

        Raises ExitError(1) naming the flag if the address cannot be bound.
        """
        if opened is not None:
            self._server = await asyncio.start_server(
                self._converse, sock=opened, limit=LONGEST_HEAD
            )
        else:
            host, port = host_and_port(self._address, self._flag)
            try:
                self._server = await asyncio.start_server(
                    self._converse, host, port, limit=LONGEST_HEAD
                )
            except OSError as error:
                raise ExitError(1, self._refusal(error)) from None
        self._log.info("Serving HTTP", address=self._address, paths=sorted(self._routes))

    async def stop(self) -> None:
        """Stop listening and close all connections; may be called again."""
        if self._server is None:
            return
        self._server.close()
        self._server = None
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=1.0)

    @property
    def port(self) -> int:
        """The port that is served on; of use when the address asked for any (port 0)."""
        if self._server is None:
            raise RuntimeError("the HTTP listener is not started")
        return int(self._server.sockets[0].getsockname()[1])

    def _refusal(self, error: OSError) -> str:
        reason = os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)
        if error.errno == errno.EADDRINUSE:
            reason += " (pods in the host's network share its ports): choose another port"
        return f"cannot listen on {self._flag}={self._address}: {reason}"

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one connection's requests until it ends, by whichever side."""
        task = asyncio.current_task()
        assert task is not None
        task.set_name("http connection")
        self._tasks.add(task)
        self._open.add(writer)
        if len(self._open) > MOST_CONNECTIONS and self._silent:
            next(iter(self._silent)).transport.abort()
        try:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, TimeoutError):
                timeout = HEAD_TIMEOUT
                while await self._answer_one(reader, writer, timeout):
                    timeout = IDLE_TIMEOUT
        except asyncio.CancelledError:
            pass  # stop() ends connections; nobody else waits for this task
        finally:
            self._tasks.discard(task)
            self._open.discard(writer)
            writer.close()

    async def _answer_one(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, timeout: float
    ) -> bool:
        """Answer the next request; return whether another may follow."""
        request: Request | None = None
        self._silent[writer] = None
        try:
            async with asyncio.timeout(timeout):
                head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            reply = Reply("the request's head is too long\n", status=431)
        else:
            del self._silent[writer]
            try:
                request = parse(head)
                reply = await self._reply(request)
                if request.takes_gzip:
                    reply = await compressed(reply)
            except BadRequest as error:
                reply = Reply(f"{error}\n", status=400)
        finally:
            self._silent.pop(writer, None)
        keeps = request is not None and request.keeps
        is_head = request is not None and request.is_head
        writer.write(render(reply, is_head=is_head, keeps=keeps))
        async with asyncio.timeout(_SEND_TIMEOUT):
            await writer.drain()
        return keeps

    async def _reply(self, request: Request) -> Reply:
        handler = self._routes.get(request.path)
        if handler is None:
            return Reply("404 page not found\n", status=404)
        try:
            return await handler(request.query)
        except Exception:  # noqa: BLE001 - a broken handler must not close the endpoint
            self._log.exception("HTTP handler failed", path=request.path)
            return Reply("internal error, see the log\n", status=500)


def host_and_port(address: str, flag: str) -> tuple[str | None, int]:
    """Split ``host:port``, ``[v6]:port`` or ``:port``; raises ExitError(1) naming the flag."""
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise ExitError(1, f'{flag} must be host:port or :port, not "{address}"')
    return host.removeprefix("[").removesuffix("]") or None, int(port)
