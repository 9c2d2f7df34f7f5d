"""Snapshots (snapshot.storage.k8s.io) and grants across namespaces (gateway API)."""

from collections.abc import Mapping

import msgspec

from bitts.kube.objects import meta


class VolumeSnapshotSource(meta.View, frozen=True):
    """What a snapshot is taken of, or which existing content it stands for."""

    persistent_volume_claim_name: str | None = None
    volume_snapshot_content_name: str | None = None


class VolumeSnapshotSpec(meta.View, frozen=True):
    """snapshot.storage.k8s.io/v1 VolumeSnapshotSpec."""

    source: VolumeSnapshotSource = VolumeSnapshotSource()
    volume_snapshot_class_name: str | None = None


class VolumeSnapshotError(meta.View, frozen=True):
    """Why taking the snapshot failed."""

    time: str | None = None
    message: str | None = None


class VolumeSnapshotStatus(meta.View, frozen=True):
    """snapshot.storage.k8s.io/v1 VolumeSnapshotStatus."""

    bound_volume_snapshot_content_name: str | None = None
    creation_time: str | None = None
    ready_to_use: bool | None = None
    restore_size: str | None = None
    error: VolumeSnapshotError | None = None
    volume_group_snapshot_name: str | None = None


class VolumeSnapshot(meta.Object, frozen=True):
    """snapshot.storage.k8s.io/v1 VolumeSnapshot."""

    spec: VolumeSnapshotSpec = VolumeSnapshotSpec()
    status: VolumeSnapshotStatus | None = None


class VolumeSnapshotContentSource(meta.View, frozen=True):
    """The volume or the existing snapshot behind a content."""

    volume_handle: str | None = None
    snapshot_handle: str | None = None


class VolumeSnapshotContentSpec(meta.View, frozen=True):
    """snapshot.storage.k8s.io/v1 VolumeSnapshotContentSpec."""

    volume_snapshot_ref: meta.ObjectReference = meta.ObjectReference()
    deletion_policy: str = ""
    driver: str = ""
    volume_snapshot_class_name: str | None = None
    source: VolumeSnapshotContentSource = VolumeSnapshotContentSource()
    source_volume_mode: str | None = None


class VolumeSnapshotContentStatus(meta.View, frozen=True):
    """VolumeSnapshotContentStatus: creation time in Unix nanoseconds, size in bytes."""

    snapshot_handle: str | None = None
    creation_time: int | None = None
    restore_size: int | None = None
    ready_to_use: bool | None = None
    error: VolumeSnapshotError | None = None
    volume_group_snapshot_handle: str | None = None


class VolumeSnapshotContent(meta.Object, frozen=True):
    """snapshot.storage.k8s.io/v1 VolumeSnapshotContent."""

    spec: VolumeSnapshotContentSpec = VolumeSnapshotContentSpec()
    status: VolumeSnapshotContentStatus | None = None


class VolumeSnapshotClass(meta.Object, frozen=True):
    """snapshot.storage.k8s.io/v1 VolumeSnapshotClass."""

    driver: str = ""
    deletion_policy: str = ""
    parameters: Mapping[str, str] | None = None


class ReferenceGrantFrom(meta.View, frozen=True):
    """Who may refer."""

    group: str = ""
    kind: str = ""
    namespace: str = ""


class ReferenceGrantTo(meta.View, frozen=True):
    """What may be referred to; without a name, all of the kind."""

    group: str = ""
    kind: str = ""
    name: str | None = None


class ReferenceGrantSpec(meta.View, frozen=True):
    """gateway.networking.k8s.io ReferenceGrantSpec: any ``from`` to any ``to``."""

    from_: tuple[ReferenceGrantFrom, ...] = msgspec.field(default=(), name="from")
    to: tuple[ReferenceGrantTo, ...] = ()


class ReferenceGrant(meta.Object, frozen=True):
    """gateway.networking.k8s.io ReferenceGrant."""

    spec: ReferenceGrantSpec = ReferenceGrantSpec()
