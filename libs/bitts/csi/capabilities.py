"""What a driver said it can do, as plain values for decisions. Names are those of the spec.

Pure and light: nothing here loads messages or connections.
"""

from dataclasses import dataclass
from enum import StrEnum


class PluginCapability(StrEnum):
    """Services and rules of the driver as a whole (CSI spec, GetPluginCapabilities)."""

    CONTROLLER_SERVICE = "CONTROLLER_SERVICE"
    VOLUME_ACCESSIBILITY_CONSTRAINTS = "VOLUME_ACCESSIBILITY_CONSTRAINTS"
    GROUP_CONTROLLER_SERVICE = "GROUP_CONTROLLER_SERVICE"
    SNAPSHOT_METADATA_SERVICE = "SNAPSHOT_METADATA_SERVICE"
    SNAPSHOT_ACCESSIBILITY_CONSTRAINTS = "SNAPSHOT_ACCESSIBILITY_CONSTRAINTS"


class VolumeExpansion(StrEnum):
    """When volumes may grow (CSI spec, GetPluginCapabilities)."""

    ONLINE = "ONLINE"
    OFFLINE = "OFFLINE"


class ControllerCapability(StrEnum):
    """Calls of the controller service (CSI spec, ControllerGetCapabilities)."""

    CREATE_DELETE_VOLUME = "CREATE_DELETE_VOLUME"
    PUBLISH_UNPUBLISH_VOLUME = "PUBLISH_UNPUBLISH_VOLUME"
    LIST_VOLUMES = "LIST_VOLUMES"
    GET_CAPACITY = "GET_CAPACITY"
    CREATE_DELETE_SNAPSHOT = "CREATE_DELETE_SNAPSHOT"
    LIST_SNAPSHOTS = "LIST_SNAPSHOTS"
    CLONE_VOLUME = "CLONE_VOLUME"
    PUBLISH_READONLY = "PUBLISH_READONLY"
    EXPAND_VOLUME = "EXPAND_VOLUME"
    LIST_VOLUMES_PUBLISHED_NODES = "LIST_VOLUMES_PUBLISHED_NODES"
    VOLUME_CONDITION = "VOLUME_CONDITION"
    GET_VOLUME = "GET_VOLUME"
    SINGLE_NODE_MULTI_WRITER = "SINGLE_NODE_MULTI_WRITER"
    MODIFY_VOLUME = "MODIFY_VOLUME"
    GET_SNAPSHOT = "GET_SNAPSHOT"
    GET_VOLUME_HEALTH = "GET_VOLUME_HEALTH"
    LIST_VOLUME_HEALTH = "LIST_VOLUME_HEALTH"


class NodeCapability(StrEnum):
    """Calls of the node service (CSI spec, NodeGetCapabilities)."""

    STAGE_UNSTAGE_VOLUME = "STAGE_UNSTAGE_VOLUME"
    GET_VOLUME_STATS = "GET_VOLUME_STATS"
    EXPAND_VOLUME = "EXPAND_VOLUME"
    VOLUME_CONDITION = "VOLUME_CONDITION"
    SINGLE_NODE_MULTI_WRITER = "SINGLE_NODE_MULTI_WRITER"
    VOLUME_MOUNT_GROUP = "VOLUME_MOUNT_GROUP"
    GET_VOLUME_HEALTH = "GET_VOLUME_HEALTH"
    GET_STORAGE_HEALTH = "GET_STORAGE_HEALTH"


class GroupCapability(StrEnum):
    """Calls of the group controller service (CSI spec, GroupControllerGetCapabilities)."""

    CREATE_DELETE_GET_VOLUME_GROUP_SNAPSHOT = "CREATE_DELETE_GET_VOLUME_GROUP_SNAPSHOT"


@dataclass(frozen=True, slots=True)
class DriverInfo:
    """A driver's name, version and abilities, as read once at the start.

    A service that wasn't asked for its capabilities, or that the driver lacks, has none.
    Abilities that this version doesn't know are left out.
    """

    name: str
    version: str = ""
    plugin: frozenset[PluginCapability] = frozenset()
    expansion: frozenset[VolumeExpansion] = frozenset()
    controller: frozenset[ControllerCapability] = frozenset()
    node: frozenset[NodeCapability] = frozenset()
    group_controller: frozenset[GroupCapability] = frozenset()
