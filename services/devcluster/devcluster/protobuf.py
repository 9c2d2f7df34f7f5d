"""Kubernetes' protobuf bodies, decoded to the values that their JSON form would have.

Go clients send core kinds this way. The envelope is four bytes of magic and a runtime.Unknown;
fields are those of ``protobuf_fields``. A field that the tables lack is refused, never lost.
Source: API concepts, "Kubernetes Protobuf encoding"; the protobuf wire format.
"""

import base64
import collections.abc
import datetime as dt
from dataclasses import dataclass
from typing import Any

from devcluster import errors, protobuf_fields
from devcluster.resources import Object

MAGIC = b"k8s\x00"
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_ABSENT: tuple[Any, ...] = ("", 0, False, None)


@dataclass(frozen=True, slots=True)
class Field:
    """How to read one field."""

    name: str
    type: str
    repeated: bool
    mapped: bool
    keeps_zero: bool


Table = collections.abc.Mapping[int, Field]


def _parse_tables(text: str) -> dict[str, Table]:
    tables: dict[str, Table] = {}
    for entry in text.strip().replace("\n    ", " ").splitlines():
        name, _, fields = entry.partition(" = ")
        tables[name] = dict(map(_parse_field, fields.split()))
    return tables


def _parse_field(text: str) -> tuple[int, Field]:
    number, name, kind = [*text.split(":"), ""][:3]
    bare = kind.removesuffix("!").removeprefix("[]").removeprefix("{}")
    field = Field(name, bare, kind.startswith("[]"), kind.startswith("{}"), kind.endswith("!"))
    return int(number), field


TABLES = _parse_tables(protobuf_fields.TABLES)
_ENVELOPE = _parse_tables(
    "Unknown = 1:typeMeta:TypeMeta 2:raw:raw 3:contentEncoding 4:contentType\n"
    "TypeMeta = 1:apiVersion 2:kind"
)


def decode(data: bytes) -> Object:
    """Decode a request body; raises ApiError 400 for broken bytes, 415 for what we do not know."""
    if data[:4] != MAGIC:
        raise errors.bad_request("a protobuf body must start with the k8s magic bytes")
    try:
        envelope = _message(memoryview(data)[4:], _ENVELOPE["Unknown"], _ENVELOPE, "Unknown")
        about = envelope.get("typeMeta") or {}
        version, kind = about.get("apiVersion", ""), about.get("kind", "")
        table = TABLES.get(f"{version} {kind}") or TABLES.get(kind)
        if table is None:
            raise _unknown(f"kind {kind!r}")
        body = _message(envelope.get("raw", memoryview(b"")), table, TABLES, kind)
    except (IndexError, ValueError, OverflowError) as error:
        raise errors.bad_request(f"the protobuf body cannot be read: {error}") from error
    return {"kind": kind, "apiVersion": version, **body}


def _unknown(what: str) -> errors.ApiError:
    text = f"protobuf {what} is not supported here: send application/json"
    return errors.ApiError(415, "UnsupportedMediaType", text)


def _message(
    data: memoryview, table: Table, tables: collections.abc.Mapping[str, Table], name: str
) -> Object:
    found: Object = {}
    for number, wire in _fields(data):
        field = table.get(number)
        if field is None:
            raise _unknown(f"field {number} of {name}")
        if field.name == "-":
            continue
        if field.mapped:
            key, value = _entry(wire, field, tables)
            found.setdefault(field.name, {})[key] = value
            continue
        value = _value(wire, field.type, tables)
        if field.name == "*":
            found.update(value)
        elif field.repeated:
            found.setdefault(field.name, []).append(value)
        elif field.keeps_zero or value not in _ABSENT:
            found[field.name] = value
    return found


def _entry(wire: Any, field: Field, tables: collections.abc.Mapping[str, Table]) -> tuple[str, Any]:
    pair = dict(_fields(_sized(wire)))
    key = bytes(_sized(pair.get(1, memoryview(b"")))).decode()
    return key, _value(pair.get(2, memoryview(b"")), field.type, tables)


def _value(wire: Any, kind: str, tables: collections.abc.Mapping[str, Table]) -> Any:
    match kind:
        case "int":
            return wire - (1 << 64) if wire >= 1 << 63 else wire
        case "bool":
            return bool(wire)
        case "":
            return bytes(_sized(wire)).decode()
        case "raw":
            return _sized(wire)
        case "bytes":
            return base64.b64encode(_sized(wire)).decode()
        case "Quantity":
            text = dict(_fields(_sized(wire))).get(1, memoryview(b"0"))
            return bytes(_sized(text)).decode() or "0"
        case "Time" | "MicroTime":
            return _time(dict(_fields(_sized(wire))), fraction=kind == "MicroTime")
    return _message(_sized(wire), tables[kind], tables, kind)


def _time(parts: dict[int, Any], *, fraction: bool) -> str | None:
    """Return a timestamp; no parts are Go's zero time, which JSON shows as null."""
    if not parts:
        return None
    then = dt.datetime.fromtimestamp(parts.get(1, 0), dt.UTC)
    text = then.strftime("%Y-%m-%dT%H:%M:%S")
    return f"{text}.{parts.get(2, 0) // 1000:06d}Z" if fraction else f"{text}Z"


def _sized(wire: Any) -> memoryview:
    if not isinstance(wire, memoryview):
        raise ValueError("a field has the wrong wire type")  # noqa: TRY004 - the data is at fault
    return wire


def _fields(data: memoryview) -> collections.abc.Iterator[tuple[int, Any]]:
    """Split a message into field numbers and what is on the wire: an int or bytes."""
    position, end = 0, len(data)
    while position < end:
        tag, position = _varint(data, position)
        number, wire_type = tag >> 3, tag & 7
        if wire_type == _VARINT:
            value, position = _varint(data, position)
            yield number, value
            continue
        if wire_type == _BYTES:
            size, position = _varint(data, position)
        elif wire_type in (_FIXED64, _FIXED32):
            size = 8 if wire_type == _FIXED64 else 4
        else:
            raise ValueError(f"wire type {wire_type} of field {number}")
        if position + size > end:
            raise ValueError(f"field {number} is cut off")
        yield number, data[position : position + size]
        position += size


def _varint(data: memoryview, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, position
        shift += 7
        if shift > 63:
            raise ValueError("a varint is too long")
