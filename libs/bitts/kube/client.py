"""The API client: one method for each verb, typed answers, plain bodies.

Every request has a time limit, a lane in the pacing, our field manager, and fails with an
``errors.ApiError`` only. Bodies are plain dicts or patches: what was read through a struct
is never written back.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Literal, TypeVar

from bitts.kube import config as configuration
from bitts.kube import decoding, errors, kinds, patches, requests, retries, transport, watching
from bitts.kube import pacing as pace

T = TypeVar("T")
Page = decoding.Page
WatchEvent = watching.WatchEvent

# "urgent" is leader election, "late" is events; see ``pacing``.
Priority = Literal["urgent", "user", "late"]
# Called after each attempt: method, resource, HTTP status (0 without an answer), seconds.
Observer = Callable[[str, str, int, float], None]

PAGE_SIZE = 500
TIMEOUT = 30.0


class Client:
    """A connection to one API server; make it with ``connect``."""

    def __init__(
        self,
        wire: transport.Transport,
        *,
        pacing: pace.Pacing,
        field_manager: str,
        timeout: float = TIMEOUT,
        observer: Observer | None = None,
    ) -> None:
        self.pacing = pacing
        self._wire = wire
        self._field_manager = field_manager
        self._timeout = timeout
        self._observer = observer

    @classmethod
    @contextlib.asynccontextmanager
    async def connect(
        cls,
        config: configuration.Config,
        *,
        user_agent: str,
        pacing: pace.Pacing | None = None,
        field_manager: str = "",
        timeout: float = TIMEOUT,
        observer: Observer | None = None,
    ) -> "AsyncIterator[Client]":
        """Open a session; nothing is sent yet. Raises ConfigError for unusable certificates.

        ``user_agent`` is ``binary/version``; the field manager is the binary's name unless
        given; pacing is adaptive unless given. ``timeout`` (seconds) bounds each attempt.
        """
        context = await asyncio.to_thread(configuration.ssl_context, config)
        wire = transport.Transport(config, context, user_agent)
        try:
            yield cls(
                wire,
                pacing=pacing or pace.Pacing.adaptive(),
                field_manager=field_manager or user_agent.partition("/")[0],
                timeout=timeout,
                observer=observer,
            )
        finally:
            await wire.close()

    async def get(
        self,
        kind: kinds.Kind[T],
        name: str,
        namespace: str | None = None,
        *,
        priority: Priority = "user",
        timeout: float | None = None,
    ) -> T:
        """Read one object from the server itself, not from a cache. NotFound if it is not."""
        request = requests.get(kind, name, namespace or "")
        return decoding.decode(kind, await self._send(request, priority, timeout))

    async def list(
        self,
        kind: kinds.Kind[T],
        namespace: str | None = None,
        *,
        label_selector: str = "",
        field_selector: str = "",
        limit: int = PAGE_SIZE,
        priority: Priority = "user",
    ) -> AsyncIterator[Page[T]]:
        """The pages of a consistent list; Gone if a continue token grew too old.

        ``limit`` 0 asks for everything in one page.
        """
        selection = requests.Selection(namespace or "", label_selector, field_selector)
        token = ""
        while True:
            request = requests.page(kind, selection, limit=limit, token=token)
            page = await decoding.decode_page(kind, await self._send(request, priority))
            yield page
            token = page.next
            if not token:
                return

    async def list_all(
        self,
        kind: kinds.Kind[T],
        namespace: str | None = None,
        *,
        label_selector: str = "",
        field_selector: str = "",
        limit: int = PAGE_SIZE,
        priority: Priority = "user",
    ) -> Page[T]:
        """All pages as one, at the resourceVersion that they share."""
        items: list[T] = []
        version = ""
        async for page in self.list(
            kind,
            namespace,
            label_selector=label_selector,
            field_selector=field_selector,
            limit=limit,
            priority=priority,
        ):
            items += page.items
            version = page.resource_version
        return Page(items, version)

    async def create(
        self,
        kind: kinds.Kind[T],
        body: Mapping[str, Any],
        namespace: str | None = None,
        *,
        field_manager: str = "",
        priority: Priority = "user",
        timeout: float | None = None,
    ) -> T:
        """Create an object; apiVersion and kind are filled in. AlreadyExists if it is there."""
        manager = field_manager or self._field_manager
        request = requests.create(kind, namespace or "", body, manager)
        return decoding.decode(kind, await self._send(request, priority, timeout))

    async def replace(
        self,
        kind: kinds.Kind[T],
        name: str,
        body: Mapping[str, Any],
        namespace: str | None = None,
        *,
        field_manager: str = "",
        priority: Priority = "user",
        timeout: float | None = None,
    ) -> T:
        """Replace a whole object, read through an untyped kind. Conflict if it has changed."""
        manager = field_manager or self._field_manager
        request = requests.replace(kind, name, namespace or "", body, manager)
        return decoding.decode(kind, await self._send(request, priority, timeout))

    async def patch(
        self,
        kind: kinds.Kind[T],
        name: str,
        patch: patches.Patch,
        namespace: str | None = None,
        *,
        subresource: str = "",
        field_manager: str = "",
        priority: Priority = "user",
        timeout: float | None = None,
    ) -> T:
        """Change an object; Conflict or Invalid if a guard in the patch does not hold."""
        manager = field_manager or self._field_manager
        request = requests.patch(kind, name, namespace or "", subresource, patch, manager)
        return decoding.decode(kind, await self._send(request, priority, timeout))

    async def delete(
        self,
        kind: kinds.Kind[T],
        name: str,
        namespace: str | None = None,
        *,
        uid: str = "",
        resource_version: str = "",
        propagation: str = "",
        grace: int | None = None,
        priority: Priority = "user",
        timeout: float | None = None,
    ) -> T | None:
        """Ask for deletion: ``None`` if the object is gone, else what waits for finalizers.

        ``uid`` and ``resource_version`` are preconditions (Conflict). ``grace`` are the seconds
        that a pod is given; None leaves them to the object. NotFound is raised.
        """
        request = requests.delete(
            kind,
            name,
            namespace or "",
            uid=uid,
            resource_version=resource_version,
            propagation=propagation,
            grace=grace,
        )
        data = await self._send(request, priority, timeout)
        return decoding.decode(kind, data) if _is_waiting(decoding.plain(data)) else None

    @contextlib.asynccontextmanager
    async def watch(
        self,
        kind: kinds.Kind[T],
        resource_version: str,
        namespace: str | None = None,
        *,
        label_selector: str = "",
        field_selector: str = "",
        timeout: float = 300.0,
        silence: float = 75.0,
    ) -> AsyncIterator[AsyncIterator[WatchEvent[T]]]:
        """Open a watch: ``async with client.watch(...) as events: async for event in events``.

        The server ends it after ``timeout`` seconds; ``silence`` seconds without a byte
        (bookmarks come about once a minute) are AnswerLost. Raises ApiError only.
        """
        selection = requests.Selection(namespace or "", label_selector, field_selector)
        request = requests.watch(
            kind, selection, resource_version=resource_version, timeout=timeout
        )
        await self.pacing.admit()
        async with contextlib.AsyncExitStack() as stack:
            try:
                opening = self._wire.stream(request.url, silence=silence)
                stream = await stack.enter_async_context(opening)
            except errors.Unauthorized:
                if not await self._wire.renew_credentials():
                    raise
                opening = self._wire.stream(request.url, silence=silence)
                stream = await stack.enter_async_context(opening)
            yield watching.events(kind, stream)

    async def server_version(self) -> str:
        """The server's version, as in ``v1.37.2``."""
        data = await self._send(requests.Request("GET", "/version"), "user")
        return str(decoding.plain(data).get("gitVersion", ""))

    async def has_resource(self, group: str, version: str, plural: str) -> bool:
        """Whether the server serves a resource type; False also if the group is unknown."""
        path = f"/apis/{group}/{version}" if group else f"/api/{version}"
        try:
            data = await self._send(requests.Request("GET", path), "user")
        except errors.NotFound:
            return False
        return any(one.get("name") == plural for one in decoding.plain(data).get("resources", ()))

    async def _send(
        self, request: requests.Request, priority: Priority, timeout: float | None = None
    ) -> bytes:
        """Send with the repetitions that are safe (see ``retries``)."""
        attempt, renewed = 0, False
        while True:
            try:
                return await self._attempt(request, pace.Lane(priority), timeout or self._timeout)
            except errors.ApiError as error:
                attempt += 1
                delay = retries.delay(error, is_read=request.is_read, attempt=attempt)
                if isinstance(error, errors.Unauthorized) and not renewed:
                    renewed = True
                    delay = 0.0 if await self._wire.renew_credentials() else None
                if delay is None:
                    raise
            await asyncio.sleep(delay)

    async def _attempt(self, request: requests.Request, lane: pace.Lane, timeout: float) -> bytes:
        permit = await self.pacing.acquire(lane)
        started, status = time.monotonic(), 0
        try:
            data = await self._wire.exchange(
                request.method,
                request.url,
                timeout=timeout,
                body=request.body,
                content_type=request.content_type,
            )
            status = 200
            return data
        except errors.ApiError as error:
            status = error.status
            permit.overloaded = retries.is_overload(error)
            permit.retry_after = error.retry_after
            raise
        finally:
            self.pacing.release(permit)
            if self._observer is not None:
                took = time.monotonic() - started
                self._observer(request.method, request.resource, status, took)


def _is_waiting(answer: Mapping[str, Any]) -> bool:
    # Depending on the type, the answer to a finished deletion is a Status or the last object.
    metadata = answer.get("metadata") or {}
    waits = metadata.get("finalizers") or metadata.get("deletionGracePeriodSeconds")
    return answer.get("kind") != "Status" and bool(metadata.get("deletionTimestamp") and waits)
