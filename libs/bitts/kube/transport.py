"""One HTTP exchange with the API server: its bytes, and the failure of each kind named.

Over connections of our own (``connections``), set up from the configuration. Answers are asked
for uncompressed: inside a cluster that is quicker, and Kubernetes 1.37 compresses watches into
many gzip members, of which a decoder may read only the first.
"""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator

from bitts.kube import config as configuration
from bitts.kube import connections, errors, http1, limiters

CONNECT_TIMEOUT = 10.0
_JSON = "application/json"
# A stream of which much comes is read this often a second, after some readings without a wait:
# what came meanwhile is then decrypted, decoded and taken in together.
_READINGS, _READINGS_AT_ONCE = 30.0, 10

_FAULTS = (OSError, http1.ProtocolError)  # a TimeoutError is an OSError, so are those of TLS


class Transport:
    """A way to one API server. Make it inside the running loop, close it there."""

    def __init__(
        self, config: configuration.Config, context: ssl.SSLContext | None, user_agent: str
    ) -> None:
        """Raises ConfigError for an address or headers that cannot be used."""
        self._config = config
        route = connections.Route(config.server, context, config.server_name, config.proxy)
        always = [("User-Agent", user_agent), ("Accept", _JSON), ("Accept-Encoding", "identity")]
        try:
            self._pool = connections.Pool(route)
            self._headers = self._pool.headers + http1.fields([*always, *config.headers])
        except ValueError as error:
            raise errors.ConfigError(f"{config.origin}: {error}") from error

    @property
    def kept(self) -> int:
        """How many connections are open and wait for a request."""
        return self._pool.kept

    async def close(self) -> None:
        """Close the connections."""
        self._pool.close()

    async def exchange(
        self,
        method: str,
        url: str,
        *,
        timeout: float,
        body: bytes | None = None,
        content_type: str = _JSON,
    ) -> bytes:
        """Send a request and read the whole JSON answer within ``timeout`` seconds.

        ``url`` is path and encoded query. A connection that has to be made first has as much
        time again, but ten seconds at most. Raises ApiError only.
        """
        what = _name(method, url)
        message = await self._message(method, url, body, content_type)
        connection = self._pool.idle() or await self._open(what, timeout)
        try:
            connection.send(message, timeout=timeout)
            head = await connection.head()
            data = await connection.body()
        except _FAULTS as error:
            connection.close()
            raise _lost(error, what) from error
        except BaseException:
            connection.close()
            raise
        self._pool.give_back(connection)
        _check(head, data, what)
        return data

    @contextlib.asynccontextmanager
    async def stream(self, url: str, *, silence: float) -> AsyncIterator[AsyncIterator[bytes]]:
        """Open an answer without end, to be read as the bytes come.

        ``silence`` seconds without a byte are AnswerLost. Raises ApiError only, also while
        reading.
        """
        what = _name("GET", url)
        message = await self._message("GET", url)
        connection = self._pool.idle() or await self._open(what, silence)
        try:
            try:
                connection.send(message, timeout=silence, is_stream=True)
                head = await connection.head()
                if not _is_good(head):
                    _check(head, await connection.body(), what)
            except _FAULTS as error:
                raise _lost(error, what) from error
            yield _pieces(connection, silence, what)
        finally:
            connection.close()

    async def renew_credentials(self) -> bool:
        """After a 401: whether newer credentials were found."""
        return await self._config.credentials.renew()

    async def _message(
        self, method: str, url: str, body: bytes | None = None, content_type: str = ""
    ) -> bytes:
        headers = self._headers
        authorization = await self._config.credentials.header()
        if authorization is not None:
            headers += b"Authorization: " + authorization.encode() + b"\r\n"
        return http1.request(method, self._pool.prefix + url, headers, body, content_type)

    async def _open(self, what: str, timeout: float) -> connections.Connection:
        try:
            async with asyncio.timeout(min(timeout, CONNECT_TIMEOUT)):
                return await self._pool.open()
        except ssl.SSLError as error:
            text = f"TLS: {error}: check certificate-authority and the client certificate"
            raise errors.Unreachable(
                f"{text} ({self._config.origin})", reason="Certificate", request=what
            ) from error
        except _FAULTS as error:
            text = f"no connection to {self._config.server}: {str(error) or type(error).__name__}"
            raise errors.Unreachable(text, reason="Unreachable", request=what) from error


async def _pieces(
    connection: connections.Connection, silence: float, what: str
) -> AsyncIterator[bytes]:
    readings = limiters.TokenBucket(_READINGS, _READINGS_AT_ONCE)
    loop = asyncio.get_running_loop()
    while True:
        try:
            pause = readings.wait(loop.time(), 0)
            data = await connection.some(silence=silence, pause=pause)
        except _FAULTS as error:
            raise _lost(error, what) from error
        if not data:
            return
        readings.take(loop.time())
        yield data


def _name(method: str, url: str) -> str:
    return f"{method} {url.partition('?')[0]}"


def _is_good(head: http1.Head) -> bool:
    return 200 <= head.status < 300 and head.content_type == _JSON


def _check(head: http1.Head, body: bytes, what: str) -> None:
    if _is_good(head):
        return
    if head.status < 400:
        raise errors.ServerError(
            f"the answer is {head.content_type}, status {head.status}, not JSON: is the "
            "server address right, is there a proxy in between?",
            status=head.status,
            request=what,
        )
    retry_after = head.headers.get("retry-after")
    raise errors.from_response(head.status, body, retry_after=retry_after, request=what)


def _lost(error: Exception, what: str) -> errors.AnswerLost:
    """The request may have been executed, which is all that matters for a retry."""
    text = str(error) or type(error).__name__
    if isinstance(error, TimeoutError):
        return errors.AnswerLost(
            f"no answer within the time limit ({text})", reason="Timeout", request=what
        )
    return errors.AnswerLost(f"connection lost: {text}", reason="ConnectionLost", request=what)
