"""Keeping a cache equal to the server: list in pages, then watch, for ever.

A watch ends in many ways: after its time, by a cut connection, by silence on a connection
that only looks open, with an error page from a proxy, with "too old" (410). The rule: go on
from the last version heard of, after a jittered and growing pause unless the watch did its
work; list again only when the server has forgotten that version.
"""

import asyncio
import dataclasses
from typing import Generic, TypeVar

from bitts.core import backoff, logs
from bitts.kube import cache as caches
from bitts.kube import client as clients
from bitts.kube import errors, kinds, objects
from bitts.kube.watching import Change

T = TypeVar("T", bound=objects.Object)

FIRST_DELAY = 0.8
LONGEST_DELAY = 30.0
# Bookmarks come once a minute; a little more without any byte is a dead connection.
SILENCE = 75.0
# Five to ten minutes, so that not all watches of all replicas end together.
_WATCH_TIME, _WATCH_TIME_SPREAD = 450.0, 1 / 3
_JITTER = 0.25
# A watch that lasted this long did its work, even if nothing happened.
_USEFUL_LIFE = 5.0
_RELIST_AFTER = 4


@dataclasses.dataclass(slots=True)
class Figures:
    """What a reflector has done so far, for introspection and metrics."""

    resource: str
    lists: int = 0
    watches: int = 0
    events: int = 0
    bookmarks: int = 0
    failures: int = 0
    resource_version: str = ""
    last_error: str = ""


class Reflector(Generic[T]):
    """Feeds one cache with one kind of objects, all or a selection."""

    def __init__(
        self,
        client: clients.Client,
        kind: kinds.Kind[T],
        cache: caches.Cache[T],
        *,
        namespace: str | None = None,
        label_selector: str = "",
        field_selector: str = "",
        page_size: int = clients.PAGE_SIZE,
        silence: float = SILENCE,
        first_delay: float = FIRST_DELAY,
    ) -> None:
        self.figures = Figures(kind.resource)
        self._client = client
        self._kind = kind
        self._cache = cache
        self._namespace = namespace
        self._label_selector = label_selector
        self._field_selector = field_selector
        self._page_size = page_size
        self._silence = silence
        self._first_delay = first_delay
        self._log = logs.get("kube.reflector").bind(resource=kind.resource)
        self._version = ""
        self._failures = 0
        self._pages_expire = False

    async def run(self) -> None:
        """Keep the cache up to date until cancelled; never returns, never raises."""
        while True:
            useful, asked = False, 0.0
            try:
                if not self._version:
                    await self._list()
                useful = await self._watch()
            except errors.Gone as error:
                self._version = ""
                # The first time is life; a server that expires all it hands out is paced.
                useful = self._failures == 0
                self._failures += 1
                self._log.at(2).info("Version is too old, listing again", err=error)
            except errors.ApiError as error:
                self._failed(error)
                asked = min(error.retry_after or 0.0, LONGEST_DELAY)
            if not useful:
                self._failures += 1
                await asyncio.sleep(max(asked, self._delay()))

    async def _list(self) -> None:
        mark = self._cache.mark()
        listed: list[T] = []
        version = ""
        try:
            async for page in self._client.list(
                self._kind,
                self._namespace,
                label_selector=self._label_selector,
                field_selector=self._field_selector,
                # Pages can expire while they are read; then everything is taken at once.
                limit=0 if self._pages_expire else self._page_size,
            ):
                listed += page.items
                version = page.resource_version
        except errors.Gone:
            self._pages_expire = True
            raise
        self._pages_expire = False
        self._cache.replace(listed, version, mark)
        self._reached(version)
        self.figures.lists += 1
        self._log.at(2).info("Listed", count=len(listed), version=version)

    async def _watch(self) -> bool:
        """Follow one watch to its end; whether it was worth its connection."""
        loop = asyncio.get_running_loop()
        started, events = loop.time(), 0
        self.figures.watches += 1
        try:
            async with self._client.watch(
                self._kind,
                self._version,
                self._namespace,
                label_selector=self._label_selector,
                field_selector=self._field_selector,
                timeout=backoff.spread(_WATCH_TIME, _WATCH_TIME_SPREAD),
                silence=self._silence,
            ) as stream:
                async for event in stream:
                    events += 1
                    self._take(event)
        except errors.AnswerLost as error:
            # Nothing is lost with the connection: the next watch starts where this one was.
            self._log.at(2).info("Watch broke off", err=error)
        useful = events > 0 or loop.time() - started >= _USEFUL_LIFE
        if useful:
            self._failures = 0
        return useful

    def _take(self, event: clients.WatchEvent[T]) -> None:
        self._reached(event.resource_version)
        if event.change is Change.BOOKMARK or event.object is None:
            self.figures.bookmarks += 1
            self._cache.advance(event.resource_version)
        else:
            self.figures.events += 1
            self._cache.apply(event.change, event.object)

    def _reached(self, version: str) -> None:
        self._version = self.figures.resource_version = version

    def _failed(self, error: errors.ApiError) -> None:
        self.figures.failures += 1
        self.figures.last_error = str(error)
        if isinstance(error, errors.ServerError) and self._failures >= _RELIST_AFTER:
            # Alive, but it does not like this version: it may come from before a restore.
            self._version = ""
        if isinstance(error, errors.Forbidden):
            hint = f"grant get, list and watch on {self._kind.resource}"
            self._log.error("Not allowed to list or watch", err=error, hint=hint)
        elif isinstance(error, errors.Unauthorized):
            hint = "the token or client certificate is wrong or has expired: renew it"
            self._log.error("The API server does not know us", err=error, hint=hint)
        else:
            self._log.error("Listing or watching failed, trying again", err=error)

    def _delay(self) -> float:
        delay = backoff.delay(self._failures - 1, self._first_delay, LONGEST_DELAY)
        return backoff.spread(delay, _JITTER)
