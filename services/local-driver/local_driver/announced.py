"""What the driver says it serves, which is what it serves: capabilities by options. Pure."""

from collections.abc import Iterable

from bitts.csi import v1

from local_driver.options import ServiceOptions

_Plugin = v1.PluginCapabilityServiceType
_Controller = v1.ControllerServiceCapabilityRpcType
_Node = v1.NodeServiceCapabilityRpcType
_Group = v1.GroupControllerServiceCapabilityRpcType
_Expansion = v1.PluginCapabilityVolumeExpansionType

_ALWAYS = (
    _Controller.CREATE_DELETE_VOLUME,
    _Controller.LIST_VOLUMES,
    _Controller.GET_CAPACITY,
    _Controller.GET_VOLUME,
    _Controller.CREATE_DELETE_SNAPSHOT,
    _Controller.LIST_SNAPSHOTS,
    _Controller.GET_SNAPSHOT,
    _Controller.CLONE_VOLUME,
    _Controller.EXPAND_VOLUME,
    _Controller.MODIFY_VOLUME,
    _Controller.SINGLE_NODE_MULTI_WRITER,
)
_ATTACHING = (
    _Controller.PUBLISH_UNPUBLISH_VOLUME,
    _Controller.PUBLISH_READONLY,
    _Controller.LIST_VOLUMES_PUBLISHED_NODES,
)
_NODE_ALWAYS = (
    _Node.STAGE_UNSTAGE_VOLUME,
    _Node.GET_VOLUME_STATS,
    _Node.EXPAND_VOLUME,
    _Node.SINGLE_NODE_MULTI_WRITER,
    _Node.VOLUME_MOUNT_GROUP,
)


def plugin() -> list[v1.PluginCapability]:
    """Return the services beside identity and node, and when volumes may grow.

    Every process says so, whatever its role: it is what all of a plugin's processes do together
    that counts (CSI spec, GetPluginCapabilities).
    """
    services = (
        _Plugin.CONTROLLER_SERVICE,
        _Plugin.VOLUME_ACCESSIBILITY_CONSTRAINTS,
        _Plugin.GROUP_CONTROLLER_SERVICE,
    )
    growing = v1.PluginCapabilityVolumeExpansion(type=_Expansion.ONLINE)
    return [
        *(v1.PluginCapability(service=v1.PluginCapabilityService(type=kind)) for kind in services),
        v1.PluginCapability(volume_expansion=growing),
    ]


def controller(services: ServiceOptions) -> list[v1.ControllerServiceCapability]:
    """Return the controller's RPCs."""
    health = (
        (_Controller.GET_VOLUME_HEALTH, _Controller.LIST_VOLUME_HEALTH)
        if services.has_health_rpcs
        else (_Controller.VOLUME_CONDITION,)
    )
    kinds = (*_ALWAYS, *(_ATTACHING if services.attaches else ()), *health)
    return [
        v1.ControllerServiceCapability(rpc=v1.ControllerServiceCapabilityRpc(type=kind))
        for kind in kinds
    ]


def rpcs(capabilities: Iterable[v1.ControllerServiceCapability]) -> frozenset[str]:
    """Return the names of the RPCs in a list of capabilities."""
    found = (one.rpc.type.name for one in capabilities if one.rpc is not None)
    return frozenset(name for name in found if name)


def node(services: ServiceOptions) -> list[v1.NodeServiceCapability]:
    """Return the node's RPCs."""
    health = (
        (_Node.GET_VOLUME_HEALTH, _Node.GET_STORAGE_HEALTH)
        if services.has_health_rpcs
        else (_Node.VOLUME_CONDITION,)
    )
    return [
        v1.NodeServiceCapability(rpc=v1.NodeServiceCapabilityRpc(type=kind))
        for kind in (*_NODE_ALWAYS, *health)
    ]


def groups() -> list[v1.GroupControllerServiceCapability]:
    """Return the group controller's RPCs."""
    rpc = v1.GroupControllerServiceCapabilityRpc(
        type=_Group.CREATE_DELETE_GET_VOLUME_GROUP_SNAPSHOT
    )
    return [v1.GroupControllerServiceCapability(rpc=rpc)]
