"""One HTTP exchange with the API server: the session, and the failure of each kind named.

Over a session of our own, set up from the configuration: kubernetes_asyncio's asks the
environment for proxies in a thread on every request, which costs four times as much.
Answers are asked for uncompressed: inside a cluster that is quicker, and Kubernetes 1.37
compresses watches into many gzip members, of which a decoder may read only the first.
"""

import asyncio
import contextlib
import dataclasses
import ssl
from collections.abc import AsyncIterator, Iterator, Mapping

from bitts.kube import config as configuration
from bitts.kube import errors, limiters
from bitts.kube import lean as _lean  # noqa: F401 - makes the imports below small

# isort: split
import aiohttp
import yarl

CONNECT_TIMEOUT = 10.0
_JSON = "application/json"
# Longer than a usual pause between writes, shorter than the server's own patience (90 s).
_KEEP_ALIVE = 60.0
_READ_BUFFER = 2**18
# A stream of which much comes is read this often a second, after some readings without a wait:
# what came meanwhile is taken in together.
_READINGS, _READINGS_AT_ONCE = 30.0, 10


class Transport:
    """A session with one API server. Make it inside the running loop, close it there."""

    def __init__(
        self, config: configuration.Config, context: ssl.SSLContext | None, user_agent: str
    ) -> None:
        self._config = config
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=0,  # pacing bounds the requests in flight; watches are few
                ssl=True if context is None else context,
                keepalive_timeout=_KEEP_ALIVE,
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers=[
                ("User-Agent", user_agent),
                ("Accept", _JSON),
                ("Accept-Encoding", "identity"),
                *config.headers,
            ],
            read_bufsize=_READ_BUFFER,
        )
        # aiohttp repeats a PUT or DELETE by itself when a kept connection ends before the
        # answer. Whether a write may be repeated is for its caller to say; there is no public way.
        self._session._retry_connection = False  # noqa: SLF001

    async def close(self) -> None:
        """Close the connections."""
        await self._session.close()

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

        ``url`` is path and encoded query. Raises ApiError only.
        """
        limits = aiohttp.ClientTimeout(total=timeout, sock_connect=CONNECT_TIMEOUT)
        headers = {"Content-Type": content_type} if body is not None else {}
        async with self._open(method, url, limits, headers, body) as answer:
            with self._naming_failures(answer.what):
                return await answer.response.read()

    @contextlib.asynccontextmanager
    async def stream(self, url: str, *, silence: float) -> AsyncIterator[AsyncIterator[bytes]]:
        """Open an answer without end, to be read as the bytes come.

        ``silence`` seconds without a byte are AnswerLost. Raises ApiError only, also while
        reading.
        """
        limits = aiohttp.ClientTimeout(sock_connect=CONNECT_TIMEOUT, sock_read=silence)
        async with self._open("GET", url, limits, {}, None) as answer:
            yield self._chunks(answer)

    async def renew_credentials(self) -> bool:
        """After a 401: whether newer credentials were found."""
        return await self._config.credentials.renew()

    async def _chunks(self, answer: "_Answer") -> AsyncIterator[bytes]:
        readings, loop = (
            limiters.TokenBucket(_READINGS, _READINGS_AT_ONCE),
            asyncio.get_running_loop(),
        )
        while True:
            pause = readings.wait(loop.time(), 0)
            if pause > 0:
                await asyncio.sleep(pause)
            readings.take(loop.time())
            with self._naming_failures(answer.what):
                data = await answer.response.content.readany()
            if not data:
                return
            yield data

    @contextlib.asynccontextmanager
    async def _open(
        self,
        method: str,
        url: str,
        limits: aiohttp.ClientTimeout,
        headers: Mapping[str, str],
        body: bytes | None,
    ) -> AsyncIterator["_Answer"]:
        what = f"{method} {url.partition('?')[0]}"
        authorization = await self._config.credentials.header()
        if authorization is not None:
            headers = {**headers, "Authorization": authorization}
        with self._naming_failures(what):
            response = await self._session.request(
                method,
                yarl.URL(self._config.server + url, encoded=True),
                timeout=limits,
                headers=headers,
                data=body,
                allow_redirects=False,
                proxy=self._config.proxy,
                server_hostname=self._config.server_name,
            )
        async with response:
            with self._naming_failures(what):
                await _check(response, what)
            yield _Answer(response, what)

    @contextlib.contextmanager
    def _naming_failures(self, what: str) -> Iterator[None]:
        try:
            yield
        except (aiohttp.ClientError, OSError) as error:
            raise _failure(error, what, self._config.origin) from error


@dataclasses.dataclass(frozen=True, slots=True)
class _Answer:
    response: aiohttp.ClientResponse
    what: str


async def _check(response: aiohttp.ClientResponse, what: str) -> None:
    if 200 <= response.status < 300 and response.content_type == _JSON:
        return
    body = await response.read()
    if response.status < 400:
        raise errors.ServerError(
            f"the answer is {response.content_type}, status {response.status}, not JSON: is the "
            "server address right, is there a proxy in between?",
            status=response.status,
            request=what,
        )
    retry_after = response.headers.get("Retry-After")
    raise errors.from_response(response.status, body, retry_after=retry_after, request=what)


def _failure(error: Exception, what: str, origin: str) -> errors.TransportError:
    """Whether the request was surely never sent, which is all that matters for a retry."""
    text = str(error) or type(error).__name__
    if isinstance(error, aiohttp.ClientConnectorCertificateError | aiohttp.ClientSSLError):
        return errors.Unreachable(
            f"TLS: {text}: check certificate-authority and the client certificate ({origin})",
            reason="Certificate",
            request=what,
        )
    if isinstance(error, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError):
        return errors.Unreachable(f"no connection: {text}", reason="Unreachable", request=what)
    if isinstance(error, asyncio.TimeoutError):
        return errors.AnswerLost(
            f"no answer within the time limit ({text})", reason="Timeout", request=what
        )
    return errors.AnswerLost(f"connection lost: {text}", reason="ConnectionLost", request=what)
