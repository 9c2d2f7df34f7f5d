"""What proves to the API server who we are, kept fresh.

Service account tokens are rewritten by the kubelet before they expire, and exec plugins
hand out tokens with an end: each source knows when to look again. Reading never blocks the
event loop, and a failed renewal keeps the old value (the server is the judge of it).
"""

import asyncio
import pathlib
import time
from collections.abc import Callable
from typing import Protocol

from bitts.core import logs
from bitts.kube import execplugin
from bitts.kube.errors import ConfigError

TOKEN_REFRESH_INTERVAL = 60.0
_RUN_AGAIN_INTERVAL = 10.0
_EARLY = 60.0

_log = logs.get("kube.credentials")


class Credentials(Protocol):
    """A source of the Authorization header."""

    async def header(self) -> str | None:
        """The current header value; ``None`` for anonymous or certificate access."""
        ...

    async def renew(self) -> bool:
        """After a 401: look for newer credentials now; whether they differ."""
        ...


class Fixed:
    """Credentials that do not change (a token in the kubeconfig, a password, none)."""

    def __init__(self, value: str | None = None) -> None:
        self._value = value

    async def header(self) -> str | None:
        """The header given."""
        return self._value

    async def renew(self) -> bool:
        """There is nothing newer."""
        return False


class TokenFile:
    """A bearer token in a file that is replaced from time to time."""

    def __init__(
        self,
        path: pathlib.Path,
        *,
        interval: float = TOKEN_REFRESH_INTERVAL,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.path = path
        self._interval = interval
        self._clock = clock
        self._value: str | None = None
        self._due = -1.0
        self._lock = asyncio.Lock()

    async def header(self) -> str | None:
        """The token, read again when ``interval`` seconds have passed."""
        if self._value is None or self._clock() >= self._due:
            async with self._lock:
                if self._value is None or self._clock() >= self._due:
                    await self._read()
        return self._value

    async def renew(self) -> bool:
        """Read the file now."""
        before = self._value
        async with self._lock:
            await self._read()
        return self._value != before

    async def _read(self) -> None:
        # Set first: while the file is unreadable, ask once an interval, not on each request.
        self._due = self._clock() + self._interval
        try:
            text = await asyncio.to_thread(self.path.read_text, encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            _log.error("Token file cannot be read, the last token stays", err=error, file=self.path)
            return
        # A newline at the end is usual in files and forbidden in a header.
        if token := text.strip():
            self._value = f"Bearer {token}"
        else:
            _log.error("Token file is empty, the last token stays", file=self.path)


class ExecPlugin:
    """A credential plugin's token, asked for again shortly before it ends."""

    def __init__(
        self,
        run: Callable[[], execplugin.ExecCredential],
        first: execplugin.ExecCredential,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """``run`` blocks and may raise; ``clock`` is in Unix seconds, as expiry is."""
        self._run = run
        self._clock = clock
        self._lock = asyncio.Lock()
        self._asked = clock()
        self._credential = first

    async def header(self) -> str | None:
        """The token; the plugin is asked at most every ten seconds."""
        if self._is_due():
            async with self._lock:
                if self._is_due():
                    await self._ask()
        token = self._credential.token
        return f"Bearer {token}" if token else None

    async def renew(self) -> bool:
        """Run the plugin now, unless it ran within the last ten seconds."""
        before = self._credential.token
        async with self._lock:
            if self._may_ask():
                await self._ask()
        return self._credential.token != before

    def _is_due(self) -> bool:
        expires = self._credential.expires
        return expires is not None and self._clock() >= expires - _EARLY and self._may_ask()

    def _may_ask(self) -> bool:
        # A token that lives shorter than the margin must not cost a process a request.
        return self._clock() >= self._asked + _RUN_AGAIN_INTERVAL

    async def _ask(self) -> None:
        self._asked = self._clock()
        try:
            self._credential = await asyncio.to_thread(self._run)
        except ConfigError as error:
            _log.error("Credential plugin failed, the last token stays", err=error)
