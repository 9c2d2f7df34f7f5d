"""``bitts.routes.v1`` on the introspection socket: add, remove, list, watch."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Iterator, Mapping

from bitts.net.errors import NetlinkError
from bitts.net.routemonitor import RouteMonitor
from bitts.net.routes import Route
from bitts.rpc import codes
from bitts.rpc import routes as wire

from cni_daemon import routekeeping
from cni_daemon.engine import Engine
from cni_daemon.executor import OperationError
from cni_daemon.routekeeping import Keeper, RouteError, Wish

PAUSE = 0.1
"""Seconds between two looks at the routes for one reader, however much changes."""

INTERVAL = 10.0
"""Seconds after which a reader's routes are looked at again without any news."""


class RouteService(wire.RoutesBase):
    """Answers from the kernel's tables, which are the truth; the journal only has wishes."""

    def __init__(self, engine: Engine, keeper: Keeper) -> None:
        self._engine = engine
        self._keeper = keeper

    async def add(self, request: wire.AddRequest) -> wire.Route:
        """Make a route and keep it."""
        if request.route is None:
            raise codes.RpcError(codes.Code.INVALID_ARGUMENT, "route is missing")
        given = request.route
        wish = Wish(
            request.owner, given.destination, given.gateway, given.device, given.table,
            given.metric, given.mtu,
        )  # fmt: skip
        try:
            key = wish.checked().key
            async with self._engine.reserved(key.network, key.container_id, key.ifname):
                await asyncio.to_thread(self._keeper.add, wish)
        except RouteError as error:
            raise codes.RpcError(codes.Code.INVALID_ARGUMENT, str(error)) from None
        except OperationError as error:
            raise codes.RpcError(codes.Code.FAILED_PRECONDITION, str(error)) from None
        except OSError as error:
            raise codes.RpcError(codes.Code.UNAVAILABLE, f"cannot write: {error}") from None
        return given

    async def remove(self, request: wire.RemoveRequest) -> wire.RemoveResponse:
        """Take a route back."""
        wish = Wish(request.owner, request.destination, table=request.table)
        try:
            entry = self._engine.attacher.journal.entry(wish.key)
        except RouteError as error:
            raise codes.RpcError(codes.Code.INVALID_ARGUMENT, str(error)) from None
        if entry is None:
            return wire.RemoveResponse(removed=0)
        try:
            done = await self._engine.undisturbed(entry, self._engine.unwind)
        except (OperationError, OSError) as error:
            raise codes.RpcError(codes.Code.UNAVAILABLE, f"cannot remove: {error}") from None
        return wire.RemoveResponse(removed=int(done))

    async def list(self, request: wire.ListRequest) -> wire.ListResponse:
        """List the routes that are there."""
        return wire.ListResponse(routes=list((await _seen()).values()))

    async def watch(self, request: wire.WatchRequest) -> AsyncIterator[wire.Event]:
        """Tell what there is, then how that changes."""
        monitor = RouteMonitor()
        revision = 0
        told: dict[Route, wire.Route] = {}
        try:
            while True:
                seen = await _seen()
                for event in [*_changes(told, seen), *([] if revision else [_SYNCED])]:
                    revision += 1
                    yield wire.Event(kind=event.kind, route=event.route, revision=revision)
                told = seen
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(INTERVAL):
                        await monitor.wait()
                await asyncio.sleep(PAUSE)
        finally:
            monitor.close()


_SYNCED = wire.Event(kind=wire.EventKind.SYNCED)


def _changes(
    told: Mapping[Route, wire.Route], seen: Mapping[Route, wire.Route]
) -> Iterator[wire.Event]:
    """Say how one look differs from the one before: what is gone comes first."""
    for route, described in told.items():
        if route not in seen:
            yield wire.Event(kind=wire.EventKind.GONE, route=described)
    for route, described in seen.items():
        if route not in told:
            yield wire.Event(kind=wire.EventKind.PRESENT, route=described)


async def _seen() -> dict[Route, wire.Route]:
    try:
        return await asyncio.to_thread(_look)
    except (NetlinkError, OSError) as error:
        raise codes.RpcError(codes.Code.UNAVAILABLE, f"cannot list routes: {error}") from None


def _look() -> dict[Route, wire.Route]:
    return {each: _described(each) for each in routekeeping.held()}


def _described(route: Route) -> wire.Route:
    device = ""
    if route.index:
        with contextlib.suppress(OSError):  # it went meanwhile, and its routes with it
            device = socket.if_indextoname(route.index)
    return wire.Route(
        destination=str(route.destination),
        gateway=str(route.gateway or ""),
        device=device,
        table=route.table,
        metric=route.priority,
        mtu=route.mtu,
    )
