"""The daemon's faces beside the shim's socket: gRPC on a unix socket, metrics over HTTP."""

import contextlib
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass

import bitts
from bitts.core import process
from bitts.core.ledger import Ledger
from bitts.rpc import health, introspection, server

from cni_daemon import names
from cni_daemon.engine import Engine
from cni_daemon.ipam.allocating import Allocator
from cni_daemon.ipam.service import IpamService
from cni_daemon.ipam.stores import Stores
from cni_daemon.journal import Journal
from cni_daemon.options import Options
from cni_daemon.records import Entry
from cni_daemon.routekeeping import Keeper
from cni_daemon.routeservice import RouteService
from cni_daemon.tally import Tally


@dataclass(frozen=True, slots=True)
class Inside:
    """What is shown and used from outside."""

    options: Options
    journal: Journal
    stores: Stores
    engine: Engine
    keeper: Keeper
    record: Ledger
    tally: Tally
    leases: Callable[[], Mapping[str, int]]
    intents: Callable[[], int]
    connections: Callable[[], int]


@contextlib.asynccontextmanager
async def served(inside: Inside, grace: float) -> AsyncIterator[None]:
    """Serve until the block ends. Raises ExitError naming the flag."""
    async with contextlib.AsyncExitStack() as stack:
        path = inside.options.introspection_socket
        reached = inside.options.reached
        allocator = Allocator(inside.journal, inside.stores, reached)
        services = [
            introspection.Introspection(_sources(inside)),
            health.Health(),
            IpamService(inside.engine, allocator),
            RouteService(inside.engine, inside.keeper),
        ]
        listener = server.Server(services, path)
        try:
            await listener.start()
        except OSError as error:
            raise process.ExitError(1, f"cannot serve at {path}: {error}") from error
        stack.push_async_callback(listener.stop, grace)
        if inside.options.http.endpoint:
            await _http(inside, stack)
        yield


async def _http(inside: Inside, stack: contextlib.AsyncExitStack) -> None:
    from cni_daemon import exposing  # loads prometheus-client: for those alone who want metrics

    sources = exposing.Sources(
        tally=inside.tally,
        entries=inside.journal.entries,
        records=lambda: inside.journal.records,
        usage=inside.stores.usage,
        intents=inside.intents,
        connections=inside.connections,
        leases=inside.leases,
        strays=lambda: len(inside.engine.strays),
    )
    http = inside.options.http
    listener = exposing.server(http.endpoint, http.metrics_path, sources)
    await listener.start()
    stack.push_async_callback(listener.stop)


def _sources(inside: Inside) -> introspection.Sources:
    def figures() -> Iterable[introspection.Figure]:
        numbers = {
            ("journal", "entries"): len(inside.journal.entries()),
            ("journal", "records"): inside.journal.records,
            ("journal", "strays"): len(inside.engine.strays),
            ("requests", "in flight"): inside.tally.in_flight,
            ("intents", "waiting"): inside.intents(),
            **{("leases", state): count for state, count in inside.leases().items()},
            **{("events", str(event)): count for event, count in inside.tally.events.items()},
        }
        for (area, name), value in numbers.items():
            yield introspection.Figure(area=area, name=name, value=float(value))

    def explain(key: str) -> Iterable[introspection.Finding]:
        for entry in inside.journal.entries():
            if key in (f"{entry.key.network}/{entry.key.container_id}", entry.key.container_id):
                yield introspection.Finding(subject=str(entry.key), text=_described(entry))

    return introspection.Sources(
        program=names.PROGRAM,
        version=bitts.__version__,
        ledger=inside.record,
        figures=figures,
        explain=explain,
    )


def _described(entry: Entry) -> str:
    """Say how an attachment stands and what its removal would do."""
    undo = ", ".join(type(each).__name__ for each in reversed(entry.undo)) or "nothing"
    where = entry.netns or "no namespace"
    return f"{entry.phase} in {where}; its removal does: {undo}"
