"""Request bodies: from bytes in any of the accepted media types to plain values.

Source: API concepts, "Alternate representations of resources".
"""

from typing import Any

import msgspec
import yaml

from devcluster import errors, protobuf, requests
from devcluster.resources import Object, Resource
from devcluster.store import decode

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"
PATCHES = (JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, APPLY_PATCH)
PROTOBUF = "application/vnd.kubernetes.protobuf"
MAXIMUM = 3 * 1024 * 1024
"""Bytes of a request body at most, as kube-apiserver's default."""


def media_type(header: str) -> str:
    """Return the media type of a Content-Type header without parameters."""
    return requests.media_types(header)[0][0] if header else "application/json"


def value(data: bytes, kind: str) -> Any:
    """Decode a JSON, YAML or protobuf body; raises ApiError 400, 415."""
    if kind == PROTOBUF:
        return protobuf.decode(data)
    try:
        if kind in ("application/yaml", APPLY_PATCH) and not data.lstrip().startswith(b"{"):
            return yaml.safe_load(data)
        if kind.endswith(("json", "yaml")):
            return decode(data)
    except (msgspec.DecodeError, yaml.YAMLError, UnicodeDecodeError) as error:
        raise errors.bad_request(f"the body of the request cannot be read: {error}") from error
    text = f"the body of the request was in an unknown format ({kind}): send application/json"
    raise errors.ApiError(415, "UnsupportedMediaType", text)


def patch(data: bytes, kind: str, *, custom: bool) -> Any:
    """Decode a patch; raises ApiError 400, 415."""
    if kind not in PATCHES or (custom and kind == STRATEGIC_PATCH):
        known = ", ".join(PATCHES[:2] + PATCHES[3:] if custom else PATCHES)
        text = f"the body of the request was in an unknown format - accepted media types: {known}"
        raise errors.ApiError(415, "UnsupportedMediaType", text)
    return value(data, kind)


def object_of(resource: Resource, data: bytes, kind: str) -> Object:
    """Decode an object of a resource; raises ApiError 400, 415."""
    found = value(data, kind)
    if not isinstance(found, dict):
        raise errors.bad_request(f"the body must be a {resource.kind} object")
    if resource.custom and not (found.get("kind") and found.get("apiVersion")):
        missing = "apiVersion" if found.get("kind") else "Kind"
        raise errors.bad_request(
            f"the object provided is unrecognized (must be of type {resource.kind}): "
            f"Object '{missing}' is missing"
        )
    given = (found.get("apiVersion", resource.api_version), found.get("kind", resource.kind))
    if given != (resource.api_version, resource.kind):
        raise errors.bad_request(
            f'the kind in the data ({given[0]}, "{given[1]}") does not match the expected kind'
            f' ({resource.api_version}, "{resource.kind}")'
        )
    if not isinstance(found.get("metadata", {}), dict | None):
        raise errors.bad_request("metadata: must be an object")
    return found
