"""What all roles do to be asked: services with log and faults around them, at a place."""

import contextlib
from collections.abc import AsyncIterator, Sequence

from bitts.core import process
from bitts.csi import redact, v1
from bitts.rpc import listeners, server, services

from local_driver import dispatch, faultrules
from local_driver.options import Options

Place = str | listeners.Listener
"""A unix socket's path, or another listener."""


def rules(options: Options) -> tuple[faultrules.FaultSet | None, list[str]]:
    """Return the faults that are wanted, None for none at all, and the methods they may name.

    Raises ExitError that quotes the rule.
    """
    bases = [v1.IdentityBase(), v1.ControllerBase(), v1.GroupControllerBase(), v1.NodeBase()]
    methods = [dispatch.short_name(method.name) for one in bases for method in one.rpc_methods()]
    if not options.faults.rules and not options.faults.socket:
        return None, methods
    try:
        given = [faultrules.parse(text, methods) for text in options.faults.rules]
    except ValueError as error:
        raise process.ExitError(1, f"--fault {error}") from error
    return faultrules.FaultSet(given), methods


@contextlib.asynccontextmanager
async def at(
    place: Place,
    served: Sequence[services.Service],
    faults: faultrules.FaultSet | None,
    grace: float,
) -> AsyncIterator[None]:
    """Serve at a place; at the end, calls in flight get ``grace`` seconds. Raises ExitError."""
    wrapped = [dispatch.Dispatched(service, faults) for service in served]
    listener = server.Server(wrapped, place, scrub=redact.scrub)
    try:
        await listener.start()
    except (OSError, ValueError) as error:
        flag = "--endpoint" if isinstance(place, str) else "--listen"
        raise process.ExitError(1, f"{flag}={listener.socket_path}: {error}") from error
    try:
        yield
    finally:
        await listener.stop(grace)
