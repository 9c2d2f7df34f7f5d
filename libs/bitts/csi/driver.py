"""The connection to a CSI driver: from "is it there" to stubs that can be called.

The order is upstream's (csi-lib-utils): connect, Probe until ready, name, capabilities. What
the driver can do is read once; when the connection is lost, another driver may answer, so the
default policy is never to reconnect and to let the process restart.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import TypeVar

from bitts.core import logs
from bitts.csi import calllog, v1
from bitts.csi.capabilities import (
    ControllerCapability,
    DriverInfo,
    GroupCapability,
    NodeCapability,
    PluginCapability,
    VolumeExpansion,
)
from bitts.rpc import calls, channel, codes

CONNECT_TIMEOUT = 30.0
"""Seconds for the driver's socket to appear."""

LOST_CONNECTION = "Lost connection to CSI driver, exiting"
"""What sidecars write to the termination log before they exit with 1."""

Metric = Callable[[str, str, str, float], None]
"""Takes the driver's name ("" until it is known), the full method name, the code as Go spells
it, and seconds: the shape of ``bitts.core.metrics.CsiOperations.observe``."""

PROBE_INTERVAL = 1.0
"""Seconds from one Probe to the next while the driver is not ready."""

NameT = TypeVar("NameT", bound=StrEnum)
ReplyT = TypeVar("ReplyT")


class DriverError(Exception):
    """The driver can't be used; the text says why and what to look at.

    ``is_ready``: it was connected and ready, but does not say well who it is and what it can do.
    """

    def __init__(self, message: str, *, is_ready: bool = False) -> None:
        super().__init__(message)
        self.is_ready = is_ready


class Driver:
    """A driver that answered. ``info`` is what it said about itself.

    The stubs' methods take a request and ``timeout`` in seconds, and raise RpcError only.
    """

    def __init__(self, opened: channel.Channel, info: DriverInfo) -> None:
        self.info = info
        self.channel = opened
        self.identity = v1.IdentityStub(opened)
        self.controller = v1.ControllerStub(opened)
        self.group_controller = v1.GroupControllerStub(opened)
        self.snapshot_metadata = v1.SnapshotMetadataStub(opened)
        self.node = v1.NodeStub(opened)

    @classmethod
    async def connect(
        cls,
        address: str,
        *,
        timeout: float,
        metrics: Metric | None = None,
        on_lost: Callable[[str], None] | None = None,
        log: logs.Logger | None = None,
        connect_timeout: float | None = CONNECT_TIMEOUT,
        reconnect: bool = False,
        needs_node: bool = False,
        needs_controller: bool = True,
        needs_groups: bool = False,
        log_limit: int = 0,
    ) -> "Driver":
        """Wait until the driver is connected and ready, then read what it can do.

        ``timeout`` (seconds) is for each start-up call; ``connect_timeout`` for the socket to
        appear, None waits for ever. ``metrics`` is told of each call. ``on_lost`` is told when
        the connection ends by itself, at once and even while idle; with ``reconnect`` later
        calls connect anew, otherwise they fail. ``needs_node`` asks the node service for its
        capabilities too; without ``needs_controller`` it alone is asked, as the kubelet does: a
        node's process may announce a controller that another process serves. ``needs_groups`` asks
        the group controller too, if there is one. ``log_limit`` cuts messages in the call log to
        so many bytes.
        Raises DriverError, and ValueError for an address that is no unix socket.
        """
        log = log or logs.get("csi")
        observers: list[calls.Observer] = [calllog.CallLog(log, log_limit)]
        measured = _Measured(metrics or (lambda driver, method, code, seconds: None))
        observers.append(calls.MetricsObserver(measured))
        opened = channel.Channel(address, observers=observers, on_lost=on_lost, reconnect=reconnect)
        is_ready = False
        try:
            await opened.connect(connect_timeout, report=log.warning)
            await _until_ready(opened, timeout, log)
            is_ready = True
            who = await _introduced(opened, timeout)
            measured.driver_name = who.name
            needs = _Needs(needs_node, needs_controller, needs_groups)
            info = await _interview(opened, timeout, who, needs)
        except codes.RpcError as error:
            await opened.close()
            text = f"CSI driver at {address}: {error.message}"
            raise DriverError(text, is_ready=is_ready) from error
        except BaseException:
            await opened.close()
            raise
        return cls(opened, info)

    async def close(self) -> None:
        """Close the connection; ``on_lost`` is not called."""
        await self.channel.close()


@dataclass(frozen=True, slots=True)
class _Needs:
    """Which services are asked what they can do."""

    node: bool
    controller: bool
    groups: bool


