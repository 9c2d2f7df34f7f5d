"""The strings that Kubernetes' own controllers write, spelled once, and the resources read here."""

from typing import Final, NamedTuple


class Kind(NamedTuple):
    """A resource by its URL name; the core group is the empty string."""

    plural: str
    group: str = ""


CLAIMS: Final = Kind("persistentvolumeclaims")
VOLUMES: Final = Kind("persistentvolumes")
PODS: Final = Kind("pods")
NODES: Final = Kind("nodes")
NAMESPACES: Final = Kind("namespaces")
EVENTS: Final = Kind("events")
ACCOUNTS: Final = Kind("serviceaccounts")
CONFIG_MAPS: Final = Kind("configmaps")
LEASES: Final = Kind("leases", "coordination.k8s.io")
CLASSES: Final = Kind("storageclasses", "storage.k8s.io")
CSI_DRIVERS: Final = Kind("csidrivers", "storage.k8s.io")
CSI_NODES: Final = Kind("csinodes", "storage.k8s.io")
CAPACITIES: Final = Kind("csistoragecapacities", "storage.k8s.io")
ATTACHMENTS: Final = Kind("volumeattachments", "storage.k8s.io")

CONTROLLER_MANAGER: Final = "kube-controller-manager"
PROGRAMS: Final = {"default-scheduler": "kube-scheduler"}
"""Programs by the component that events name, where it is not the controller manager."""

CLAIM_FINALIZER: Final = "kubernetes.io/pvc-protection"
VOLUME_FINALIZER: Final = "kubernetes.io/pv-protection"
FOREGROUND: Final = "foregroundDeletion"
ORPHAN: Final = "orphan"

BIND_COMPLETED: Final = "pv.kubernetes.io/bind-completed"
BOUND_BY_CONTROLLER: Final = "pv.kubernetes.io/bound-by-controller"
PROVISIONED_BY: Final = "pv.kubernetes.io/provisioned-by"
PROVISIONER: Final = "volume.kubernetes.io/storage-provisioner"
PROVISIONER_BETA: Final = "volume.beta.kubernetes.io/storage-provisioner"
SELECTED_NODE: Final = "volume.kubernetes.io/selected-node"
CLASS_BETA: Final = "volume.beta.kubernetes.io/storage-class"
CLASS_IS_DEFAULT: Final = "storageclass.kubernetes.io/is-default-class"
NO_PROVISIONER: Final = "kubernetes.io/no-provisioner"
