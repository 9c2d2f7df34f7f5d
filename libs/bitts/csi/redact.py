"""CSI messages as text without their secrets: the only way a message may reach a log.

The spec marks secret fields with an option that generated code doesn't keep, so a generated
table names them. The shape is that of upstream's logs: one line of JSON, field names of the
.proto file, enum names, unset fields left out.
"""

import dataclasses
import json
from collections.abc import Iterator
from enum import Enum

from bitts.csi._generated import secret_fields
from bitts.rpc import stubs

STRIPPED = "***stripped***"
_SHORTEST_SECRET = 3


def render(message: stubs.Message | None, limit: int = 0) -> str:
    """Return one line of JSON; beyond ``limit`` bytes it is cut and says so (0: no limit)."""
    text = json.dumps(_plain(message), ensure_ascii=False, separators=(",", ":"))
    raw = text.encode()
    if limit <= 0 or len(raw) <= limit:
        return text
    return f"{raw[:limit].decode(errors='ignore')}… ({len(raw)} bytes in all)"


def scrub(request: stubs.Message, text: str) -> str:
    """Return ``text`` without the values of the request's secrets.

    For traces and errors of foreign code. Values of one or two characters stay: to replace
    them would garble the text without hiding anything.
    """
    for value in sorted(set(_secret_values(request)), key=len, reverse=True):
        if len(value) >= _SHORTEST_SECRET:
            text = text.replace(value, STRIPPED)
    return text


def _plain(value: object) -> object:
    if dataclasses.is_dataclass(value):
        secret = secret_fields.SECRET_FIELDS.get(type(value).__name__, frozenset())
        return {
            field.name: STRIPPED if field.name in secret else _plain(found)
            for field in dataclasses.fields(value)
            if not _is_unset(found := getattr(value, field.name))
        }
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, Enum):
        return value.name or value.value
    return value


def _is_unset(value: object) -> bool:
    # A message that is there but empty says something (which member of a oneof), so it stays.
    return value is None or (not dataclasses.is_dataclass(value) and not value)


def _secret_values(message: object) -> Iterator[str]:
    if isinstance(message, list):
        for item in message:
            yield from _secret_values(item)
    elif dataclasses.is_dataclass(message):
        secret = secret_fields.SECRET_FIELDS.get(type(message).__name__, frozenset())
        for field in dataclasses.fields(message):
            found = getattr(message, field.name)
            if field.name not in secret:
                yield from _secret_values(found)
            elif isinstance(found, dict):
                yield from (str(value) for value in found.values())
