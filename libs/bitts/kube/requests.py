"""Requests as data: what each verb sends, before anything is sent (pure)."""

import dataclasses
import urllib.parse
from collections.abc import Mapping
from typing import Any

from bitts.kube import decoding, kinds, patches

JSON = "application/json"


@dataclasses.dataclass(frozen=True, slots=True)
class Request:
    """An HTTP request to the API server; ``resource`` is for messages and figures."""

    method: str
    path: str
    resource: str = ""
    query: Mapping[str, str] = dataclasses.field(default_factory=dict)
    body: bytes | None = None
    content_type: str = JSON

    @property
    def url(self) -> str:
        """Path and query, encoded."""
        path = urllib.parse.quote(self.path)
        return f"{path}?{urllib.parse.urlencode(self.query)}" if self.query else path

    @property
    def is_read(self) -> bool:
        """Whether executing it twice does no harm."""
        return self.method == "GET"


@dataclasses.dataclass(frozen=True, slots=True)
class Selection:
    """Which objects of a kind: in one namespace ("" for all), by labels, by fields."""

    namespace: str = ""
    label_selector: str = ""
    field_selector: str = ""

    def query(self) -> dict[str, str]:
        """The selectors as query parameters."""
        both = {"labelSelector": self.label_selector, "fieldSelector": self.field_selector}
        return {key: value for key, value in both.items() if value}


def get(kind: kinds.Kind[Any], name: str, namespace: str) -> Request:
    """Read one object."""
    return Request("GET", kind.path(name, namespace), kind.resource)


def page(kind: kinds.Kind[Any], selection: Selection, *, limit: int, token: str) -> Request:
    """Read a page of a list; ``limit`` 0 is everything."""
    query = selection.query()
    if limit:
        query["limit"] = str(limit)
    if token:
        query["continue"] = token
    return Request("GET", kind.path(namespace=selection.namespace), kind.resource, query)


def watch(
    kind: kinds.Kind[Any], selection: Selection, *, resource_version: str, timeout: float
) -> Request:
    """Follow changes after a resourceVersion for ``timeout`` seconds, with bookmarks."""
    query = selection.query() | {
        "watch": "true",
        "allowWatchBookmarks": "true",
        "resourceVersion": resource_version,
        "timeoutSeconds": str(max(1, int(timeout))),
    }
    return Request("GET", kind.path(namespace=selection.namespace), kind.resource, query)


def create(
    kind: kinds.Kind[Any], namespace: str, body: Mapping[str, Any], field_manager: str
) -> Request:
    """Create an object; apiVersion and kind are filled in."""
    path = kind.path(namespace=namespace)
    return _with_object("POST", kind, path, body, field_manager)


def replace(
    kind: kinds.Kind[Any], name: str, namespace: str, body: Mapping[str, Any], field_manager: str
) -> Request:
    """Replace a whole object."""
    return _with_object("PUT", kind, kind.path(name, namespace), body, field_manager)


def patch(
    kind: kinds.Kind[Any],
    name: str,
    namespace: str,
    subresource: str,
    change: patches.Patch,
    field_manager: str,
) -> Request:
    """Change parts of an object."""
    return Request(
        "PATCH",
        kind.path(name, namespace, subresource),
        kind.resource,
        {"fieldManager": field_manager},
        decoding.encode(change.body),
        change.content_type,
    )


def delete(
    kind: kinds.Kind[Any],
    name: str,
    namespace: str,
    *,
    uid: str = "",
    resource_version: str = "",
    propagation: str = "",
    grace: int | None = None,
) -> Request:
    """Ask for an object's deletion, on condition of its uid and resourceVersion."""
    options: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions"}
    guards = {"uid": uid, "resourceVersion": resource_version}
    if any(guards.values()):
        options["preconditions"] = {key: value for key, value in guards.items() if value}
    if propagation:
        options["propagationPolicy"] = propagation
    if grace is not None:
        options["gracePeriodSeconds"] = grace
    path = kind.path(name, namespace)
    return Request("DELETE", path, kind.resource, body=decoding.encode(options))


def _with_object(
    method: str, kind: kinds.Kind[Any], path: str, body: Mapping[str, Any], field_manager: str
) -> Request:
    whole = {"apiVersion": kind.api_version, "kind": kind.kind, **body}
    query = {"fieldManager": field_manager}
    return Request(method, path, kind.resource, query, decoding.encode(whole))