class _Measured:
    """A metric of calls, under the driver's name once that is known."""

    def __init__(self, metric: Metric) -> None:
        self._metric = metric
        self.driver_name = ""

    def __call__(self, method: str, code: str, seconds: float) -> None:
        self._metric(self.driver_name, method, code, seconds)


async def _until_ready(opened: channel.Channel, timeout: float, log: logs.Logger) -> None:
    """Probe each second until the driver is ready, for ever; an absent ``ready`` means yes."""
    identity = v1.IdentityStub(opened)
    loop = asyncio.get_running_loop()
    told = ""
    while True:
        next_probe = loop.time() + PROBE_INTERVAL
        try:
            reply = await identity.probe(v1.ProbeRequest(), timeout=timeout)
        except codes.RpcError as error:
            if error.code is not codes.Code.DEADLINE_EXCEEDED:
                raise codes.RpcError(error.code, f"Probe failed: {error}") from error
            state = "Probe does not answer in time"
        else:
            if reply.ready is None or reply.ready.value:
                return
            state = "The driver is not ready"
        if state != told:
            log.info(state, path=opened.path, timeout=timeout)
            told = state
        await asyncio.sleep(next_probe - loop.time())


async def _introduced(opened: channel.Channel, timeout: float) -> v1.GetPluginInfoResponse:
    """Ask a ready driver who it is."""
    ask = v1.IdentityStub(opened).get_plugin_info
    who = await _asked("GetPluginInfo", ask(v1.GetPluginInfoRequest(), timeout=timeout))
    if not who.name:
        text = "GetPluginInfo returned no name: configure one in the driver"
        raise codes.RpcError(codes.Code.INTERNAL, text)
    return who


async def _interview(
    opened: channel.Channel, timeout: float, who: v1.GetPluginInfoResponse, needs: _Needs
) -> DriverInfo:
    """Ask a driver what it can do."""
    plugin, expansion = await _plugin(opened, timeout)
    has_controller = needs.controller and PluginCapability.CONTROLLER_SERVICE in plugin
    has_groups = needs.groups and PluginCapability.GROUP_CONTROLLER_SERVICE in plugin
    return DriverInfo(
        name=who.name,
        version=who.vendor_version,
        plugin=plugin,
        expansion=expansion,
        controller=await _controller(opened, timeout) if has_controller else frozenset(),
        node=await _node(opened, timeout) if needs.node else frozenset(),
        group_controller=await _group(opened, timeout) if has_groups else frozenset(),
    )


async def _plugin(
    opened: channel.Channel, timeout: float
) -> tuple[frozenset[PluginCapability], frozenset[VolumeExpansion]]:
    ask = v1.IdentityStub(opened).get_plugin_capabilities
    request = v1.GetPluginCapabilitiesRequest()
    found = (await _asked("GetPluginCapabilities", ask(request, timeout=timeout))).capabilities
    services = [one.service.type for one in found if one.service is not None]
    growth = [one.volume_expansion.type for one in found if one.volume_expansion is not None]
    return _known(PluginCapability, services), _known(VolumeExpansion, growth)


async def _controller(opened: channel.Channel, timeout: float) -> frozenset[ControllerCapability]:
    ask = v1.ControllerStub(opened).controller_get_capabilities
    request = v1.ControllerGetCapabilitiesRequest()
    reply = await _asked("ControllerGetCapabilities", ask(request, timeout=timeout))
    return _known(
        ControllerCapability, [one.rpc.type for one in reply.capabilities if one.rpc is not None]
    )


async def _node(opened: channel.Channel, timeout: float) -> frozenset[NodeCapability]:
    ask = v1.NodeStub(opened).node_get_capabilities
    reply = await _asked(
        "NodeGetCapabilities", ask(v1.NodeGetCapabilitiesRequest(), timeout=timeout)
    )
    return _known(
        NodeCapability, [one.rpc.type for one in reply.capabilities if one.rpc is not None]
    )


async def _group(opened: channel.Channel, timeout: float) -> frozenset[GroupCapability]:
    ask = v1.GroupControllerStub(opened).group_controller_get_capabilities
    request = v1.GroupControllerGetCapabilitiesRequest()
    reply = await _asked("GroupControllerGetCapabilities", ask(request, timeout=timeout))
    return _known(
        GroupCapability, [one.rpc.type for one in reply.capabilities if one.rpc is not None]
    )


async def _asked(method: str, call: Awaitable[ReplyT]) -> ReplyT:
    try:
        return await call
    except codes.RpcError as error:
        raise codes.RpcError(error.code, f"{method} failed: {error}") from error


def _known(names: type[NameT], found: Iterable[Enum]) -> frozenset[NameT]:
    """Translate wire values by name; those that this version doesn't know fall out."""
    known = {member.value: member for member in names}
    return frozenset(known[value.name] for value in found if value.name in known)
