"""What is known of a node's volumes and snapshots when it cannot be asked. Values; pure.

A node is the only one that knows its volumes; this is what it last said. The text on disk is
JSON, as that of the driver's other records.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bitts.csi import v1

from local_driver import documents, snapshots
from local_driver.documents import DocumentError, typed


@dataclass(frozen=True, slots=True)
class KnownVolume:
    """A volume as its node last told it. ``problem`` is its condition; empty: in order."""

    volume_id: str
    capacity: int
    context: tuple[tuple[str, str], ...]
    source_id: str = ""
    attached: tuple[str, ...] = ()
    problem: str = ""


@dataclass(frozen=True, slots=True)
class KnownSnapshot:
    """A snapshot as its node last told it; ``seconds`` and ``nanos`` are when it was taken."""

    snapshot_id: str
    source_id: str
    size: int
    seconds: int
    nanos: int
    group_id: str = ""


@dataclass(frozen=True, slots=True)
class Account:
    """All that a node last told."""

    node: str
    volumes: tuple[KnownVolume, ...] = ()
    snapshots: tuple[KnownSnapshot, ...] = ()


@dataclass(frozen=True, slots=True)
class Intent:
    """A CreateVolume that was sent to a node and has not been seen to end; in Unix seconds.

    ``digest`` is that of the volume's name.
    """

    digest: str
    node: str
    since: float


def volume(entry: v1.ListVolumesResponseEntry) -> KnownVolume:
    """Return what a list says of a volume."""
    status, condition = entry.status, None
    if status is not None:
        condition = status.volume_condition
    return volume_of(
        entry.volume,
        attached=tuple(status.published_node_ids) if status is not None else (),
        problem=condition.message if condition is not None and condition.abnormal else "",
    )


def volume_of(
    message: v1.Volume | None, *, attached: tuple[str, ...] = (), problem: str = ""
) -> KnownVolume:
    """Return what a message says of a volume."""
    told = message if message is not None else v1.Volume()
    return KnownVolume(
        volume_id=told.volume_id,
        capacity=told.capacity_bytes,
        context=tuple(sorted(told.volume_context.items())),
        source_id=_source_id(told.content_source),
        attached=attached,
        problem=problem,
    )


def _source_id(source: v1.VolumeContentSource | None) -> str:
    if source is None:
        return ""
    if source.snapshot is not None:
        return source.snapshot.snapshot_id
    return source.volume.volume_id if source.volume is not None else ""


def snapshot(message: v1.Snapshot) -> KnownSnapshot:
    """Return what a message says of a snapshot."""
    created = message.creation_time if message.creation_time is not None else v1.Timestamp()
    return KnownSnapshot(
        snapshot_id=message.snapshot_id,
        source_id=message.source_volume_id,
        size=message.size_bytes,
        seconds=created.seconds,
        nanos=created.nanos,
        group_id=message.group_snapshot_id,
    )


def volume_message(known: KnownVolume, segments: Mapping[str, str]) -> v1.Volume:
    """Return a volume as CSI has it, reachable from ``segments`` only."""
    source = None
    if snapshots.is_snapshot_id(known.source_id):
        of_snapshot = v1.VolumeContentSourceSnapshotSource(snapshot_id=known.source_id)
        source = v1.VolumeContentSource(snapshot=of_snapshot)
    elif known.source_id:
        of_volume = v1.VolumeContentSourceVolumeSource(volume_id=known.source_id)
        source = v1.VolumeContentSource(volume=of_volume)
    return v1.Volume(
        volume_id=known.volume_id,
        capacity_bytes=known.capacity,
        volume_context=dict(known.context),
        content_source=source,
        accessible_topology=[v1.Topology(segments=dict(segments))],
    )


def snapshot_message(known: KnownSnapshot) -> v1.Snapshot:
    """Return a snapshot as CSI has it; the driver's snapshots are always ready."""
    return v1.Snapshot(
        size_bytes=known.size,
        snapshot_id=known.snapshot_id,
        source_volume_id=known.source_id,
        creation_time=v1.Timestamp(seconds=known.seconds, nanos=known.nanos),
        ready_to_use=True,
        group_snapshot_id=known.group_id,
    )


def encode_account(account: Account) -> bytes:
    """Return the text to store for a node."""
    return documents.text_of(
        {
            "node": account.node,
            "volumes": [
                {
                    "id": one.volume_id,
                    "capacity": one.capacity,
                    "context": dict(one.context),
                    "source": one.source_id,
                    "attached": list(one.attached),
                }
                for one in account.volumes
            ],
            "snapshots": [
                {
                    "id": one.snapshot_id,
                    "source": one.source_id,
                    "size": one.size,
                    "seconds": one.seconds,
                    "nanos": one.nanos,
                    "group": one.group_id,
                }
                for one in account.snapshots
            ],
        }
    )


def decode_account(text: bytes) -> Account:
    """Return what a text tells of a node; raises DocumentError."""
    return documents.read(text, _account)


def encode_intent(intent: Intent) -> bytes:
    """Return the text to store for an intent."""
    return documents.text_of({"digest": intent.digest, "node": intent.node, "since": intent.since})


def decode_intent(text: bytes) -> Intent:
    """Return the intent that a text describes; raises DocumentError."""
    return documents.read(text, _intent)


def _account(fields: Mapping[str, Any]) -> Account:
    return Account(
        node=typed(fields, "node", str),
        volumes=tuple(_volume(one) for one in _objects(fields, "volumes")),
        snapshots=tuple(_snapshot(one) for one in _objects(fields, "snapshots")),
    )


def _volume(fields: Mapping[str, Any]) -> KnownVolume:
    context = typed(fields, "context", dict)
    attached = typed(fields, "attached", list)
    if not all(isinstance(text, str) for text in (*context.values(), *attached)):
        raise DocumentError("fields 'context' and 'attached' must hold texts")
    return KnownVolume(
        volume_id=typed(fields, "id", str),
        capacity=typed(fields, "capacity", int),
        context=tuple(sorted(context.items())),
        source_id=typed(fields, "source", str),
        attached=tuple(attached),
    )


def _snapshot(fields: Mapping[str, Any]) -> KnownSnapshot:
    return KnownSnapshot(
        snapshot_id=typed(fields, "id", str),
        source_id=typed(fields, "source", str),
        size=typed(fields, "size", int),
        seconds=typed(fields, "seconds", int),
        nanos=typed(fields, "nanos", int),
        group_id=typed(fields, "group", str),
    )


def _intent(fields: Mapping[str, Any]) -> Intent:
    since = float(typed(fields, "since", float))
    return Intent(typed(fields, "digest", str), typed(fields, "node", str), since)


def _objects(fields: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = typed(fields, name, list)
    if not all(isinstance(one, dict) for one in found):
        raise DocumentError(f"field {name!r} holds what is not a JSON object")
    return found


ACCOUNTS = documents.Codec(encode_account, decode_account, lambda account: account.node)
INTENTS = documents.Codec(encode_intent, decode_intent, lambda intent: intent.digest)
