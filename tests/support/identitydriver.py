"""A CSI driver that only says who it is and how it is, as a test wishes, on a real socket."""

import asyncio
import collections
import pathlib
from types import TracebackType
from typing import Self

from bitts.csi import v1
from bitts.rpc.codes import Code, RpcError
from bitts.rpc.server import Server


class IdentityDriver(v1.IdentityBase):
    """Serves at ``path`` while it is entered.

    ``failures`` are the codes that the next calls of a method end with; a Probe waits for
    ``answering``. ``calls`` counts what came in, ``busy`` and ``busiest`` Probes at a time.
    """

    def __init__(self, path: pathlib.Path, name: str = "d.example") -> None:
        self.path = path
        self.name = name
        self.ready: bool | None = None
        self.failures: dict[str, list[Code]] = {"GetPluginInfo": [], "Probe": []}
        self.calls: collections.Counter[str] = collections.Counter()
        self.answering = asyncio.Event()
        self.answering.set()
        self.busy = self.busiest = 0
        self._server = Server([self], str(path))

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

    async def get_plugin_info(self, request: v1.GetPluginInfoRequest) -> v1.GetPluginInfoResponse:
        """Say the name."""
        self._came("GetPluginInfo")
        return v1.GetPluginInfoResponse(name=self.name, vendor_version="1")

    async def probe(self, request: v1.ProbeRequest) -> v1.ProbeResponse:
        """Say ``ready``, once ``answering`` allows."""
        self._came("Probe")
        self.busy += 1
        self.busiest = max(self.busy, self.busiest)
        try:
            await self.answering.wait()
        finally:
            self.busy -= 1
        ready = None if self.ready is None else v1.BoolValue(value=self.ready)
        return v1.ProbeResponse(ready=ready)

    def _came(self, method: str) -> None:
        self.calls[method] += 1
        if self.failures[method]:
            raise RpcError(self.failures[method].pop(0), f"{method} fails as the test wishes")
