"""A CSI driver in memory whose capabilities a test chooses: for what local-driver does not have."""

from types import TracebackType
from typing import Self

from bitts.csi import v1
from bitts.rpc.server import Server

Capability = v1.ControllerServiceCapabilityRpcType
Service = v1.PluginCapabilityServiceType


class _Identity(v1.IdentityBase):
    def __init__(self, name: str) -> None:
        self._name = name

    async def probe(self, request: v1.ProbeRequest) -> v1.ProbeResponse:
        return v1.ProbeResponse()

    async def get_plugin_info(self, request: v1.GetPluginInfoRequest) -> v1.GetPluginInfoResponse:
        return v1.GetPluginInfoResponse(name=self._name, vendor_version="1")

    async def get_plugin_capabilities(
        self, request: v1.GetPluginCapabilitiesRequest
    ) -> v1.GetPluginCapabilitiesResponse:
        service = v1.PluginCapabilityService(type=Service.CONTROLLER_SERVICE)
        return v1.GetPluginCapabilitiesResponse(capabilities=[v1.PluginCapability(service=service)])


class SmallDriver(v1.ControllerBase):
    """Serves at ``path`` under ``name``; use it as an async context manager.

    ``created`` and ``deleted`` hold the names and IDs of the calls, in order; a volume's ID is
    its name.
    """

    def __init__(self, path: str, name: str, *capabilities: Capability) -> None:
        self.name = name
        self.created: list[v1.CreateVolumeRequest] = []
        self.deleted: list[str] = []
        self.asked: list[v1.GetCapacityRequest] = []
        self.available = 1 << 40
        self._capabilities = [Capability.CREATE_DELETE_VOLUME, *capabilities]
        self._server = Server([_Identity(name), self], path)

    async def __aenter__(self) -> Self:
        await self._server.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._server.stop(grace=0.0)

    async def controller_get_capabilities(
        self, request: v1.ControllerGetCapabilitiesRequest
    ) -> v1.ControllerGetCapabilitiesResponse:
        """Answer with the capabilities chosen."""
        found = [
            v1.ControllerServiceCapability(rpc=v1.ControllerServiceCapabilityRpc(type=one))
            for one in self._capabilities
        ]
        return v1.ControllerGetCapabilitiesResponse(capabilities=found)

    async def create_volume(self, request: v1.CreateVolumeRequest) -> v1.CreateVolumeResponse:
        """Make a volume of no substance."""
        self.created.append(request)
        return v1.CreateVolumeResponse(volume=v1.Volume(volume_id=request.name))

    async def delete_volume(self, request: v1.DeleteVolumeRequest) -> v1.DeleteVolumeResponse:
        """Forget a volume."""
        self.deleted.append(request.volume_id)
        return v1.DeleteVolumeResponse()

    async def get_capacity(self, request: v1.GetCapacityRequest) -> v1.GetCapacityResponse:
        """Answer with ``available``."""
        self.asked.append(request)
        return v1.GetCapacityResponse(available_capacity=self.available)
