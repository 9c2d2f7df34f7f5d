"""Records as JSON text and back: volumes, snapshots, groups. Pure.

The text is read by people in need, so its names are plain. Reading checks everything: a file
that was cut short or edited badly must not become a volume.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from local_driver.snapshots import Group, Snapshot
from local_driver.volumes import AccessType, Attachment, Content, Volume

R = TypeVar("R")

FORMAT = 1
"""Raised when an older driver could not read what is written."""

_REQUIRED = object()


_SERIAL = re.compile(rb'"serial": ?([0-9]{1,18})\b')


class DocumentError(ValueError):
    """The text is not such a record; says what is wrong with it."""


@dataclass(frozen=True, slots=True)
class Codec(Generic[R]):
    """How one kind of record is written, read (DocumentError) and told apart."""

    encode: Callable[[R], bytes]
    decode: Callable[[bytes], R]
    identity: Callable[[R], str]


def salvaged_serial(text: bytes) -> int:
    """Return the greatest number that a damaged text seems to have; 0 for none."""
    return max(map(int, _SERIAL.findall(text)), default=0)


def encode(volume: Volume) -> bytes:
    """Return the text to store for a volume."""
    return text_of(
        {
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
            "source": volume.source,
            "attached": [
                {"node": one.node_id, "readonly": one.read_only} for one in volume.attachments
            ],
            "mutable": dict(volume.mutable),
        }
    )


def decode(text: bytes) -> Volume:
    """Return the volume that a text describes; raises DocumentError."""
    return read(text, _volume)


def encode_snapshot(snapshot: Snapshot) -> bytes:
    """Return the text to store for a snapshot."""
    return text_of(_snapshot_fields(snapshot))


def decode_snapshot(text: bytes) -> Snapshot:
    """Return the snapshot that a text describes; raises DocumentError."""
    return read(text, _snapshot)


def encode_group(group: Group) -> bytes:
    """Return the text to store for a group, its members included."""
    return text_of(
        {
            "id": group.group_id,
            "name": group.name,
            "serial": group.serial,
            "node": group.node,
            "created": group.created,
            "members": [_snapshot_fields(member) for member in group.members],
        }
    )


def decode_group(text: bytes) -> Group:
    """Return the group that a text describes; raises DocumentError."""
    return read(text, _group)


def _volume(fields: Mapping[str, Any]) -> Volume:
    return Volume(
        volume_id=typed(fields, "id", str),
        name=typed(fields, "name", str),
        serial=typed(fields, "serial", int),
        node=typed(fields, "node", str),
        backend=typed(fields, "backend", str),
        capacity=typed(fields, "capacity", int),
        access=_access(fields),
        filesystem=typed(fields, "filesystem", str),
        content=Content(typed(fields, "content", str)),
        created=float(typed(fields, "created", float)),
        is_limited=typed(fields, "limited", bool),
        source=typed(fields, "source", str, ""),
        attachments=tuple(map(_attachment, typed(fields, "attached", list, []))),
        mutable=tuple(sorted(typed(fields, "mutable", dict, {}).items())),
    )


def _attachment(fields: Any) -> Attachment:
    if not isinstance(fields, dict):
        raise DocumentError("field 'attached' holds what is not a JSON object")
    return Attachment(typed(fields, "node", str), typed(fields, "readonly", bool))


def _snapshot_fields(snapshot: Snapshot) -> dict[str, object]:
    return {
        "id": snapshot.snapshot_id,
        "name": snapshot.name,
        "serial": snapshot.serial,
        "node": snapshot.node,
        "backend": snapshot.backend,
        "source": snapshot.source_id,
        "size": snapshot.size,
        "access": sorted(snapshot.access),
        "filesystem": snapshot.filesystem,
        "content": snapshot.content.value,
        "created": snapshot.created,
        "group": snapshot.group_id,
    }


def _snapshot(fields: Mapping[str, Any]) -> Snapshot:
    return Snapshot(
        snapshot_id=typed(fields, "id", str),
        name=typed(fields, "name", str),
        serial=typed(fields, "serial", int),
        node=typed(fields, "node", str),
        backend=typed(fields, "backend", str),
        source_id=typed(fields, "source", str),
        size=typed(fields, "size", int),
        access=_access(fields),
        filesystem=typed(fields, "filesystem", str),
        content=Content(typed(fields, "content", str)),
        created=float(typed(fields, "created", float)),
        group_id=typed(fields, "group", str),
    )


def _group(fields: Mapping[str, Any]) -> Group:
    members = typed(fields, "members", list)
    if not all(isinstance(member, dict) for member in members):
        raise DocumentError("field 'members' holds what is not a JSON object")
    return Group(
        group_id=typed(fields, "id", str),
        name=typed(fields, "name", str),
        serial=typed(fields, "serial", int),
        node=typed(fields, "node", str),
        created=float(typed(fields, "created", float)),
        members=tuple(_snapshot(member) for member in members),
    )


def text_of(fields: Mapping[str, object]) -> bytes:
    """Return fields as the text of a record."""
    return json.dumps({"format": FORMAT, **fields}, ensure_ascii=False).encode() + b"\n"


def read(text: bytes, made: Callable[[Mapping[str, Any]], R]) -> R:
    """Return what ``made`` makes of a record's fields; raises DocumentError."""
    try:
        fields = json.loads(text)
    except ValueError as error:
        raise DocumentError(f"not JSON: {error}") from error
    if not isinstance(fields, dict):
        raise DocumentError("not a JSON object")
    if fields.get("format") != FORMAT:
        raise DocumentError(f"format {fields.get('format')!r}; this driver reads {FORMAT}")
    try:
        return made(fields)
    except ValueError as error:
        raise DocumentError(str(error)) from error


def _access(fields: Mapping[str, Any]) -> frozenset[AccessType]:
    return frozenset(AccessType(item) for item in typed(fields, "access", list))


def typed(fields: Mapping[str, Any], name: str, kind: type, absent: object = _REQUIRED) -> Any:
    """Return a field, ``absent`` without it; raises DocumentError unless it is of its kind."""
    if absent is not _REQUIRED and name not in fields:
        return absent  # written by an older driver
    value = fields.get(name)
    if kind is float and type(value) is int:
        return value
    if type(value) is not kind:
        raise DocumentError(f"field {name!r} is {value!r}, expected {kind.__name__}")
    return value


VOLUMES = Codec(encode, decode, lambda volume: volume.volume_id)
SNAPSHOTS = Codec(encode_snapshot, decode_snapshot, lambda snapshot: snapshot.snapshot_id)
GROUPS = Codec(encode_group, decode_group, lambda group: group.group_id)
