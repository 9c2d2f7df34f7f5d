"""Which resource types there are: where they live in the API and what they decode to."""

import dataclasses
from typing import Any, Generic, TypeVar

from bitts.kube import objects

T = TypeVar("T")


@dataclasses.dataclass(frozen=True, slots=True)
class Kind(Generic[T]):
    """A resource type and the Python type of its objects."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool
    type: type[T]

    @property
    def api_version(self) -> str:
        """As in an object's ``apiVersion``: ``v1``, ``storage.k8s.io/v1``."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def resource(self) -> str:
        """As RBAC and error messages spell it: ``leases.coordination.k8s.io``."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def path(self, name: str = "", namespace: str = "", subresource: str = "") -> str:
        """The URL path of the collection, of one object, or of its subresource.

        A namespaced kind without namespace and name is the collection over all
        namespaces; an object of it needs both (ValueError).
        """
        if bool(name) and self.namespaced and not namespace:
            raise ValueError(f"{self.kind} {name!r} needs a namespace")
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        scope = f"/namespaces/{namespace}" if self.namespaced and namespace else ""
        parts = [root + scope, self.plural, name, subresource]
        return "/".join(part for part in parts if part)

    def untyped(self) -> "Kind[dict[str, Any]]":
        """The same resource, its objects as plain dicts: for what is sent back whole."""
        return Kind(self.group, self.version, self.plural, self.kind, self.namespaced, dict)

    def reference(self, name: str, namespace: str = "", uid: str = "") -> objects.ObjectReference:
        """A reference to an object of this kind, as events and claimRefs hold it."""
        return objects.ObjectReference(
            api_version=self.api_version, kind=self.kind, name=name, namespace=namespace, uid=uid
        )

    def refer(self, seen: objects.Object) -> objects.ObjectReference:
        """A reference to this very object at this very version."""
        metadata = seen.metadata
        return objects.ObjectReference(
            api_version=self.api_version,
            kind=self.kind,
            name=metadata.name,
            namespace=metadata.namespace,
            uid=metadata.uid,
            resource_version=metadata.resource_version,
        )


def metadata_only(
    group: str, version: str, plural: str, kind: str, *, namespaced: bool
) -> Kind[objects.Metadata]:
    """Any resource type, known by its metadata only (an owner of some kind)."""
    return Kind(group, version, plural, kind, namespaced, objects.Metadata)


_STORAGE = "storage.k8s.io"
_SNAPSHOT = "snapshot.storage.k8s.io"

NAMESPACES = Kind("", "v1", "namespaces", "Namespace", False, objects.Namespace)
NODES = Kind("", "v1", "nodes", "Node", False, objects.Node)
PODS = Kind("", "v1", "pods", "Pod", True, objects.Pod)
SECRETS = Kind("", "v1", "secrets", "Secret", True, objects.Secret)
EVENTS = Kind("", "v1", "events", "Event", True, objects.Event)
PERSISTENT_VOLUMES = Kind(
    "", "v1", "persistentvolumes", "PersistentVolume", False, objects.PersistentVolume
)
PERSISTENT_VOLUME_CLAIMS = Kind(
    "", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", True, objects.PersistentVolumeClaim
)
STORAGE_CLASSES = Kind(
    _STORAGE, "v1", "storageclasses", "StorageClass", False, objects.StorageClass
)
VOLUME_ATTRIBUTES_CLASSES = Kind(
    _STORAGE,
    "v1",
    "volumeattributesclasses",
    "VolumeAttributesClass",
    False,
    objects.VolumeAttributesClass,
)
VOLUME_ATTACHMENTS = Kind(
    _STORAGE, "v1", "volumeattachments", "VolumeAttachment", False, objects.VolumeAttachment
)
CSI_NODES = Kind(_STORAGE, "v1", "csinodes", "CSINode", False, objects.CSINode)
CSI_DRIVERS = Kind(_STORAGE, "v1", "csidrivers", "CSIDriver", False, objects.CSIDriver)
CSI_STORAGE_CAPACITIES = Kind(
    _STORAGE, "v1", "csistoragecapacities", "CSIStorageCapacity", True, objects.CSIStorageCapacity
)
LEASES = Kind("coordination.k8s.io", "v1", "leases", "Lease", True, objects.Lease)
VOLUME_SNAPSHOTS = Kind(
    _SNAPSHOT, "v1", "volumesnapshots", "VolumeSnapshot", True, objects.VolumeSnapshot
)
VOLUME_SNAPSHOT_CONTENTS = Kind(
    _SNAPSHOT,
    "v1",
    "volumesnapshotcontents",
    "VolumeSnapshotContent",
    False,
    objects.VolumeSnapshotContent,
)
VOLUME_SNAPSHOT_CLASSES = Kind(
    _SNAPSHOT,
    "v1",
    "volumesnapshotclasses",
    "VolumeSnapshotClass",
    False,
    objects.VolumeSnapshotClass,
)
REFERENCE_GRANTS = Kind(
    "gateway.networking.k8s.io",
    "v1beta1",
    "referencegrants",
    "ReferenceGrant",
    True,
    objects.ReferenceGrant,
)
