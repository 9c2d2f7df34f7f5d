"""The verbs of the API on a resource: bytes in, bytes out, semantics by ``Api``."""

from dataclasses import dataclass
from typing import Any

from aiohttp import web

from devcluster import (
    apply,
    binding,
    bodies,
    errors,
    listing,
    metadata,
    patching,
    requests,
    tables,
    views,
)
from devcluster.api import Api, Transform
from devcluster.metadata import DeleteOptions
from devcluster.requests import Call
from devcluster.resources import Object
from devcluster.store import Stored, encode
from devcluster.watch import Encode, Watch, WatchRequest

RETURNS_DELETED = frozenset(
    {"pods", "persistentvolumes", "persistentvolumeclaims", "serviceaccounts", "services"}
)


@dataclass(frozen=True, slots=True)
class Body:
    """A request's body and the headers that say how to read and answer it."""

    data: bytes
    content_type: str
    accept: str
    user_agent: str


@dataclass(frozen=True, slots=True)
class Answer:
    """A status code and the bytes of a JSON answer."""

    data: bytes
    code: int = 200
    content_type: str = "application/json"


class Handlers:
    """Answers every verb but watch; all is done without awaiting, so each is atomic."""

    def __init__(self, api: Api) -> None:
        self._api = api

    def answer(self, call: Call, body: Body) -> Answer:
        """Do what a request asks for; raises ApiError."""
        match call.verb:
            case "get":
                return Answer(self._shown(call, body, self._api.require(call.resource, call.key)))
            case "list":
                return self._list(call, body)
            case "create":
                return self._create(call, body)
            case "update":
                return self._update(call, body)
            case "patch":
                return self._patch(call, body)
            case "delete":
                return self._delete(call, body)
        return self._delete_collection(call, body)

    def watch(self, call: Call, accept: str) -> Watch:
        """Prepare a watch; raises ApiError 400, 422."""
        query, resource = call.query, call.resource
        initial = requests.is_true(query, "sendInitialEvents")
        if initial and query.get("resourceVersionMatch") != "NotOlderThan":
            why = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
            cause = errors.forbidden_value("resourceVersionMatch", why)
            raise errors.invalid("meta.k8s.io", "ListOptions", "", [cause])
        requests.number(query, "resourceVersion")
        label, field = query.get("labelSelector", ""), query.get("fieldSelector", "")
        wanted = WatchRequest(
            resource=resource,
            namespace=call.namespace,
            name=call.name,
            matches=views.selection(resource, label, field),
            encode=self._encoder(call, accept),
            revision=query.get("resourceVersion", ""),
            bookmarks=requests.is_true(query, "allowWatchBookmarks"),
            initial_events=initial,
            timeout=float(requests.number(query, "timeoutSeconds")),
        )
        return Watch(self._api.store, self._api.collection(resource), wanted)

    def _encoder(self, call: Call, accept: str) -> Encode:
        resource, kind = call.resource, requests.shape(accept)
        if kind == "Table":
            include = call.query.get("includeObject", "Metadata")
            return lambda stored: encode(
                tables.table(resource, [views.show(resource, stored.value)], {}, include)
            )
        if kind == "PartialObjectMetadata":
            return lambda stored: encode(tables.partial(stored.value))
        return lambda stored: views.encoded(resource, stored)

    def _shown(self, call: Call, body: Body, stored: Stored) -> bytes:
        if requests.shape(body.accept) in ("Table", "PartialObjectMetadata"):
            return self._encoder(call, body.accept)(stored)
        return views.encoded(call.resource, stored)

    def _list(self, call: Call, body: Body) -> Answer:
        resource = call.resource
        found = listing.page(self._api.store, self._api.collection(resource), call)
        if requests.shape(body.accept) == "Table":
            values = [views.show(resource, stored.value) for stored in found.items]
            include = call.query.get("includeObject", "Metadata")
            return Answer(encode(tables.table(resource, values, found.metadata(), include)))
        if requests.shape(body.accept) == "PartialObjectMetadataList":
            items = [tables.partial(stored.value) for stored in found.items]
            head = {"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1"}
            return Answer(encode({**head, "metadata": found.metadata(), "items": items}))
        encoded = [views.encoded(resource, stored) for stored in found.items]
        return Answer(listing.list_bytes(call, found, encoded))

    def _create(self, call: Call, body: Body) -> Answer:
        if call.subresource == "binding":
            return self._bind(call, body)
        stored_as = self._api.registry.stored(call.resource)
        obj = views.store(call.resource, stored_as, self._object(call, body))
        (obj.get("metadata") or {}).pop("managedFields", None)
        manager = _manager(call, body)
        stored = self._api.insert(
            stored_as,
            obj,
            call.namespace,
            manager=manager,
            dry_run=call.dry_run,
            strict=call.strict,
        )
        return Answer(self._shown(call, body, stored), 201)

    def _bind(self, call: Call, body: Body) -> Answer:
        target = bodies.value(body.data, bodies.media_type(body.content_type)).get("target") or {}
        node = str(target.get("name") or "")
        if not node:
            cause = errors.required("target.name")
            raise errors.invalid("", "Binding", call.name, [cause])
        self._api.modify(
            call.resource,
            call.key,
            lambda old: patching.merge(old, binding.change(old, node, metadata.now())),
            subresource="binding",
            manager=_manager(call, body),
        )
        return Answer(encode(_success({})), 201)

    def _object(self, call: Call, body: Body) -> Object:
        return bodies.object_of(call.resource, body.data, bodies.media_type(body.content_type))

    def _update(self, call: Call, body: Body) -> Answer:
        obj = self._object(call, body)
        metadata = obj.get("metadata") or {}
        if metadata.get("name") != call.name:
            what = f"the name of the object ({metadata.get('name', '')}) does not match the name"
            raise errors.bad_request(f"{what} on the URL ({call.name})")
        if metadata.setdefault("namespace", call.namespace) != call.namespace:
            raise errors.bad_request("the namespace of the object does not match the URL")
        if not call.namespace:
            del metadata["namespace"]
        if not metadata.get("resourceVersion") and not call.resource.unconditional:
            why = "must be specified for an update"
            cause = errors.invalid_value("metadata.resourceVersion", "", why)
            raise errors.invalid(call.resource.group, call.resource.kind, call.name, [cause])
        return self._modify(call, body, lambda old: obj)

    def _patch(self, call: Call, body: Body) -> Answer:
        kind = bodies.media_type(body.content_type)
        patch = bodies.patch(body.data, kind, custom=call.resource.custom)
        if kind == bodies.APPLY_PATCH:
            return self._apply(call, body, patch)
        if kind == bodies.JSON_PATCH:
            return self._modify(call, body, lambda old: patching.json_patch(old, patch))
        if not isinstance(patch, dict):
            raise errors.bad_request("a merge patch must be an object")
        if kind == bodies.MERGE_PATCH:
            return self._modify(call, body, lambda old: patching.merge(old, patch))
        return self._modify(call, body, lambda old: patching.strategic(old, patch))

    def _modify(self, call: Call, body: Body, transform: Transform) -> Answer:
        resource, stored_as = call.resource, self._api.registry.stored(call.resource)
        change = transform
        if resource.view_of:
            change = views.through(resource, stored_as, transform)
        stored = self._api.modify(
            stored_as,
            call.key,
            change,
            subresource=call.subresource,
            manager=_manager(call, body),
            dry_run=call.dry_run,
            strict=call.strict,
        )
        return Answer(self._shown(call, body, stored))

    def _apply(self, call: Call, body: Body, patch: Any) -> Answer:
        manager = call.query.get("fieldManager", "")
        if not manager:
            cause = errors.required("fieldManager", "is required for apply patch")
            raise errors.invalid("meta.k8s.io", "PatchOptions", "", [cause])
        if not isinstance(patch, dict) or not patch.get("apiVersion") or not patch.get("kind"):
            raise errors.bad_request("an apply patch needs apiVersion and kind")
        if (patch["apiVersion"], patch["kind"]) != (call.resource.api_version, call.resource.kind):
            group, _, version = str(patch["apiVersion"]).rpartition("/")
            what = f"{group}/{version}, Kind={patch['kind']}"
            raise errors.bad_request(f"invalid object type: {what}")
        request = apply.Applied(
            call.resource.api_version,
            manager,
            patch,
            subresource=call.subresource,
            force=requests.is_true(call.query, "force"),
        )
        stored, is_new = self._api.apply(
            self._api.registry.stored(call.resource),
            call.key,
            request,
            dry_run=call.dry_run,
            strict=call.strict,
        )
        return Answer(self._shown(call, body, stored), 201 if is_new else 200)

    def _delete(self, call: Call, body: Body) -> Answer:
        options = _delete_options(call, body)
        resource = call.resource
        stored = self._api.remove(self._api.registry.stored(resource), call.key, options)
        still_there = self._api.get(resource, call.name, call.namespace)
        if still_there or resource.storage in RETURNS_DELETED:
            return Answer(self._shown(call, body, stored))
        details = {"name": call.name, "group": resource.group, "kind": resource.plural}
        uid = stored.value["metadata"]["uid"]
        return Answer(encode(_success({k: v for k, v in details.items() if v} | {"uid": uid})))

    def _delete_collection(self, call: Call, body: Body) -> Answer:
        options = _delete_options(call, body)
        stored_as = self._api.registry.stored(call.resource)
        found = listing.page(self._api.store, self._api.collection(call.resource), call)
        deleted = []
        for stored in found.items:
            metadata = stored.value["metadata"]
            key = (metadata.get("namespace", ""), metadata["name"])
            deleted.append(self._api.remove(stored_as, key, options))
        encoded = [views.encoded(call.resource, stored) for stored in deleted]
        return Answer(listing.list_bytes(call, found, encoded))


