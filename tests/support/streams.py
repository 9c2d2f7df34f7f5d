"""Reading a watch stream over plain HTTP, event by event, each within a deadline."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

import aiohttp

from support import cluster as clusters
from support import waiting

PATIENCE = 10.0
"""Seconds to wait for an event that a test expects."""


class Stream:
    """An open watch."""

    def __init__(self, answer: aiohttp.ClientResponse) -> None:
        self.answer = answer

    async def next(self, timeout: float = PATIENCE) -> tuple[str, Any]:
        """Return the type and object of the next event; EOFError when the stream has ended."""
        async with asyncio.timeout(waiting.patient(timeout)):
            line = await self.answer.content.readline()
        if not line:
            raise EOFError("the watch has ended")
        event = json.loads(line)
        return event["type"], event["object"]

    async def take(self, count: int) -> list[tuple[str, str]]:
        """Return type and name of the next so many events."""
        events = [await self.next() for _ in range(count)]
        return [(kind, obj["metadata"].get("name", "")) for kind, obj in events]

    async def rest(self) -> list[tuple[str, Any]]:
        """Return all events until the stream ends."""
        found = []
        with contextlib.suppress(EOFError, aiohttp.ClientError):
            while True:
                found.append(await self.next())
        return found


@contextlib.asynccontextmanager
async def watch(
    cluster: clusters.Cluster, path: str, *, accept: str = "application/json", **query: str
) -> AsyncIterator[Stream]:
    """Open a watch on a collection or, with a field selector, on an object."""
    parameters: Mapping[str, str] = {"watch": "1", **query}
    async with (
        cluster.server.session() as session,
        session.get(
            path,
            params=parameters,
            headers={"Accept": accept},
            timeout=aiohttp.ClientTimeout(total=None),
            read_bufsize=2**20,
        ) as answer,
    ):
        answer.raise_for_status()
        yield Stream(answer)
