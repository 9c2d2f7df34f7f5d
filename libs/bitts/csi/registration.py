"""How a driver makes itself known to the kubelet, from both sides.

The kubelet watches a folder for sockets, asks each who is behind it and says what became of the
registration (kubelet's plugin watcher). It ignores names that begin with a dot, so the server
binds under such a name and renames: the kubelet sees one event, for a socket that answers.
A stale socket of a dead process is replaced the same way, which spares the kubelet's
back-off of up to two minutes.
"""

import contextlib
import pathlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

from bitts.core import logs
from bitts.csi._generated import pluginregistration as wire
from bitts.rpc import channel, server

TYPE = "CSIPlugin"
VERSIONS = ("1.0.0",)
GET_INFO_TIMEOUT = 1.0
"""Seconds that the kubelet gives GetInfo."""
NOTIFY_TIMEOUT = 5.0
"""Seconds that the kubelet gives NotifyRegistrationStatus."""
CONNECT_TIMEOUT = 10.0
"""Seconds that the kubelet gives the socket to accept a connection."""

PluginInfo = wire.PluginInfo
RegistrationStatus = wire.RegistrationStatus

_log = logs.get("registration")


class Registration(wire.RegistrationBase):
    """Answers the kubelet for one driver.

    ``endpoint`` is the driver's socket as the kubelet sees it on the host. ``status`` is the
    kubelet's last word: None before there was one. ``on_status`` is told of each word. ``mode``
    are the socket's permission bits.
    """

    def __init__(
        self,
        driver_name: str,
        endpoint: str,
        versions: Sequence[str] = VERSIONS,
        *,
        on_status: Callable[[RegistrationStatus], Awaitable[None]] | None = None,
        mode: int = 0o600,
    ) -> None:
        self.driver_name = driver_name
        self.status: RegistrationStatus | None = None
        self._reply = wire.PluginInfo(
            type=TYPE, name=driver_name, endpoint=endpoint, supported_versions=list(versions)
        )
        self._on_status = on_status
        self._mode = mode
        self._server: server.Server | None = None

    async def serve(self, directory: str) -> str:
        """Offer the registration in the kubelet's ``plugins_registry``; return the socket's path.

        Raises OSError (folder missing, another live process registers the same driver) and
        ValueError (path too long).
        """
        path = socket_path(directory, self.driver_name)
        made = server.Server([self], path, mode=self._mode)
        try:
            await made.start()
        except BaseException:
            await made.stop(0.0)
            raise
        self._server = made
        return path

    async def is_in_place(self) -> bool:
        """Whether the kubelet can still find the socket: it may have been removed or replaced."""
        return self._server is not None and await self._server.is_in_place()

    async def stop(self, grace: float = 1.0) -> None:
        """Take the socket away, upon which the kubelet forgets the driver."""
        if self._server is not None:
            await self._server.stop(grace)
            self._server = None

    async def get_info(self, request: wire.InfoRequest) -> PluginInfo:
        """Say who the driver is."""
        return self._reply

    async def notify_registration_status(
        self, request: wire.RegistrationStatus
    ) -> wire.RegistrationStatusResponse:
        """Take the kubelet's word."""
        self.status = request
        if request.plugin_registered:
            _log.info("The kubelet registered the driver", driver=self.driver_name)
        else:
            _log.error("The kubelet refused the driver", driver=self.driver_name, err=request.error)
        if self._on_status is not None:
            await self._on_status(request)
        return wire.RegistrationStatusResponse()


def socket_path(directory: str, driver_name: str) -> str:
    """Return where a driver's registration is offered."""
    return str(pathlib.Path(directory) / f"{driver_name}-reg.sock")


class Inquiry:
    """Asks the plugin at ``path`` who it is, again and again over one connection."""

    def __init__(self, path: str) -> None:
        self._channel = channel.Channel(path)

    async def get_info(self, *, timeout: float = GET_INFO_TIMEOUT) -> PluginInfo:
        """Ask, within ``timeout`` seconds; raises RpcError."""
        stub = wire.RegistrationStub(self._channel)
        return await stub.get_info(wire.InfoRequest(), timeout=timeout)

    async def close(self) -> None:
        """Close the connection."""
        await self._channel.close()


async def get_info(path: str) -> PluginInfo:
    """Ask the plugin at ``path`` who it is, as the kubelet does; raises RpcError."""
    async with _plugin(path) as stub:
        return await stub.get_info(wire.InfoRequest(), timeout=GET_INFO_TIMEOUT)


async def notify(path: str, registered: bool, error: str = "") -> None:  # noqa: FBT001  # the protocol's own pair
    """Tell a plugin what became of its registration, as the kubelet does; raises RpcError."""
    status = wire.RegistrationStatus(plugin_registered=registered, error=error)
    async with _plugin(path) as stub:
        await stub.notify_registration_status(status, timeout=NOTIFY_TIMEOUT)


@contextlib.asynccontextmanager
async def _plugin(path: str) -> AsyncIterator[wire.RegistrationStub]:
    opened = channel.Channel(path)
    try:
        await opened.connect(CONNECT_TIMEOUT)
        yield wire.RegistrationStub(opened)
    finally:
        await opened.close()
