"""What an HTTP request asks for: path, query and headers read into one frozen value (pure).

Source: API concepts, "Resource URIs" and "Verbs"; content negotiation by media type parameters.
"""

import base64
import collections.abc
import functools
import json
from dataclasses import dataclass

from devcluster import errors
from devcluster.resources import Registry, Resource

Query = collections.abc.Mapping[str, str]
_NAMESPACE_PARTS = ("status", "finalize")
_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "GET": "get", "HEAD": "get"}
_VALIDATIONS = ("", "Ignore", "Strict", "Warn")
_OPTIONS = {
    "create": "CreateOptions",
    "update": "UpdateOptions",
    "patch": "PatchOptions",
    "delete": "DeleteOptions",
}
_TRUE = ("true", "1", "True")


@dataclass(frozen=True, slots=True)
class Call:
    """One request on a resource."""

    verb: str
    resource: Resource
    namespace: str
    name: str
    subresource: str
    query: Query

    @property
    def dry_run(self) -> bool:
        """Whether nothing may be stored."""
        return "dryRun" in self.query

    @property
    def strict(self) -> bool:
        """Whether fields that the kind does not have are refused instead of dropped."""
        return self.query.get("fieldValidation") == "Strict"

    @property
    def key(self) -> tuple[str, str]:
        """Return the key of the object that the request names."""
        return (self.namespace, self.name)


def is_true(query: Query, name: str) -> bool:
    """Whether a boolean query parameter is set."""
    return query.get(name, "") in _TRUE


def number(query: Query, name: str) -> int:
    """Return a numeric query parameter, 0 when absent; raises ApiError 400."""
    text = query.get(name) or "0"
    if not (text.isascii() and text.isdigit()):
        raise errors.bad_request(f"{name}: invalid value {text!r}: must be a whole number")
    return int(text)


def route(registry: Registry, method: str, path: str, query: Query) -> Call:
    """Read a request below /api or /apis; raises ApiError 404, 405."""
    parts = path.strip("/").split("/")
    if parts[0] == "api" and len(parts) > 2:
        group, version, rest = "", parts[1], parts[2:]
    elif parts[0] == "apis" and len(parts) > 3:
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        raise errors.no_such_path()
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2 and rest[2] not in _NAMESPACE_PARTS:
        namespace, rest = rest[1], rest[2:]
    resource = registry.find(group, version, rest[0])
    name, subresource, *more = [*rest[1:], "", ""]
    if any(more) or (subresource and subresource not in resource.subresources):
        raise errors.no_such_path()
    if bool(namespace) != resource.namespaced and (namespace or name):
        raise errors.no_such_path()
    verb = _verb(method, name, query, is_bare=resource.namespaced and not namespace)
    if verb == "create" and name and not subresource:
        raise _not_allowed()
    _check_options(verb, query)
    return Call(verb, resource, namespace, name, subresource, query)


def _verb(method: str, name: str, query: Query, *, is_bare: bool) -> str:
    """Name the verb; ``is_bare`` says that the path lacks the namespace that writes need."""
    if method == "GET" and is_true(query, "watch"):
        return "watch"
    if method == "GET" and not name:
        return "list"
    if method == "DELETE":
        return "delete" if name else "deletecollection"
    verb = _VERBS.get(method, "")
    if not verb or (verb in ("update", "patch")) > bool(name) or is_bare:
        raise _not_allowed()
    return verb


def _not_allowed() -> errors.ApiError:
    text = "the server does not allow this method on the requested resource"
    return errors.ApiError(405, "MethodNotAllowed", text)


def _check_options(verb: str, query: Query) -> None:
    """Refuse what options may not say; raises ApiError 400, 422."""
    causes = []
    if verb in ("list", "watch", "deletecollection"):
        number(query, "timeoutSeconds")
        if query.get("resourceVersionMatch") and not query.get("resourceVersion"):
            why = "resourceVersionMatch is forbidden unless resourceVersion is provided"
            causes.append(errors.forbidden_value("resourceVersionMatch", why))
        if is_true(query, "sendInitialEvents"):
            causes.clear()  # a watch that begins with a list has its own rules
    else:
        if query.get("dryRun", "All") != "All":
            causes.append(errors.unsupported("dryRun", [query["dryRun"]], ["All"]))
        wanted = query.get("fieldValidation", "")
        if wanted not in _VALIDATIONS:
            causes.append(errors.unsupported("fieldValidation", wanted, _VALIDATIONS))
    if causes:
        kind = _OPTIONS.get(verb, "ListOptions")
        raise errors.invalid("meta.k8s.io", kind, "", causes)


@functools.lru_cache(maxsize=256)
def media_types(header: str) -> tuple[tuple[str, collections.abc.Mapping[str, str]], ...]:
    """Read an Accept or Content-Type header: each type with its parameters, in order."""
    found = []
    for part in header.split(","):
        kind, *parameters = [piece.strip() for piece in part.split(";")]
        pairs = (piece.partition("=") for piece in parameters)
        found.append((kind.lower(), {name: value for name, _, value in pairs}))
    return tuple(found)


@functools.lru_cache(maxsize=256)
def shape(accept: str) -> str:
    """Return the transformation asked for: Table, PartialObjectMetadata[List], … or nothing."""
    for kind, parameters in media_types(accept):
        if kind == "application/json" and parameters.get("v") in ("v1", "v2"):
            return parameters.get("as", "")
        if kind in ("application/json", "*/*", "application/*"):
            return ""
    return ""


def page_token(revision: int, after: tuple[str, str]) -> str:
    """Return a continue token: list the rest of what was there at a revision."""
    return base64.urlsafe_b64encode(json.dumps([revision, *after]).encode()).decode()


def read_page_token(token: str) -> tuple[int, tuple[str, str]]:
    """Read a continue token; raises ApiError 400."""
    try:
        revision, namespace, name = json.loads(base64.urlsafe_b64decode(token))
        return int(revision), (str(namespace), str(name))
    except (ValueError, TypeError) as error:
        raise errors.bad_request("continue key is not valid: start the list again") from error
