"""What tells clients which resources there are: discovery, version and a minimal OpenAPI.

The OpenAPI documents name every kind and say that writes take ``fieldValidation``, which is
what kubectl looks for before it leaves validation to the server; they describe no fields.
Source: API concepts, "Discovery API"; "Kubernetes OpenAPI".
"""

import platform
import re

from devcluster.resources import Object, Registry, Resource

KUBERNETES_VERSION = "v1.37.2"
"""The behaviour that we follow, and what clients see as the server's version."""

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
"""Media type by which clients recognise the aggregated form."""

_VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]


def version() -> Object:
    """Return /version."""
    major, minor, _ = KUBERNETES_VERSION.removeprefix("v").split(".")
    build = {"gitCommit": "", "gitTreeState": "clean", "buildDate": "", "compiler": "cpython"}
    names = {"gitVersion": KUBERNETES_VERSION, "goVersion": f"python{platform.python_version()}"}
    return {"major": major, "minor": minor, **names, **build, "platform": "linux/embedded"}


def groups(registry: Registry) -> dict[str, dict[str, list[Resource]]]:
    """Return served resources by group and version; the core group is the empty name."""
    found: dict[str, dict[str, list[Resource]]] = {}
    for row in registry:
        found.setdefault(row.group, {}).setdefault(row.version, []).append(row)
    return {group: dict(sorted(by.items(), key=_maturity)) for group, by in found.items()}


def _maturity(item: tuple[str, list[Resource]]) -> tuple[int, int, int]:
    """Sort v2 before v1 before v1beta2 before v1alpha1: clients prefer the first."""
    shape = re.fullmatch(r"v(\d+)(?:(alpha|beta)(\d+))?", item[0])
    if shape is None:
        return (3, 0, 0)
    stage = {None: 0, "beta": 1, "alpha": 2}[shape[2]]
    return (stage, -int(shape[1]), -int(shape[3] or 0))


def aggregated(registry: Registry, *, core: bool) -> Object:
    """Return the aggregated discovery document of /api or /apis."""
    items = [
        {
            "metadata": {"name": group, "creationTimestamp": None},
            "versions": [_version(name, rows) for name, rows in versions.items()],
        }
        for group, versions in groups(registry).items()
        if core == (group == "")
    ]
    head = {"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2"}
    return {**head, "metadata": {}, "items": items}


def _version(name: str, rows: list[Resource]) -> Object:
    return {"version": name, "freshness": "Current", "resources": [_resource(row) for row in rows]}


def _resource(row: Resource) -> Object:
    kind = {"group": row.group, "version": row.version, "kind": row.kind}
    found: Object = {"resource": row.plural, "responseKind": kind}
    found |= {"scope": "Namespaced" if row.namespaced else "Cluster", "verbs": _VERBS}
    found |= {"singularResource": row.singular or row.kind.lower()}
    found |= {"shortNames": row.short_names, "categories": row.categories}
    found["subresources"] = [
        {"subresource": name, "responseKind": kind, "verbs": _subresource_verbs(name)}
        for name in row.subresources
    ]
    return {name: value for name, value in found.items() if value not in ((), [])}


def _subresource_verbs(name: str) -> list[str]:
    only = {"binding": ["create"], "finalize": ["update"]}
    return only.get(name, ["get", "patch", "update"])


def api_versions() -> Object:
    """Return /api in the old form."""
    addresses = [{"clientCIDR": "0.0.0.0/0", "serverAddress": ""}]
    return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": addresses}


def group_list(registry: Registry) -> Object:
    """Return /apis in the old form."""
    named = [group for group in groups(registry) if group]
    items = [_group(registry, group) for group in named]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": items}


def _group(registry: Registry, group: str) -> Object:
    versions = [
        {"groupVersion": f"{group}/{name}", "version": name} for name in groups(registry)[group]
    ]
    return {"name": group, "versions": versions, "preferredVersion": versions[0]}


def group_document(registry: Registry, group: str) -> Object | None:
    """Return /apis/GROUP in the old form, None when the group is not served."""
    if group not in groups(registry):
        return None
    return {"kind": "APIGroup", "apiVersion": "v1", **_group(registry, group)}


def resource_list(registry: Registry, group: str, version: str) -> Object | None:
    """Return /api/v1 or /apis/GROUP/VERSION in the old form, None when it is not served."""
    rows = groups(registry).get(group, {}).get(version)
    if rows is None:
        return None
    found: list[Object] = []
    for row in rows:
        base: Object = {"namespaced": row.namespaced, "kind": row.kind}
        more: Object = {"verbs": _VERBS, "shortNames": row.short_names}
        more |= {"singularName": row.singular or row.kind.lower(), "categories": row.categories}
        more = {name: value for name, value in more.items() if value != ()}
        found.append({"name": row.plural, **base, **more})
        for name in row.subresources:
            verbs = _subresource_verbs(name)
            found.append(
                {"name": f"{row.plural}/{name}", "singularName": "", **base, "verbs": verbs}
            )
    name = f"{group}/{version}" if group else version
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": name, "resources": found}


def openapi_index(registry: Registry) -> Object:
    """Return /openapi/v3."""
    paths = [
        f"apis/{group}/{version}" if group else f"api/{version}"
        for group, versions in groups(registry).items()
        for version in versions
    ]
    return {"paths": {path: {"serverRelativeURL": f"/openapi/v3/{path}"} for path in paths}}


def openapi_v3(registry: Registry, group: str, version: str) -> Object | None:
    """Return the OpenAPI document of one group version, None when it is not served."""
    rows = groups(registry).get(group, {}).get(version)
    if rows is None:
        return None
    paths, schemas = {}, {}
    for row in rows:
        kind = {"group": row.group, "version": row.version, "kind": row.kind}
        name = f"{row.group or 'core'}.{row.version}.{row.kind}"
        schemas[name] = {
            "type": "object",
            "x-kubernetes-preserve-unknown-fields": True,
            "x-kubernetes-group-version-kind": [kind],
            **({"properties": row.schema["properties"]} if row.schema.get("properties") else {}),
        }
        paths[_path(row)] = {
            method: {
                "operationId": f"{action}{row.kind}",
                "parameters": [_FIELD_VALIDATION],
                "x-kubernetes-action": action,
                "x-kubernetes-group-version-kind": kind,
                "responses": {"200": {"description": "OK"}},
            }
            for method, action in (("patch", "patch"), ("put", "put"))
        }
    head = {"openapi": "3.0.0", "info": {"title": "Kubernetes", "version": KUBERNETES_VERSION}}
    return {**head, "paths": paths, "components": {"schemas": schemas}}


_FIELD_VALIDATION = {
    "name": "fieldValidation",
    "in": "query",
    "schema": {"type": "string", "uniqueItems": True},
}


def _path(row: Resource) -> str:
    base = f"/apis/{row.group}/{row.version}" if row.group else f"/api/{row.version}"
    scope = "/namespaces/{namespace}" if row.namespaced else ""
    return f"{base}{scope}/{row.plural}/{{name}}"
