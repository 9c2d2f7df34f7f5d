"""The CSI Identity service: who we are, what we serve, whether we work."""

import bitts
from bitts.csi import v1

from local_driver import announced


class Identity(v1.IdentityBase):
    """Answers for a driver of the given name."""

    def __init__(self, driver_name: str) -> None:
        self._driver_name = driver_name

    async def get_plugin_info(self, request: v1.GetPluginInfoRequest) -> v1.GetPluginInfoResponse:
        """Return name and version."""
        del request
        return v1.GetPluginInfoResponse(name=self._driver_name, vendor_version=bitts.__version__)

    async def get_plugin_capabilities(
        self, request: v1.GetPluginCapabilitiesRequest
    ) -> v1.GetPluginCapabilitiesResponse:
        """Return the services beside node and identity."""
        del request
        return v1.GetPluginCapabilitiesResponse(capabilities=announced.plugin())

    async def probe(self, request: v1.ProbeRequest) -> v1.ProbeResponse:
        """Say that we are ready: the socket appears only when we are."""
        del request
        return v1.ProbeResponse(ready=v1.BoolValue(value=True))
