"""Strings that others depend on: driver and parameter names, limits of the CSI specification."""

DRIVER_NAME = "local.csi.bitts.dev"
PROGRAM = "local-driver"

BACKEND_PARAMETER = "backend"
FILESYSTEM_PARAMETERS = frozenset({"fstype", "csi.storage.k8s.io/fstype"})
"""Sidecars hand the file system over in the capability; a capacity request shows the raw class."""

IN_USE_PARAMETER = "inUse"
"""Of a VolumeSnapshotClass: what becomes of a folder that somebody writes to."""

KUBERNETES_PREFIX = "csi.storage.k8s.io/"
"""Parameters that sidecars add or take out (names of claims, secrets); they mean nothing here."""

BACKEND_CONTEXT = "backend"
QUOTA_CONTEXT = "quota"

NAME_LIMIT = 128
"""Bytes that the CSI specification allows in names and IDs ("Size Limits")."""

NODE_ID_LIMIT = 192
"""Bytes that Kubernetes allows in a CSINode's nodeID."""

SEGMENT_LIMIT = 63
"""Characters that the CSI specification and Kubernetes allow in a topology value."""


def topology_key(driver_name: str) -> str:
    """Return the label under which a node of this driver is known."""
    return f"topology.{driver_name}/node"


BACKENDS = ("directory", "image", "btrfs")
"""Every backend there is, in the order in which one is taken as the default."""
