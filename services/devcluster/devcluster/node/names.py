"""Strings and names that the kubelet, the attach controller and drivers must agree on."""

import hashlib
from typing import Final

COMPONENT: Final = "kubelet"
"""Whom events about pods are from."""

BIND_COMPLETED: Final = "pv.kubernetes.io/bind-completed"
NODE_IDS: Final = "csi.volume.kubernetes.io/nodeid"
HOSTNAME_LABEL: Final = "kubernetes.io/hostname"
LEASE_NAMESPACE: Final = "kube-node-lease"


def attachment(handle: str, driver: str, node: str) -> str:
    """Name of the VolumeAttachment of a volume on a node."""
    return "csi-" + hashlib.sha256(f"{handle}{driver}{node}".encode()).hexdigest()


def unique_volume(driver: str, handle: str) -> str:
    """How a node's status names a CSI volume."""
    return f"kubernetes.io/csi/{driver}^{handle}"
