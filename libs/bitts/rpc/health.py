"""The gRPC health service, as Kubernetes' gRPC probes and grpc_health_probe ask it."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping

from bitts.rpc import codes
from bitts.rpc._generated import health as wire

Status = wire.HealthCheckResponseServingStatus

POLL_INTERVAL = 1.0
"""Seconds between two looks of a watch."""


class Health(wire.HealthBase):
    """Says whether the process, or one of its services, can serve.

    ``checks`` maps a service's full name to a function that says so now; the empty name stands
    for the process, and is always there (serving, unless given). Functions must not block.
    """

    def __init__(self, checks: Mapping[str, Callable[[], bool]] | None = None) -> None:
        self._checks = {"": lambda: True, **(checks or {})}

    async def check(self, request: wire.HealthCheckRequest) -> wire.HealthCheckResponse:
        """Answer once; NOT_FOUND for a service that isn't there."""
        if request.service not in self._checks:
            text = f"no service {request.service!r} is served here"
            raise codes.RpcError(codes.Code.NOT_FOUND, text)
        return wire.HealthCheckResponse(status=self._status(request.service))

    async def watch(
        self, request: wire.HealthCheckRequest
    ) -> AsyncIterator[wire.HealthCheckResponse]:
        """Answer now and at each change, seen within a second."""
        told = None
        while True:
            status = self._status(request.service)
            if status is not told:
                yield wire.HealthCheckResponse(status=status)
                told = status
            await asyncio.sleep(POLL_INTERVAL)

    def _status(self, service: str) -> wire.HealthCheckResponseServingStatus:
        check = self._checks.get(service)
        if check is None:
            return Status.SERVICE_UNKNOWN
        return Status.SERVING if check() else Status.NOT_SERVING
