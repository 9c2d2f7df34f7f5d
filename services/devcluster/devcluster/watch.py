"""Watch streams: from a revision on, through selectors, with bookmarks, until a deadline.

A stream holds a position in the shared history and nothing else, so a slow reader costs no
memory; when the history has moved on without it, it is told 410 and must list again.
Source: API concepts, "Efficient detection of changes", "Watch bookmarks", "Streaming lists".
"""

import asyncio
import collections.abc
import contextlib
import random
from dataclasses import dataclass

from aiohttp import web

from devcluster import errors
from devcluster.resources import Object, Resource
from devcluster.selectors import Predicate
from devcluster.store import Change, Collection, Store, Stored, encode

BOOKMARK_INTERVAL = 10.0
"""Seconds of silence after which a stream that allows bookmarks gets one."""
COALESCE = 0.001
"""Seconds that a stream waits after a write, so that a burst costs few writes."""
BATCH = 500
"""Changes in one write at most."""
CLOSING = 2.0
"""Seconds that a client may take to read the end of its stream."""
INITIAL_EVENTS_END = {"k8s.io/initial-events-end": "true"}

Encode = collections.abc.Callable[[Stored], bytes]


@dataclass(frozen=True, slots=True)
class WatchRequest:
    """What a client wants to see; ``timeout`` in seconds, zero leaves it to the server."""

    resource: Resource
    namespace: str
    name: str
    matches: Predicate
    encode: Encode
    revision: str = ""
    bookmarks: bool = False
    initial_events: bool = False
    timeout: float = 0.0


class Watch:
    """One stream in progress."""

    def __init__(self, store: Store, collection: Collection, wanted: WatchRequest) -> None:
        self._store = store
        self._collection = collection
        self._wanted = wanted
        self._position = 0
        self._news = asyncio.Event()
        self._response = web.StreamResponse(headers={"Content-Type": "application/json"})
        self._response.enable_chunked_encoding()

    async def run(self, request: web.BaseRequest) -> web.StreamResponse:
        """Serve the stream until its deadline, the client's leaving, or a 410."""
        seconds = self._wanted.timeout or random.uniform(1800, 3600)  # noqa: S311 - only spread
        self._collection.waiting.add(self._news)
        try:
            await self._response.prepare(request)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._follow()
            async with asyncio.timeout(CLOSING):
                if self._wanted.bookmarks:
                    await self._bookmark()
                await self._response.write_eof()
        except (ConnectionError, TimeoutError):
            if request.transport is not None:
                request.transport.abort()  # the client has left, or does not read
        finally:
            self._collection.waiting.discard(self._news)
        return self._response

    async def _follow(self) -> None:
        if not await self._begin():
            return
        while True:
            self._news.clear()
            if self._position < self._collection.floor:
                await self._fail(errors.expired("too old resource version"))
                return
            changes = self._collection.after(self._position, self._store.visible)
            if changes:
                await self._send(changes[:BATCH])
                await asyncio.sleep(COALESCE)
            elif self._collection.is_closed:
                return  # as in Kubernetes, without a word: who asks again is told 404
            else:
                await self._wait()

    async def _begin(self) -> bool:
        """Set the position and send the initial state; False when that is impossible."""
        wanted = self._wanted
        from_state = wanted.initial_events or wanted.revision in ("", "0")
        if not from_state:
            self._position = int(wanted.revision)
            if self._position < self._collection.floor:
                text = f"too old resource version: {wanted.revision} ({self._collection.floor})"
                await self._fail(errors.expired(text))
                return False
            return True
        self._position = self._store.revision
        await self._store.settled(self._position)
        present = [s for s in self._collection.at(self._position).values() if self._sees(s)]
        for start in range(0, len(present), BATCH):
            await self._write([_line("ADDED", wanted.encode(s)) for s in present[start:][:BATCH]])
        if wanted.initial_events and wanted.bookmarks:
            await self._bookmark(INITIAL_EVENTS_END)
        return True

    async def _wait(self) -> None:
        try:
            async with asyncio.timeout(BOOKMARK_INTERVAL):
                await self._news.wait()
        except TimeoutError:
            if self._wanted.bookmarks:
                await self._bookmark()

    def _sees(self, stored: Stored) -> bool:
        metadata = stored.value["metadata"]
        if self._wanted.namespace not in ("", metadata.get("namespace", "")):
            return False
        if self._wanted.name not in ("", metadata["name"]):
            return False
        return self._wanted.matches(stored.value)

    async def _send(self, changes: list[Change]) -> None:
        lines = [line for change in changes for line in self._lines(change)]
        if lines:
            await self._write(lines)
        self._position = changes[-1].new.revision

    def _lines(self, change: Change) -> list[bytes]:
        """Tell a change as seen through the selection: objects enter and leave it."""
        was_in = change.old is not None and self._sees(change.old)
        is_in = change.type != "DELETED" and self._sees(change.new)
        if is_in:
            return [_line("MODIFIED" if was_in else "ADDED", self._wanted.encode(change.new))]
        if not was_in or change.old is None:
            return []
        if change.type == "DELETED":
            return [_line("DELETED", self._wanted.encode(change.new))]
        # It left the selection: watchers get its last selected state at the new revision.
        last = change.old.value
        version = {**last["metadata"], "resourceVersion": str(change.new.revision)}
        left = Stored({**last, "metadata": version}, change.new.revision)
        return [_line("DELETED", self._wanted.encode(left))]

    async def _write(self, lines: list[bytes]) -> None:
        await self._response.write(b"".join(lines))

    async def _bookmark(self, annotations: Object | None = None) -> None:
        revision = self._position
        if not self._collection.after(self._position, self._store.visible):
            revision = max(revision, self._store.visible)
        metadata: Object = {"resourceVersion": str(revision), "creationTimestamp": None}
        if annotations:
            metadata["annotations"] = annotations
        resource = self._wanted.resource
        mark = {"kind": resource.kind, "apiVersion": resource.api_version, "metadata": metadata}
        self._position = revision
        await self._write([_line("BOOKMARK", self._wanted.encode(Stored(mark, revision)))])

    async def _fail(self, error: errors.ApiError) -> None:
        await self._write([_line("ERROR", encode(error.status()))])


def _line(kind: str, data: bytes) -> bytes:
    return b'{"type":"%b","object":%b}\n' % (kind.encode(), data)
