"""A CSI driver in the test's own process whose answers a test sets, on a real socket.

For what a well-behaved driver never shows: missing names, slow starts, unknown capabilities.
"""

import asyncio

from bitts.csi import v1
from bitts.rpc import codes

NAME = "sample.csi.example"
PluginType = v1.PluginCapabilityServiceType
ControllerType = v1.ControllerServiceCapabilityRpcType
NodeType = v1.NodeServiceCapabilityRpcType
GroupType = v1.GroupControllerServiceCapabilityRpcType
ExpansionType = v1.PluginCapabilityVolumeExpansionType


class Identity(v1.IdentityBase):
    """Answers Probe from ``probes`` one by one, then with ready; an exception is raised."""

    def __init__(self) -> None:
        self.name = NAME
        self.probes: list[bool | codes.RpcError | None] = []
        self.probed = 0
        self.services = [PluginType.CONTROLLER_SERVICE]
        self.expansion = [ExpansionType.ONLINE]
        self.hangs = False

    async def probe(self, request: v1.ProbeRequest) -> v1.ProbeResponse:
        """Say whether the driver is ready."""
        self.probed += 1
        if self.hangs:
            self.hangs = False
            await asyncio.Event().wait()
        answer = self.probes.pop(0) if self.probes else True
        if isinstance(answer, codes.RpcError):
            raise answer
        return v1.ProbeResponse(ready=None if answer is None else v1.BoolValue(value=answer))

    async def get_plugin_info(self, request: v1.GetPluginInfoRequest) -> v1.GetPluginInfoResponse:
        """Tell the name."""
        return v1.GetPluginInfoResponse(name=self.name, vendor_version="1.2.3")

    async def get_plugin_capabilities(
        self, request: v1.GetPluginCapabilitiesRequest
    ) -> v1.GetPluginCapabilitiesResponse:
        """Tell what the driver can do, with one empty and one unknown entry."""
        return v1.GetPluginCapabilitiesResponse(
            capabilities=[
                v1.PluginCapability(),
                v1.PluginCapability(service=v1.PluginCapabilityService(type=PluginType(77))),
                *(
                    v1.PluginCapability(service=v1.PluginCapabilityService(type=one))
                    for one in self.services
                ),
                *(
                    v1.PluginCapability(
                        volume_expansion=v1.PluginCapabilityVolumeExpansion(type=one)
                    )
                    for one in self.expansion
                ),
            ]
        )


class Controller(v1.ControllerBase):
    """Makes volumes that are nothing but their names."""

    def __init__(self) -> None:
        self.volumes: set[str] = set()
        self.gate: asyncio.Event | None = None

    async def controller_get_capabilities(
        self, request: v1.ControllerGetCapabilitiesRequest
    ) -> v1.ControllerGetCapabilitiesResponse:
        """Tell which calls are served."""
        types = [ControllerType.CREATE_DELETE_VOLUME, ControllerType.GET_VOLUME_HEALTH]
        return v1.ControllerGetCapabilitiesResponse(
            capabilities=[
                v1.ControllerServiceCapability(rpc=v1.ControllerServiceCapabilityRpc(type=one))
                for one in types
            ]
        )

    async def create_volume(self, request: v1.CreateVolumeRequest) -> v1.CreateVolumeResponse:
        """Make a volume, after ``gate`` if there is one."""
        if self.gate is not None:
            await self.gate.wait()
        self.volumes.add(request.name)
        return v1.CreateVolumeResponse(volume=v1.Volume(volume_id=request.name))

    async def delete_volume(self, request: v1.DeleteVolumeRequest) -> v1.DeleteVolumeResponse:
        """Delete a volume."""
        self.volumes.discard(request.volume_id)
        return v1.DeleteVolumeResponse()


class Node(v1.NodeBase):
    """Knows its capabilities only."""

    async def node_get_capabilities(
        self, request: v1.NodeGetCapabilitiesRequest
    ) -> v1.NodeGetCapabilitiesResponse:
        """Tell which calls are served."""
        rpc = v1.NodeServiceCapabilityRpc(type=NodeType.STAGE_UNSTAGE_VOLUME)
        return v1.NodeGetCapabilitiesResponse(capabilities=[v1.NodeServiceCapability(rpc=rpc)])


class GroupController(v1.GroupControllerBase):
    """Knows its capabilities only."""

    async def group_controller_get_capabilities(
        self, request: v1.GroupControllerGetCapabilitiesRequest
    ) -> v1.GroupControllerGetCapabilitiesResponse:
        """Tell which calls are served."""
        rpc = v1.GroupControllerServiceCapabilityRpc(
            type=GroupType.CREATE_DELETE_GET_VOLUME_GROUP_SNAPSHOT
        )
        return v1.GroupControllerGetCapabilitiesResponse(
            capabilities=[v1.GroupControllerServiceCapability(rpc=rpc)]
        )