def _success(details: Object) -> Object:
    body: Object = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    return body | ({"details": details} if details else {})


def _manager(call: Call, body: Body) -> str:
    """Return the field manager: as given, else the user agent's program as Kubernetes does."""
    return call.query.get("fieldManager") or body.user_agent.partition("/")[0][:128]


def _delete_options(call: Call, body: Body) -> DeleteOptions:
    given: Any = {}
    if body.data:
        given = bodies.value(body.data, bodies.media_type(body.content_type)) or {}
    if not isinstance(given, dict):
        raise errors.bad_request("the body of a delete must be DeleteOptions")
    grace = given.get("gracePeriodSeconds")
    if "gracePeriodSeconds" in call.query:
        grace = requests.number(call.query, "gracePeriodSeconds")
    propagation = given.get("propagationPolicy") or call.query.get("propagationPolicy", "")
    if propagation not in ("", "Orphan", "Background", "Foreground"):
        known = ("Background", "Foreground", "Orphan")
        cause = errors.unsupported("propagationPolicy", propagation, known)
        raise errors.invalid("meta.k8s.io", "DeleteOptions", "", [cause])
    conditions = given.get("preconditions") or {}
    return DeleteOptions(
        grace=None if grace is None else int(grace),
        propagation=propagation,
        uid=conditions.get("uid"),
        revision=conditions.get("resourceVersion"),
        dry_run=call.dry_run or bool(given.get("dryRun")),
    )


def response(answer: Answer) -> web.Response:
    """Return an HTTP response around a JSON answer."""
    headers = {"Content-Type": answer.content_type}
    return web.Response(body=answer.data, status=answer.code, headers=headers)
