"""Connections to one API server: opened when none is free, kept for a while, one request each.

aiohttp does this for any server and any body. This knows one server and little of HTTP, and
takes a fraction of the time for a request or an event of a watch.
"""

import asyncio
import base64
import contextlib
import dataclasses
import ssl
import urllib.parse
from collections.abc import Callable
from typing import cast

from bitts.kube import encryption, http1

# Longer than a usual pause between writes, shorter than the server's own patience (90 s).
KEEP_ALIVE = 60.0
# A stream whose reader is slow is left to the kernel beyond this many bytes.
_READ_AHEAD = 1 << 20
_TUNNEL_TIMEOUT = 10.0
_PORTS = {"http": 80, "https": 443}


class Connection(asyncio.Protocol):
    """One connection; it carries one request at a time.

    What waits raises OSError when the connection ends and ProtocolError for what is no answer.
    """

    def __init__(self, lost: Callable[["Connection"], None]) -> None:
        self.transport: asyncio.Transport | None = None
        self.idle_since = 0.0
        self._lost = lost
        self._session: encryption.Session | None = None
        self._answer: http1.Answer | None = None
        self._body: list[bytes] = []
        self._held = 0
        self._is_stream = False
        self._is_paused = False
        self._waiter: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._failure: Exception | None = None

    @property
    def is_usable(self) -> bool:
        """Whether another request may be sent."""
        return self._failure is None and self._answer is None

    def send(self, data: bytes, *, timeout: float, is_stream: bool = False) -> None:
        """Send a request, to be answered within ``timeout`` seconds (TimeoutError).

        A stream has to begin within that time; it wakes its reader for whatever comes.
        """
        self._answer, self._is_stream = http1.Answer(), is_stream
        self._timer = asyncio.get_running_loop().call_later(timeout, self._time_out)
        if self._failure is None:
            self._write(data if self._session is None else self._session.write(data))

    async def head(self) -> http1.Head:
        """Wait for the beginning of a stream, or for all of another answer."""
        answer = cast(http1.Answer, self._answer)
        while answer.head is None or not (answer.is_complete or self._is_stream):
            await self._news()
        return answer.head

    async def body(self) -> bytes:
        """Wait for all of the answer that was not read yet; then the connection is free."""
        answer = cast(http1.Answer, self._answer)
        while not answer.is_complete:
            await self._news()
        self._answer = None
        self._disarm()
        if answer.head is not None and not answer.head.keeps_open:
            self.close()
        return self._taken()

    async def some(self, *, silence: float, pause: float = 0.0) -> bytes:
        """Wait for more of a stream; empty at its end.

        What comes within the next ``pause`` seconds is then read together; ``silence`` seconds
        without a byte are a TimeoutError.
        """
        answer = cast(http1.Answer, self._answer)
        if pause > 0 and not answer.is_complete:
            self._pause()
            asyncio.get_running_loop().call_later(pause, self._resume)
        else:
            self._resume()
        while not self._body and not answer.is_complete:
            self._disarm()
            self._timer = asyncio.get_running_loop().call_later(silence + pause, self._time_out)
            await self._news()
        self._disarm()
        return self._taken()

    async def secure(self, tls: ssl.SSLContext, name: str) -> None:
        """Go on with TLS, with a server whose certificate is for ``name``."""
        self._session = session = encryption.Session(tls, name)
        session.advance(b"")
        self._write(session.to_send())
        while not session.is_ready:
            await self._news()

    async def tunnel(self, host: str, port: int, headers: bytes) -> None:
        """Have a proxy pass on what follows to the server (RFC 9110, section 9.3.6)."""
        target = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        lines = http1.fields([("Host", target)]) + headers
        request = http1.request("CONNECT", target, lines, None)
        self.send(request, timeout=_TUNNEL_TIMEOUT, is_stream=True)
        head = await self.head()
        self._disarm()
        if not 200 <= head.status < 300:
            raise ConnectionError(f"the proxy answers with status {head.status}")
        self._answer = None

    def close(self) -> None:
        """End it at once; whoever waits fails."""
        self._fail(ConnectionAbortedError("the connection was closed"))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """As asyncio calls it."""
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """As asyncio calls it."""
        try:
            if self._session is not None:
                data = self._decrypted(self._session, data)
            if data:
                self._take(data)
            if self._session is not None and self._session.is_ended:
                cast(asyncio.Transport, self.transport).close()
        except (ssl.SSLError, http1.ProtocolError) as error:
            self._fail(error)

    def connection_lost(self, exc: Exception | None) -> None:
        """As asyncio calls it."""
        is_whole = self._session is None or self._session.is_ended
        if exc is None and self._answer is not None and is_whole:
            with contextlib.suppress(http1.ProtocolError):
                self._answer.end()
        self._fail(exc or ConnectionResetError("the server ended the connection"))
        self._lost(self)

    def _decrypted(self, session: encryption.Session, data: bytes) -> bytes:
        try:
            if session.is_ready:
                return session.read(data)
            if not session.advance(data):
                return b""
            self._wake()
            return session.read(b"")
        finally:
            self._write(session.to_send())

    def _take(self, data: bytes) -> None:
        answer = self._answer
        if answer is None or answer.is_complete:
            raise http1.ProtocolError("bytes came that no request asked for")
        self._body += answer.feed(data)
        self._held += len(data)
        if self._is_stream:
            self._wake()
            if self._held > _READ_AHEAD:
                self._pause()
        else:
            self._wake_if(answer)

    def _write(self, data: bytes) -> None:
        if data and self.transport is not None:
            self.transport.write(data)

    def _taken(self) -> bytes:
        parts, self._body, self._held = self._body, [], 0
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _pause(self) -> None:
        if not self._is_paused and self._failure is None:
            self._is_paused = True
            cast(asyncio.Transport, self.transport).pause_reading()

    def _resume(self) -> None:
        if self._is_paused:
            self._is_paused = False
            if self._failure is None:
                cast(asyncio.Transport, self.transport).resume_reading()

    def _fail(self, error: Exception) -> None:
        if self._failure is None:
            self._failure = error
            self._disarm()
            self._wake()
            if self.transport is not None:
                self.transport.abort()

    def _time_out(self) -> None:
        self._fail(TimeoutError("nothing came"))

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _wake_if(self, answer: http1.Answer) -> None:
        if answer.is_complete:
            self._wake()

    async def _news(self) -> None:
        if self._failure is not None:
            raise self._failure
        self._waiter = asyncio.get_running_loop().create_future()
        await self._waiter


