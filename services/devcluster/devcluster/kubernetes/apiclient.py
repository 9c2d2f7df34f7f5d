"""The few requests that starting a cluster makes: is it ready, and the first objects.

Plain HTTP instead of ``bitts.kube``, which this cluster is there to judge.
"""

import asyncio
import pathlib
import ssl
import time
from collections.abc import Mapping
from typing import Any

import aiohttp
from bitts.core.process import ExitError

PATIENCE, PAUSE = 30.0, 0.1
"""Seconds that a refused creation is tried again, and between two tries."""

_TIMEOUT = aiohttp.ClientTimeout(total=10)


class ApiClient:
    """An HTTP session with all rights; use it as an async context manager."""

    def __init__(self, url: str, ca: pathlib.Path, token: str) -> None:
        self._url = url
        self._ca = ca
        self._token = token
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> "ApiClient":
        context = await asyncio.to_thread(ssl.create_default_context, cafile=str(self._ca))
        self._session = aiohttp.ClientSession(
            self._url,
            connector=aiohttp.TCPConnector(ssl=context),
            headers={"Authorization": f"Bearer {self._token}", "User-Agent": "devcluster"},
            timeout=_TIMEOUT,
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._session is not None
        await self._session.close()

    async def answers(self) -> bool:
        """Whether the API server serves, though its start-up hooks may still be at work."""
        return (await self._request("GET", "/version"))[0] == 200

    async def is_ready(self) -> bool:
        """Whether every start-up hook of the API server is done."""
        return (await self._request("GET", "/readyz"))[0] == 200

    async def get(self, path: str) -> dict[str, Any] | None:
        """Return an object, None if it is not there (or the server not yet)."""
        status, body = await self._request("GET", path)
        return body if status == 200 and isinstance(body, dict) else None

    async def create(self, path: str, body: Mapping[str, Any]) -> None:
        """Create an object unless it is there. Raises ExitError with the server's words.

        While its start-up hooks are at work, the server refuses some requests.
        """
        deadline = time.monotonic() + PATIENCE
        while True:
            status, answer = await self._request("POST", path, body)
            if status in {200, 201, 409}:
                return
            if status in {400, 401, 422} or time.monotonic() > deadline:
                text = f"kube-apiserver refuses {body['kind']}: HTTP {status}: {answer}"
                raise ExitError(1, text)
            await asyncio.sleep(PAUSE)

    async def _request(
        self, method: str, path: str, body: Mapping[str, Any] | None = None
    ) -> tuple[int, Any]:
        assert self._session is not None
        try:
            async with self._session.request(method, path, json=body) as answer:
                is_json = answer.content_type == "application/json"
                return answer.status, await (answer.json() if is_json else answer.text())
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            return 0, str(error)
