"""Asking a running service what it works on, what it decided and why (design, section 2).

The server reads the process's ledger and what a service hands in as functions; it changes
nothing. Functions are called on the event loop at each question, so they must be quick.
"""

import contextlib
import os
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from bitts.core import ledger, logs, workqueue
from bitts.core.process import ExitError
from bitts.rpc import channel, codes, health, server
from bitts.rpc._generated import introspection as wire

Decision = wire.Decision
Figure = wire.Figure
Finding = wire.Finding
Object = wire.Object
Phase = wire.ObjectPhase
ProcessState = wire.Process
Role = wire.ProcessRole

_PHASES = {
    ledger.Phase.WORKING: Phase.WORKING,
    ledger.Phase.WAITING: Phase.WAITING,
    ledger.Phase.FINISHED: Phase.FINISHED,
}
_DEFAULT_LIMIT = 100


@dataclass(frozen=True, slots=True)
class Sources:
    """Where the answers come from. What a service doesn't have, it leaves out.

    ``figures`` are numbers by area, for instance pacing and caches. ``role`` returns what this
    replica does and who leads. ``explain`` says what the service sees of a key right now.
    """

    program: str
    version: str
    ledger: ledger.Ledger
    queues: Sequence[workqueue.WorkQueue] = ()
    figures: Callable[[], Iterable[wire.Figure]] = lambda: ()
    role: Callable[[], tuple[wire.ProcessRole, str]] = lambda: (Role.ALONE, "")
    explain: Callable[[str], Iterable[wire.Finding]] = lambda key: ()
    started_at: float = field(default_factory=time.time)