@dataclasses.dataclass(frozen=True, slots=True)
class Route:
    """Where connections go: ``tls`` is None for plain HTTP, ``proxy`` a URL if there is one.

    ``server_name`` is what the certificate is for, if not the host in ``server``.
    """

    server: str
    tls: ssl.SSLContext | None
    server_name: str | None = None
    proxy: str | None = None


class Pool:
    """The connections of a route. Make it inside the running loop.

    ``prefix`` stands before the path of each request, ``headers`` are lines of each.
    """

    def __init__(self, route: Route) -> None:
        """Raises ValueError for an address that cannot be used."""
        self._tls = route.tls
        self._server = route.server
        self._name = route.server_name or _address(route.server)[0]
        self._proxy = route.proxy
        self._idle: list[Connection] = []
        self._open: set[Connection] = set()
        self._sweep: asyncio.TimerHandle | None = None
        url = urllib.parse.urlsplit(route.server)
        self.headers = http1.fields([("Host", url.netloc.rpartition("@")[2])])
        self.prefix = url.path.rstrip("/")
        if route.proxy is not None:
            if not route.proxy.startswith("http:"):
                raise ValueError(f"proxy {route.proxy!r} is not http://HOST:PORT")
            if route.tls is None:
                self.prefix = route.server.rstrip("/")
                self.headers += _proxy_authorization(route.proxy)

    @property
    def kept(self) -> int:
        """How many connections are open and free."""
        return len(self._idle)

    def idle(self) -> Connection | None:
        """A connection that is open and free, if there is one."""
        while self._idle:
            connection = self._idle.pop()
            if connection.is_usable:
                return connection
        return None

    async def open(self) -> Connection:
        """A new connection. Raises OSError, faults of TLS among them, and ProtocolError."""
        host, port = _address(self._proxy or self._server)
        _, connection = await asyncio.get_running_loop().create_connection(
            lambda: Connection(self._gone), host, port
        )
        self._open.add(connection)
        try:
            if self._proxy is not None:
                await self._pass_proxy(connection, self._proxy)
            if self._tls is not None:
                await connection.secure(self._tls, self._name)
        except BaseException:
            connection.close()
            raise
        return connection

    async def _pass_proxy(self, connection: Connection, proxy: str) -> None:
        if self._tls is not None:
            await connection.tunnel(*_address(self._server), _proxy_authorization(proxy))

    def give_back(self, connection: Connection) -> None:
        """Take a connection that is free again."""
        if connection.is_usable:
            loop = asyncio.get_running_loop()
            connection.idle_since = loop.time()
            self._idle.append(connection)
            if self._sweep is None:
                self._sweep = loop.call_later(KEEP_ALIVE, self._close_idle)

    def close(self) -> None:
        """End all connections."""
        if self._sweep is not None:
            self._sweep.cancel()
        for connection in list(self._open):
            connection.close()

    def _gone(self, connection: Connection) -> None:
        self._open.discard(connection)
        with contextlib.suppress(ValueError):
            self._idle.remove(connection)

    def _close_idle(self) -> None:
        loop = asyncio.get_running_loop()
        since = loop.time() - KEEP_ALIVE
        for connection in [one for one in self._idle if one.idle_since <= since]:
            self._idle.remove(connection)
            connection.close()
        self._sweep = None
        if self._idle:
            left = self._idle[0].idle_since - since
            self._sweep = loop.call_later(max(1.0, left), self._close_idle)


def _address(text: str) -> tuple[str, int]:
    url = urllib.parse.urlsplit(text)
    if url.scheme not in _PORTS or not url.hostname:
        raise ValueError(f"{text!r} is not http://HOST or https://HOST")
    return url.hostname, url.port or _PORTS[url.scheme]


def _proxy_authorization(proxy: str) -> bytes:
    url = urllib.parse.urlsplit(proxy)
    if not url.username:
        return b""
    pair = f"{urllib.parse.unquote(url.username)}:{urllib.parse.unquote(url.password or '')}"
    value = "Basic " + base64.b64encode(pair.encode()).decode()
    return http1.fields([("Proxy-Authorization", value)])
