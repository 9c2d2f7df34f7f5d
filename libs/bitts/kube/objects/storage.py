"""Classes, nodes' drivers, attachments and capacities (storage.k8s.io/v1)."""

from collections.abc import Mapping

import msgspec

from bitts.kube.objects import meta, volumes


class TopologySelectorLabelRequirement(meta.View, frozen=True):
    """One topology key and the values allowed for it."""

    key: str = ""
    values: tuple[str, ...] | None = None


class TopologySelectorTerm(meta.View, frozen=True):
    """Topology keys that must all match."""

    match_label_expressions: tuple[TopologySelectorLabelRequirement, ...] = ()


class StorageClass(meta.Object, frozen=True):
    """storage.k8s.io/v1 StorageClass."""

    provisioner: str = ""
    parameters: Mapping[str, str] = {}
    reclaim_policy: str | None = None
    mount_options: tuple[str, ...] = ()
    allow_volume_expansion: bool | None = None
    volume_binding_mode: str | None = None
    allowed_topologies: tuple[TopologySelectorTerm, ...] = ()


class VolumeAttributesClass(meta.Object, frozen=True):
    """storage.k8s.io/v1 VolumeAttributesClass."""

    driver_name: str = ""
    parameters: Mapping[str, str] = {}


class VolumeNodeResources(meta.View, frozen=True):
    """How many volumes a driver can attach to a node; ``None`` is without limit."""

    count: int | None = None


class CSINodeDriver(meta.View, frozen=True):
    """A driver registered on a node."""

    name: str = ""
    node_id: str = msgspec.field(default="", name="nodeID")
    # The server writes null for none here.
    topology_keys: tuple[str, ...] | None = None
    allocatable: VolumeNodeResources | None = None


class CSINodeSpec(meta.View, frozen=True):
    """storage.k8s.io/v1 CSINodeSpec; the server writes null for no drivers."""

    drivers: tuple[CSINodeDriver, ...] | None = None


class CSINode(meta.Object, frozen=True):
    """storage.k8s.io/v1 CSINode; named as its Node."""

    spec: CSINodeSpec = CSINodeSpec()

    def driver(self, name: str) -> CSINodeDriver | None:
        """The registration of one driver on this node."""
        return next((one for one in self.spec.drivers or () if one.name == name), None)


class TokenRequest(meta.View, frozen=True):
    """A service account token that the kubelet passes to the driver."""

    audience: str = ""
    expiration_seconds: int | None = None


class CSIDriverSpec(meta.View, frozen=True):
    """storage.k8s.io/v1 CSIDriverSpec."""

    attach_required: bool | None = None
    pod_info_on_mount: bool | None = None
    volume_lifecycle_modes: tuple[str, ...] = ()
    storage_capacity: bool | None = None
    fs_group_policy: str | None = None
    token_requests: tuple[TokenRequest, ...] = ()
    requires_republish: bool | None = None
    se_linux_mount: bool | None = msgspec.field(default=None, name="seLinuxMount")
    node_allocatable_update_period_seconds: int | None = None


class CSIDriver(meta.Object, frozen=True):
    """storage.k8s.io/v1 CSIDriver; named as the driver."""

    spec: CSIDriverSpec = CSIDriverSpec()


class CSIStorageCapacity(meta.Object, frozen=True):
    """storage.k8s.io/v1 CSIStorageCapacity."""

    storage_class_name: str = ""
    node_topology: meta.LabelSelector | None = None
    capacity: str | None = None
    maximum_volume_size: str | None = None


class VolumeError(meta.View, frozen=True):
    """Why attaching or detaching failed."""

    time: str | None = None
    message: str = ""
    error_code: int | None = None


class VolumeAttachmentSource(meta.View, frozen=True):
    """Which volume: a PersistentVolume by name, or a translated in-tree one given inline."""

    persistent_volume_name: str | None = None
    inline_volume_spec: volumes.PersistentVolumeSpec | None = None


class VolumeAttachmentSpec(meta.View, frozen=True):
    """storage.k8s.io/v1 VolumeAttachmentSpec."""

    attacher: str = ""
    node_name: str = ""
    source: VolumeAttachmentSource = VolumeAttachmentSource()


class VolumeAttachmentStatus(meta.View, frozen=True):
    """storage.k8s.io/v1 VolumeAttachmentStatus."""

    attached: bool = False
    attachment_metadata: Mapping[str, str] = {}
    attach_error: VolumeError | None = None
    detach_error: VolumeError | None = None


class VolumeAttachment(meta.Object, frozen=True):
    """storage.k8s.io/v1 VolumeAttachment."""

    spec: VolumeAttachmentSpec = VolumeAttachmentSpec()
    status: VolumeAttachmentStatus = VolumeAttachmentStatus()
