"""HTTP in front of the API: the token, discovery, faults and counters, verbs, watches.

Whoever does not present the token learns nothing, health included.
"""

import asyncio
import hmac

from aiohttp import web
from bitts.core import logs

from devcluster import bodies, discovery, errors, faults, requests
from devcluster.api import Api
from devcluster.faults import Counters, Fault, Faults, Request
from devcluster.handlers import Answer, Body, Handlers, response
from devcluster.requests import Call
from devcluster.resources import Object
from devcluster.store import encode
from devcluster.watch import Watch

_log = logs.get("apiserver")
_DROPPED = 0


class Server:
    """Answers HTTP requests."""

    def __init__(self, api: Api, token: str) -> None:
        self._api = api
        self._handlers = Handlers(api)
        self._authorization = f"Bearer {token}".encode()
        self._faults = Faults()
        self._counters = Counters()
        self._watching: set[asyncio.Transport] = set()

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request; never raises."""
        try:
            self._authenticate(request)
            if request.path.startswith(("/api/", "/apis/")):
                return await self._resource(request)
            return response(await self._other(request))
        except errors.ApiError as error:
            return _refusal(error)
        except web.HTTPRequestEntityTooLarge:
            text = f"the request is too large: at most {bodies.MAXIMUM} bytes"
            return _refusal(errors.ApiError(413, "RequestEntityTooLarge", text))
        except ConnectionError:
            raise
        except Exception as error:  # noqa: BLE001 - a fault of ours is answered, not fatal
            _log.exception("Request failed", method=request.method, path=request.path)
            text = f"Internal error occurred: {type(error).__name__}: {error}"
            return _refusal(errors.ApiError(500, "InternalError", text))

    def _authenticate(self, request: web.BaseRequest) -> None:
        given = request.headers.get("Authorization", "").encode(errors="surrogateescape")
        if not hmac.compare_digest(given, self._authorization):
            raise errors.ApiError(401, "Unauthorized", "Unauthorized")

    def drop_watches(self) -> None:
        """Cut every watch stream."""
        for transport in list(self._watching):
            transport.abort()

    # ---- resources

    async def _resource(self, request: web.BaseRequest) -> web.StreamResponse:
        document = discovery_document(self._api, request.path, "")
        if document is not None:
            return response(Answer(encode(document)))
        call = requests.route(self._api.registry, request.method, request.path, request.query)
        agent = request.headers.get("User-Agent", "")
        about = Request(agent, call.verb, call.resource.qualified, call.subresource)
        try:
            fault = self._faults.take(about)
            if fault is not None and not await self._suffer(fault):
                return self._drop(request, about)
            answer = await self._answer(call, request, about)
        except errors.ApiError as error:
            self._counters.count(about, error.code)
            raise
        if fault is not None and fault.action == "drop_after":
            return self._drop(request, about)
        if call.verb != "watch":
            self._counters.count(about, answer.status)
        return answer

    async def _suffer(self, fault: Fault) -> bool:
        """Let a fault strike; False when the connection is to be dropped unanswered."""
        if fault.action == "status":
            raise fault.error()
        if fault.action == "delay":
            await asyncio.sleep(fault.delay)
        return fault.action != "drop"

    def _drop(self, request: web.BaseRequest, about: Request) -> web.Response:
        self._counters.count(about, _DROPPED)
        if request.transport is not None:
            request.transport.abort()
        raise ConnectionResetError("dropped by an injected fault")

    async def _answer(
        self, call: Call, request: web.BaseRequest, about: Request
    ) -> web.StreamResponse:
        accept = request.headers.get("Accept", "")
        if call.verb == "watch":
            self._counters.count(about, 200)  # at its start: that is when a client has synced
            return await self._watch(self._handlers.watch(call, accept), request)
        data = await request.read() if request.can_read_body else b""
        content_type = request.headers.get("Content-Type", "")
        answer = self._handlers.answer(call, Body(data, content_type, accept, about.user_agent))
        await self._api.store.settled(self._api.store.revision)
        return response(answer)

    async def _watch(self, watch: Watch, request: web.BaseRequest) -> web.StreamResponse:
        transport = request.transport
        if transport is None:
            raise ConnectionResetError("the client has left")
        self._watching.add(transport)
        try:
            return await watch.run(request)
        finally:
            self._watching.discard(transport)

    # ---- everything else

    async def _other(self, request: web.BaseRequest) -> Answer:
        path = request.path
        if path in ("/healthz", "/readyz", "/livez"):
            return Answer(b"ok")
        if path.startswith("/-/"):
            return await self._admin(request)
        document = discovery_document(self._api, path, request.headers.get("Accept", ""))
        if document is None:
            raise errors.no_such_path()
        if document.get("kind") == "APIGroupDiscoveryList":
            return Answer(encode(document), content_type=discovery.AGGREGATED)
        return Answer(encode(document))

    async def _admin(self, request: web.BaseRequest) -> Answer:
        match (request.method, request.path):
            case ("POST", "/-/faults"):
                body = bodies.value(await request.read(), "application/json")
                self._faults.add(faults.parse(body))
            case ("DELETE", "/-/faults"):
                self._faults.clear()
            case ("POST", "/-/watches/drop"):
                self.drop_watches()
            case ("POST", "/-/history/expire"):
                for collection in self._api.store.collections():
                    collection.expire()
            case ("GET", "/-/requests"):
                return Answer(encode(self._counters.listing()))
            case ("DELETE", "/-/requests"):
                self._counters.clear()
            case ("GET", "/-/writes"):
                return Answer(encode(list(self._api.writes)))
            case _:
                raise errors.no_such_path()
        return Answer(b"{}")


def discovery_document(api: Api, path: str, accept: str) -> Object | None:
    """Return the document at a path that is no resource, or None."""
    registry = api.registry
    is_aggregated = requests.shape(accept) == "APIGroupDiscoveryList"
    match path.strip("/").split("/"):
        case ["api"]:
            return (
                discovery.aggregated(registry, core=True)
                if is_aggregated
                else discovery.api_versions()
            )
        case ["apis"]:
            if is_aggregated:
                return discovery.aggregated(registry, core=False)
            return discovery.group_list(registry)
        case ["api", version]:
            return discovery.resource_list(registry, "", version)
        case ["apis", group]:
            return discovery.group_document(registry, group)
        case ["apis", group, version]:
            return discovery.resource_list(registry, group, version)
        case ["version"]:
            return discovery.version()
        case ["openapi", "v3"]:
            return discovery.openapi_index(registry)
        case ["openapi", "v3", "api", version]:
            return discovery.openapi_v3(registry, "", version)
        case ["openapi", "v3", "apis", group, version]:
            return discovery.openapi_v3(registry, group, version)
    return None


def _refusal(error: errors.ApiError) -> web.Response:
    answer = response(Answer(encode(error.status()), error.code))
    seconds = (error.details or {}).get("retryAfterSeconds")
    if seconds:
        answer.headers["Retry-After"] = str(seconds)
    if error.code == 401:
        answer.headers["WWW-Authenticate"] = "Bearer"
    return answer
