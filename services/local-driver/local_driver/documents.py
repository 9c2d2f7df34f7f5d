"""A volume as JSON text and back. Pure.

The text is read by people in need, so its names are plain. Reading checks everything: a file
that was cut short or edited badly must not become a volume.
"""

import json
from typing import Any

from local_driver.volumes import AccessType, Content, Volume

FORMAT = 1
"""Raised when an older driver could not read what is written."""


class DocumentError(ValueError):
    """The text is not a volume; says what is wrong with it."""


def encode(volume: Volume) -> bytes:
    """Return the text to store."""
    fields = {
        "format": FORMAT,
        "id": volume.volume_id,
        "name": volume.name,
        "serial": volume.serial,
        "node": volume.node,
        "backend": volume.backend,
        "capacity": volume.capacity,
        "access": sorted(volume.access),
        "filesystem": volume.filesystem,
        "content": volume.content.value,
        "created": volume.created,
        "limited": volume.is_limited,
    }
    return json.dumps(fields, ensure_ascii=False).encode() + b"\n"


def decode(text: bytes) -> Volume:
    """Return the volume that a text describes; raises DocumentError."""
    try:
        fields = json.loads(text)
    except ValueError as error:
        raise DocumentError(f"not JSON: {error}") from error
    if not isinstance(fields, dict):
        raise DocumentError("not a JSON object")
    if fields.get("format") != FORMAT:
        raise DocumentError(f"format {fields.get('format')!r}; this driver reads {FORMAT}")
    try:
        return Volume(
            volume_id=_typed(fields, "id", str),
            name=_typed(fields, "name", str),
            serial=_typed(fields, "serial", int),
            node=_typed(fields, "node", str),
            backend=_typed(fields, "backend", str),
            capacity=_typed(fields, "capacity", int),
            access=frozenset(AccessType(item) for item in _typed(fields, "access", list)),
            filesystem=_typed(fields, "filesystem", str),
            content=Content(_typed(fields, "content", str)),
            created=float(_typed(fields, "created", float)),
            is_limited=_typed(fields, "limited", bool),
        )
    except ValueError as error:
        raise DocumentError(str(error)) from error


def _typed(fields: dict[str, Any], name: str, kind: type) -> Any:
    value = fields.get(name)
    if kind is float and type(value) is int:
        return value
    if type(value) is not kind:
        raise DocumentError(f"field {name!r} is {value!r}, expected {kind.__name__}")
    return value
