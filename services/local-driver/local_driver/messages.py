"""Records as CSI messages. Pure."""

import math
from collections.abc import Mapping

from bitts.csi import v1

from local_driver import names, snapshots
from local_driver.snapshots import Group, Snapshot
from local_driver.volumes import Volume


def context(volume: Volume) -> dict[str, str]:
    """Return what a volume says about itself, from its making to its end."""
    quota = "enforced" if volume.is_limited else "not enforced"
    return {names.BACKEND_CONTEXT: volume.backend, names.QUOTA_CONTEXT: quota}


def volume(record: Volume, segments: Mapping[str, str]) -> v1.Volume:
    """Return a volume that is reachable from ``segments`` only."""
    return v1.Volume(
        volume_id=record.volume_id,
        capacity_bytes=record.capacity,
        volume_context=context(record),
        content_source=_source(record.source) if record.source else None,
        accessible_topology=[v1.Topology(segments=dict(segments))],
    )


def _source(content_id: str) -> v1.VolumeContentSource:
    if snapshots.is_snapshot_id(content_id):
        snapshot_source = v1.VolumeContentSourceSnapshotSource(snapshot_id=content_id)
        return v1.VolumeContentSource(snapshot=snapshot_source)
    return v1.VolumeContentSource(volume=v1.VolumeContentSourceVolumeSource(volume_id=content_id))


def snapshot(record: Snapshot) -> v1.Snapshot:
    """Return a snapshot; it is always ready, as it is answered when its copy is done."""
    return v1.Snapshot(
        size_bytes=record.size,
        snapshot_id=record.snapshot_id,
        source_volume_id=record.source_id,
        creation_time=_time(record.created),
        ready_to_use=True,
        group_snapshot_id=record.group_id,
    )


def group(record: Group) -> v1.VolumeGroupSnapshot:
    """Return a group with its snapshots."""
    return v1.VolumeGroupSnapshot(
        group_snapshot_id=record.group_id,
        snapshots=[snapshot(member) for member in record.members],
        creation_time=_time(record.created),
        ready_to_use=True,
    )


def _time(seconds: float) -> v1.Timestamp:
    fraction, whole = math.modf(seconds)
    return v1.Timestamp(seconds=int(whole), nanos=int(fraction * 1e9))
