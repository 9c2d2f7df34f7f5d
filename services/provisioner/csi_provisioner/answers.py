"""What the process answers: metrics and health over HTTP, and its reasons over a unix socket.

The second must not keep it from its work: where its socket has no place, and was not asked for
by flag, there is a warning only.
"""

from collections.abc import Iterable, Iterator

import bitts
from bitts.core.plans import RetryLater, WaitFor
from bitts.core.process import ExitError
from bitts.core.serving import HttpServer
from bitts.kube.leases import LeaderElection
from bitts.rpc import introspection
from bitts.rpc.introspection import Figure, Finding, Role
from bitts.rpc.server import Server

from csi_provisioner import model, names
from csi_provisioner.leading import Leading, Ties
from csi_provisioner.options import FATAL

_BLOCKING = (WaitFor, RetryLater, model.Conclude)
"""Steps after which nothing happens until something changes, or for a while."""


class Answers:
    """The two servers."""

    def __init__(self, ties: Ties, leading: Leading, election: LeaderElection | None) -> None:
        self._ties = ties
        self._leading = leading
        self._election = election
        self._http = _http(ties, leading, election)
        self._introspection: Server | None = None

    async def start(self) -> None:
        """Serve. Raises ExitError naming the flag whose address or socket cannot be had."""
        if self._http is not None:
            await self._listen(self._http)
        chosen = self._ties.options.sidecar.introspection
        self._introspection = await introspection.serve(
            self._sources(), chosen.path, {}, is_required=chosen.is_required
        )

    async def stop(self) -> None:
        """Stop serving."""
        if self._introspection is not None:
            await self._introspection.stop(grace=0.5)
        if self._http is not None:
            await self._http.stop()

    async def _listen(self, http: HttpServer) -> None:
        try:
            await http.start()
        except ExitError as error:
            raise ExitError(FATAL, str(error)) from error

    def _sources(self) -> introspection.Sources:
        return introspection.Sources(
            program=names.PROGRAM,
            version=bitts.__version__,
            ledger=self._leading.ledger,
            queues=self._leading.queues,
            figures=self._figures,
            role=self._role,
            explain=self._explain,
        )

    def _role(self) -> tuple[Role, str]:
        if self._election is None:
            return Role.ALONE, ""
        role = Role.LEADING if self._election.is_leader else Role.WAITING
        return role, self._election.holder

    def _explain(self, key: str) -> Iterator[Finding]:
        for step in self._leading.plan_of(key):
            text = f"{type(step).__name__}: {step.reason}"
            yield Finding(subject=key, text=text, blocks=isinstance(step, _BLOCKING))

    def _figures(self) -> Iterable[Figure]:
        pacing, caches = self._ties.client.pacing.figures(), self._leading.caches
        events, journal = self._ties.recorder.figures(), self._ties.journal
        found = [
            ("pacing", "requests in flight", pacing.in_flight),
            ("pacing", "limit", pacing.limit),
            ("pacing", "waiting", pacing.waiting_user),
            ("pacing", "events waiting", pacing.waiting_late),
            ("pacing", "overloads", pacing.overloads),
            ("events", "emitted", events.emitted),
            ("events", "written", events.written),
            ("events", "failed", events.failed),
            ("events", "waiting", events.waiting),
            ("cache", "claims", len(caches.claims)),
            ("cache", "volumes", len(caches.volumes)),
            ("cache", "classes", len(caches.classes)),
            ("intents", "open", journal.depth),
            ("intents", "commits", journal.figures.commits),
            ("intents", "failures", journal.figures.failures),
            ("intents", "unprotected", journal.figures.unprotected),
        ]
        return [Figure(area=area, name=name, value=float(value)) for area, name, value in found]


def _http(ties: Ties, leading: Leading, election: LeaderElection | None) -> HttpServer | None:
    http = ties.options.sidecar.http
    if not http.endpoint:
        return None
    server = HttpServer(http.endpoint, flag=http.flag)
    server.metrics(http.metrics_path, ties.registry)
    if election is not None and not http.legacy:
        server.leader_election(election.healthy)
    if http.profiling:
        server.dumps(queues=leading.queues, ledger=leading.ledger)
    return server
