"""A scripted API server on a real socket: enough to be spoken to, made to misbehave.

It keeps objects (list pages, get, create, put, merge and JSON patches, delete, watch with
resume), records every request, and plays the faults it is told to: answers of any status
and body, silence, connections cut before or after the work was done. What a real API
server would decide (validation, garbage collection, ...) is not here: see devcluster.
"""

import asyncio
import copy
import dataclasses
import itertools
import json
import re
import uuid
from types import TracebackType
from typing import Any, Self

from aiohttp import web

from support import jsonpatches

JsonObject = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Recorded:
    """A request as it arrived."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: Any
    content_type: str


@dataclasses.dataclass
class Fault:
    """What to do instead of answering properly, ``times`` times.

    ``status`` with ``body`` (a Status object unless given) answers; ``cut`` is "before" or
    "after" the work; ``silent`` never answers.
    """

    method: str = ""
    path: str = ""
    times: int = 1
    status: int = 0
    reason: str = ""
    headers: dict[str, str] = dataclasses.field(default_factory=dict)
    body: bytes | None = None
    content_type: str = "application/json"
    cut: str = ""
    silent: bool = False

    def matches(self, request: web.Request) -> bool:
        """Whether it is for this request."""
        return (
            self.times > 0
            and self.method in ("", request.method)
            and re.search(self.path, request.path_qs) is not None
        )


class Stream:
    """An open watch, seen from the server."""

    def __init__(self, request: web.Request) -> None:
        self.request = request
        self.queue: asyncio.Queue[bytes | None] = asyncio.Queue()

    @property
    def resource_version(self) -> str:
        """From where the client asked to continue."""
        return self.request.query.get("resourceVersion", "")

    def send(self, kind: str, body: JsonObject) -> None:
        """Send an event."""
        self.raw(json.dumps({"type": kind, "object": body}).encode() + b"\n")

    def bookmark(self, version: int) -> None:
        """Say how far the watch is."""
        self.send("BOOKMARK", {"metadata": {"resourceVersion": str(version)}})

    def raw(self, data: bytes) -> None:
        """Send any bytes."""
        self.queue.put_nowait(data)

    def end(self) -> None:
        """End the answer properly, as a server does after timeoutSeconds."""
        self.queue.put_nowait(None)

    def cut(self) -> None:
        """Break the connection."""
        if self.request.transport is not None:
            self.request.transport.abort()


def status(code: int, reason: str, message: str = "", **details: object) -> JsonObject:
    """A Status object."""
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "code": code,
        "reason": reason,
        "message": message or f"fake: {reason}",
        "details": details,
    }


class FailureError(Exception):
    def __init__(self, code: int, reason: str, message: str = "") -> None:
        super().__init__(reason)
        self.body = status(code, reason, message)


@dataclasses.dataclass(frozen=True)
class Target:
    """The parts of a request path."""

    collection: str
    plural: str
    namespace: str
    name: str
    subresource: str

    @classmethod
    def of(cls, path: str) -> "Target":
        """Read /api/v1/... or /apis/GROUP/VERSION/..."""
        parts = path.strip("/").split("/")
        depth = 2 if parts[0] == "api" else 3
        root, rest = "/".join(parts[:depth]), parts[depth:]
        namespace = ""
        if rest[0] == "namespaces" and len(rest) > 2:
            namespace, rest = rest[1], rest[2:]
        plural, name, subresource = [*rest, "", ""][:3]
        return cls(f"{root}/{plural}", plural, namespace, name, subresource)


class FakeApi:
    """``async with FakeApi() as fake``: a server at ``fake.url``."""

    def __init__(self) -> None:
        self.requests: list[Recorded] = []
        self.streams: list[Stream] = []
        self.opened = 0
        self.objects: dict[tuple[str, str, str], JsonObject] = {}
        self.faults: list[Fault] = []
        self.log: list[tuple[int, str, str, JsonObject]] = []
        self.oldest = 0
        self.version = itertools.count(1001)
        self.current = 1000
        self.in_flight = 0
        self.most_in_flight = 0
        self.url = ""
        self.gate = asyncio.Event()
        self.gate.set()
        self._runner = web.AppRunner(self._app(), access_log=None, shutdown_timeout=0.1)

    async def __aenter__(self) -> Self:
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        host, port = self._runner.addresses[0][:2]
        self.url = f"http://{host}:{port}"
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.gate.set()
        for stream in self.streams:
            stream.end()
        await self._runner.cleanup()

    def fail(self, **fault: Any) -> Fault:
        """Play a fault for the next requests that match."""
        self.faults.append(Fault(**fault))
        return self.faults[-1]

    def count(self, method: str, path: str = "") -> int:
        """How many matching requests have arrived."""
        return len(self.seen(method, path))

    def seen(self, method: str, path: str = "") -> list[Recorded]:
        """The matching requests, in order of arrival."""
        return [one for one in self.requests if one.method == method and re.search(path, one.path)]

    def put(self, collection: str, body: JsonObject) -> JsonObject:
        """Write an object as someone else: create it or replace it."""
        metadata = body.setdefault("metadata", {})
        key = (collection, metadata.get("namespace", ""), metadata["name"])
        change = "MODIFIED" if key in self.objects else "ADDED"
        if change == "MODIFIED":
            metadata.setdefault("uid", self.objects[key]["metadata"]["uid"])
        metadata.setdefault("uid", str(uuid.uuid4()))
        return self._store(key, change, body)

    def drop(self, collection: str, name: str, namespace: str = "") -> None:
        """Remove an object as someone else."""
        key = (collection, namespace, name)
        self._store(key, "DELETED", copy.deepcopy(self.objects[key]))

    def _store(self, key: tuple[str, str, str], change: str, body: JsonObject) -> JsonObject:
        self.current = next(self.version)
        body["metadata"]["resourceVersion"] = str(self.current)
        if change == "DELETED":
            self.objects.pop(key, None)
        else:
            self.objects[key] = body
        self.log.append((self.current, change, key[0], copy.deepcopy(body)))
        for stream in self.streams:
            if Target.of(stream.request.path).collection == key[0]:
                stream.send(change, body)
        return body

    def _app(self) -> web.Application:
        app = web.Application(client_max_size=2**26)
        app.router.add_route("*", "/{path:.*}", self._handle)
        return app

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        data = await request.read()
        body = json.loads(data) if data else None
        self.requests.append(
            Recorded(
                request.method,
                request.path,
                dict(request.query),
                dict(request.headers),
                body,
                request.content_type,
            )
        )
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            if not request.query.get("watch"):
                await self.gate.wait()
            return await self._answer(request, body)
        finally:
            self.in_flight -= 1

    async def _answer(self, request: web.Request, body: Any) -> web.StreamResponse:
        fault = next((one for one in self.faults if one.matches(request)), None)
        if fault is not None:
            fault.times -= 1
            return await self._play(fault, request, body)
        return await self._proper(request, body)

    async def _play(self, fault: Fault, request: web.Request, body: Any) -> web.StreamResponse:
        if fault.cut == "after":
            await self._proper(request, body)
        if fault.cut:
            assert request.transport is not None
            request.transport.abort()
            return web.Response()
        if fault.silent:
            await asyncio.Event().wait()
        answer = fault.body
        if answer is None:
            answer = json.dumps(status(fault.status, fault.reason)).encode()
        return web.Response(
            status=fault.status,
            body=answer,
            content_type=fault.content_type,
            headers=fault.headers,
        )

    async def _proper(self, request: web.Request, body: Any) -> web.StreamResponse:
        try:
            if request.path == "/version":
                return web.json_response({"gitVersion": "v1.37.2"})
            if request.query.get("watch"):
                return await self._watch(request)
            code, found = self._execute(request, body)
            return web.json_response(found, status=code)
        except FailureError as failure:
            return web.json_response(failure.body, status=failure.body["code"])

    def _execute(self, request: web.Request, body: Any) -> tuple[int, JsonObject]:
        target = Target.of(request.path)
        if request.method == "GET" and not target.name:
            return 200, self._list(target, request)
        if request.method == "POST":
            return 201, self._create(target, body)
        key = (target.collection, target.namespace, target.name)
        if key not in self.objects:
            raise FailureError(404, "NotFound", f'{target.plural} "{target.name}" not found')
        old = self.objects[key]
        if request.method == "GET":
            return 200, old
        if request.method == "DELETE":
            return 200, self._delete(key, old, body or {})
        new = body if request.method == "PUT" else patched(old, body, request.content_type)
        asked = new["metadata"].get("resourceVersion")
        if asked and asked != old["metadata"]["resourceVersion"]:
            raise FailureError(409, "Conflict", "the object has been modified")
        new["metadata"]["uid"] = old["metadata"]["uid"]
        if new == old:
            return 200, old
        gone = new["metadata"].get("deletionTimestamp") and not new["metadata"].get("finalizers")
        return 200, self._store(key, "DELETED" if gone else "MODIFIED", new)

    def _list(self, target: Target, request: web.Request) -> JsonObject:
        items = [
            one
            for (collection, namespace, _), one in self.objects.items()
            if collection == target.collection and target.namespace in ("", namespace)
        ]
        metadata: JsonObject = {"resourceVersion": str(self.current)}
        if limit := int(request.query.get("limit", 0)):
            start = int(request.query.get("continue") or 0)
            rest = len(items) - start - limit
            items = items[start : start + limit]
            if rest > 0:
                metadata |= {"continue": str(start + limit), "remainingItemCount": rest}
        return {"kind": "List", "metadata": metadata, "items": items or None}

    def _create(self, target: Target, body: JsonObject) -> JsonObject:
        metadata = body["metadata"]
        if target.namespace:
            metadata["namespace"] = target.namespace
        key = (target.collection, target.namespace, metadata["name"])
        if key in self.objects:
            raise FailureError(409, "AlreadyExists", f'"{metadata["name"]}" already exists')
        metadata["uid"] = str(uuid.uuid4())
        return self._store(key, "ADDED", body)

    def _delete(self, key: tuple[str, str, str], old: JsonObject, body: JsonObject) -> JsonObject:
        wanted = (body.get("preconditions") or {}).get("uid")
        if wanted and wanted != old["metadata"]["uid"]:
            raise FailureError(409, "Conflict", "uid")
        new = copy.deepcopy(old)
        if old["metadata"].get("finalizers"):
            new["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
            return self._store(key, "MODIFIED", new)
        self._store(key, "DELETED", new)
        return {"kind": "Status", "apiVersion": "v1", "status": "Success"}

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        since = int(request.query.get("resourceVersion") or 0)
        if since < self.oldest:
            raise FailureError(410, "Expired", "too old resource version")
        answer = web.StreamResponse(headers={"Content-Type": "application/json"})
        await answer.prepare(request)
        stream = Stream(request)
        collection = Target.of(request.path).collection
        for version, change, of, body in self.log:
            if version > since and of == collection:
                stream.send(change, body)
        self.streams.append(stream)
        self.opened += 1
        try:
            while (data := await stream.queue.get()) is not None:
                await answer.write(data)
        except ConnectionError:
            pass
        finally:
            self.streams.remove(stream)
        return answer


def patched(old: JsonObject, body: Any, content_type: str) -> JsonObject:
    """The object with a patch applied; 422 if a JSON patch does not fit."""
    if content_type != "application/json-patch+json":
        merged = jsonpatches.merge(old, body)
        assert isinstance(merged, dict)
        return merged
    try:
        result: JsonObject = jsonpatches.apply(copy.deepcopy(old), body)
        return result
    except (AssertionError, LookupError, TypeError) as error:
        raise FailureError(422, "Invalid", f"the patch does not apply: {error!r}") from error