class Introspection(wire.IntrospectionBase):
    """The service; give it to a ``Server`` beside ``Health``."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources

    async def get_process(self, request: wire.GetProcessRequest) -> wire.Process:
        """Describe the process, its queues and figures."""
        role, leader = self._sources.role()
        return wire.Process(
            program=self._sources.program,
            version=self._sources.version,
            process_id=os.getpid(),
            started_at=self._sources.started_at,
            role=role,
            leader=leader,
            queues=[_queue(queue) for queue in self._sources.queues],
            figures=list(self._sources.figures()),
            loops=_loops(self._sources.ledger.snapshot()),
        )

    async def list_objects(self, request: wire.ListObjectsRequest) -> wire.ListObjectsResponse:
        """List objects in work, waiting or finished."""
        found = [one for one in self._sources.ledger.snapshot() if _matches(one, request)]
        found.sort(key=lambda entry: entry.since)
        limit = request.limit if request.limit > 0 else _DEFAULT_LIMIT
        objects = [_object(entry) for entry in found[:limit]]
        return wire.ListObjectsResponse(objects=objects, matched=len(found))

    async def get_object(self, request: wire.GetObjectRequest) -> wire.GetObjectResponse:
        """Tell all about one key; NOT_FOUND if nobody here has seen it."""
        found = [one for one in self._sources.ledger.snapshot() if one.key == request.key]
        findings = list(self._sources.explain(request.key))
        if not found and not findings:
            text = f"{self._sources.program} has not worked on {request.key!r} lately"
            raise codes.RpcError(codes.Code.NOT_FOUND, text)
        objects = [_object(entry) for entry in found]
        return wire.GetObjectResponse(objects=objects, findings=findings)

    async def watch_decisions(
        self, request: wire.WatchDecisionsRequest
    ) -> AsyncIterator[wire.Decision]:
        """Stream decisions from now on."""
        told = 0
        with self._sources.ledger.subscribe() as decisions:
            async for made in decisions:
                if request.loop not in ("", made.loop) or request.key not in made.key:
                    continue
                dropped, told = decisions.dropped - told, decisions.dropped
                yield wire.Decision(
                    sequence=made.sequence,
                    time=made.time,
                    loop=made.loop,
                    key=made.key,
                    decision=made.decision,
                    reason=made.reason,
                    error=made.error,
                    dropped=dropped,
                )


async def serve(
    sources: Sources,
    path: str,
    checks: Mapping[str, Callable[[], bool]],
    *,
    is_required: bool,
) -> server.Server:
    """Serve introspection and gRPC health (``checks``) at ``path``; the caller stops the server.

    A folder that takes no socket must not keep a service from its work: there is a warning
    only, unless ``is_required``; then ExitError(1) is raised.
    """
    made = server.Server([Introspection(sources), health.Health(checks)], path)
    try:
        await made.start()
    except (OSError, ValueError) as error:
        if is_required:
            reason = error.strerror if isinstance(error, OSError) else error
            raise ExitError(1, f"--introspection-socket: {reason}") from error
        hint = "set --introspection-socket to a path that can be written"
        logs.get("introspection").warning("Introspection is off", err=error, path=path, hint=hint)
    return made


class Client:
    """Asks one service. Its methods raise RpcError."""

    def __init__(self, stub: wire.IntrospectionStub) -> None:
        self._stub = stub

    async def process(self, *, timeout: float = 5.0) -> wire.Process:
        """Return the process with its queues and figures."""
        return await self._stub.get_process(wire.GetProcessRequest(), timeout=timeout)

    async def objects(
        self,
        *,
        loop: str = "",
        key: str = "",
        phases: Sequence[wire.ObjectPhase] = (),
        failing: bool = False,
        limit: int = _DEFAULT_LIMIT,
        timeout: float = 5.0,
    ) -> wire.ListObjectsResponse:
        """Return objects, those longest in their phase first; ``key`` may be a part of it."""
        request = wire.ListObjectsRequest(
            loop=loop, key=key, phases=list(phases), failing=failing, limit=limit
        )
        return await self._stub.list_objects(request, timeout=timeout)

    async def object(self, key: str, *, timeout: float = 5.0) -> wire.GetObjectResponse:
        """Return all about one key."""
        return await self._stub.get_object(wire.GetObjectRequest(key=key), timeout=timeout)

    def decisions(
        self, *, loop: str = "", key: str = "", timeout: float | None = None
    ) -> AsyncGenerator[wire.Decision, None]:
        """Iterate over decisions as they are made, for ever or for ``timeout`` seconds."""
        request = wire.WatchDecisionsRequest(loop=loop, key=key)
        return self._stub.watch_decisions(request, timeout=timeout)


@contextlib.asynccontextmanager
async def connect(path: str, *, timeout: float = 5.0) -> AsyncIterator[Client]:
    """Connect to a service's introspection socket; raises RpcError if nobody answers in time."""
    opened = channel.Channel(path)
    try:
        await opened.connect(timeout)
        yield Client(wire.IntrospectionStub(opened))
    finally:
        await opened.close()


def _queue(queue: workqueue.WorkQueue) -> wire.Queue:
    return wire.Queue(
        name=queue.name,
        ready=queue.depth,
        delayed=queue.delayed,
        working=queue.processing,
        oldest_age=queue.oldest_wait,
    )


def _loops(entries: Iterable[ledger.Entry]) -> list[wire.LoopSummary]:
    loops: dict[str, wire.LoopSummary] = {}
    for entry in entries:
        loop = loops.setdefault(entry.loop, wire.LoopSummary(loop=entry.loop))
        loop.working += entry.phase is ledger.Phase.WORKING
        loop.waiting += entry.phase is ledger.Phase.WAITING
        loop.finished += entry.phase is ledger.Phase.FINISHED
        loop.failing += entry.failures > 0
    return [loops[name] for name in sorted(loops)]


def _matches(entry: ledger.Entry, request: wire.ListObjectsRequest) -> bool:
    return (
        request.loop in ("", entry.loop)
        and request.key in entry.key
        and (not request.phases or _PHASES[entry.phase] in request.phases)
        and (not request.failing or entry.failures > 0)
    )


def _object(entry: ledger.Entry) -> wire.Object:
    return wire.Object(
        loop=entry.loop,
        key=entry.key,
        phase=_PHASES[entry.phase],
        since=entry.since,
        decision=entry.decision,
        reason=entry.reason,
        decided_at=entry.decided_at,
        error=entry.error,
        failures=entry.failures,
        retry_at=entry.retry_at or 0.0,
    )
