"""Calls of the CNI daemon's gRPC services by gRPC's own client, which shares no code with ours."""

import contextlib
import pathlib
from collections.abc import Iterator
from typing import Any, TypeVar

import grpc  # type: ignore[import-untyped]  # ships no types
from bitts.rpc import ipam, routes
from bitts.rpc._generated import introspection

T = TypeVar("T")
TIMEOUT = 20.0


class Refused(Exception):  # noqa: N818 - what the daemon did
    """The daemon refused a call."""

    def __init__(self, error: Any) -> None:
        super().__init__(f"{error.code().name}: {error.details()}")


class Caller:
    """Asks a daemon at its introspection socket."""

    def __init__(self, socket: pathlib.Path) -> None:
        # Tests kill daemons: gRPC's own pauses between connections begin at a second.
        pauses = ("initial", "min", "max")
        options = [(f"grpc.{each}_reconnect_backoff_ms", 50) for each in pauses]
        self._channel = grpc.insecure_channel(f"unix://{socket}", options=options)

    def __enter__(self) -> "Caller":
        return self

    def __exit__(self, *_: object) -> None:
        self._channel.close()

    def call(self, method: str, request: Any, reply: type[T]) -> T:
        """Call a method that answers once. Raises Refused."""
        made = self._channel.unary_unary(
            method,
            request_serializer=bytes,
            response_deserializer=reply.parse,  # type: ignore[attr-defined]
        )
        try:
            found: T = made(request, timeout=TIMEOUT, wait_for_ready=True)
        except grpc.RpcError as error:
            raise Refused(error) from None
        return found

    @contextlib.contextmanager
    def stream(self, method: str, request: Any, reply: type[Any]) -> Iterator[Iterator[Any]]:
        """Call a method that answers many times; the call ends with the block."""
        made = self._channel.unary_stream(
            method,
            request_serializer=bytes,
            response_deserializer=reply.parse,
        )
        call = made(request, timeout=TIMEOUT)

        def answers() -> Iterator[Any]:
            try:
                yield from call
            except grpc.RpcError as error:
                raise Refused(error) from None

        try:
            yield answers()
        finally:
            call.cancel()

    def known(self, key: str) -> introspection.GetObjectResponse:
        """Ask what is known of an object."""
        return self.call(
            "/bitts.introspection.v1.Introspection/GetObject",
            introspection.GetObjectRequest(key=key),
            introspection.GetObjectResponse,
        )

    def allocate(self, owner: str, **fields: Any) -> ipam.Allocation:
        """Take an address in ``tnet``."""
        given = {"network": "tnet", "interface": "vip", **fields}
        request = ipam.AllocateRequest(owner=owner, **given)
        return self.call("/bitts.ipam.v1.Ipam/Allocate", request, ipam.Allocation)

    def release(self, owner: str) -> int:
        """Give it back."""
        request = ipam.ReleaseRequest(network="tnet", owner=owner, interface="vip")
        return self.call("/bitts.ipam.v1.Ipam/Release", request, ipam.ReleaseResponse).released

    def allocations(self, network: str = "") -> list[ipam.Allocation]:
        """List allocations."""
        request = ipam.ListRequest(network=network)
        found = self.call("/bitts.ipam.v1.Ipam/List", request, ipam.ListResponse)
        return list(found.allocations)

    def add_route(self, owner: str, **fields: Any) -> routes.Route:
        """Make a route."""
        request = routes.AddRequest(owner=owner, route=routes.Route(**fields))
        return self.call("/bitts.routes.v1.Routes/Add", request, routes.Route)

    def remove_route(self, owner: str, destination: str) -> int:
        """Take it back."""
        request = routes.RemoveRequest(owner=owner, destination=destination)
        return self.call("/bitts.routes.v1.Routes/Remove", request, routes.RemoveResponse).removed

    def routes(self) -> list[routes.Route]:
        """List routes."""
        request = routes.ListRequest()
        return list(self.call("/bitts.routes.v1.Routes/List", request, routes.ListResponse).routes)
