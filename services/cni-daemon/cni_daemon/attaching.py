"""Attach and take apart: the order in which things are written and done.

ADD: write ``begin`` → take addresses → look, lay foundations, plan → write ``plan`` with all
undo operations → act → write ``done``. Whatever goes wrong, everything is taken back before
the error is reported; what could not be taken back stays in the journal and is tried again.
"""

import contextlib
import random
import secrets
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from bitts.cni.errors import CniError, Code
from bitts.cni.results import Result
from bitts.core import logs
from bitts.net import namespaces
from bitts.net.errors import NamespaceError, NetlinkError
from bitts.net.links import Link

from cni_daemon import carriers, chain, observing, removing, scene
from cni_daemon.chain import Stage
from cni_daemon.delegates import DelegateError, PluginMissingError
from cni_daemon.dhcp import leases, leasing
from cni_daemon.dhcp.leasing import Leasing, Rehearsal
from cni_daemon.executor import Executor, OperationError
from cni_daemon.faults import Reached
from cni_daemon.ipam import asking, dhcp, registry
from cni_daemon.ipam.asking import Asking
from cni_daemon.ipam.stores import Stores
from cni_daemon.journal import Journal
from cni_daemon.model import Draws, Observed, Place, Step
from cni_daemon.operations import Operation, RunDelegate
from cni_daemon.records import Entry, Phase
from cni_daemon.requests import Request
from cni_daemon.scene import Scene
from cni_daemon.stamping import Stamper

Sift = Callable[[Sequence[Operation]], Sequence[Operation]]


def _everything(foundation: Sequence[Operation]) -> Sequence[Operation]:
    return foundation


class _Draft:
    """What the stages of one ADD add up to while they are planned."""

    def __init__(self, entry: Entry) -> None:
        self.entry = entry
        self.undo: list[Operation] = []
        self.steps: list[Step] = []
        self.carriers: list[str] = []
        self.planned: dict[Place, tuple[Link, ...]] = {}
        self.result: Result | None = None
        self.lease: Mapping[str, object] = {}


class Attacher:
    """Carries out requests on this node. Every public method blocks; call it in a thread."""

    def __init__(
        self, journal: Journal, executor: Executor, stores: Stores, indexes: Iterator[int],
        reached: Reached, leasing: Leasing,
    ) -> None:  # fmt: skip
        self.journal = journal
        self.stores = stores
        self._executor = executor
        self._reached = reached
        self._leasing = leasing
        self._draws = Draws(random.Random(secrets.randbits(128)), indexes)  # noqa: S311 - names
        self._foundations = threading.Lock()
        self._memory = observing.Memory()
        self.stamper = Stamper(journal, executor, stores, self._memory, self._draws, reached)
        self._log = logs.get("attaching")

    def close(self) -> None:
        """Listen no longer to what changes on the host."""
        self._memory.close()

    def attach(self, request: Request) -> Mapping[str, object]:
        """Carry out an ADD and return the result's document.

        Raises CniError, OperationError, DelegateError, NetlinkError, OSError.
        """
        stages = chain.stages(request, self._draws)
        key = chain.key(request)
        with self._entered(request) as where:
            assert where.descriptor is not None
            identity = namespaces.identity(where.descriptor)
            former = self.journal.entry(key)
            if former is not None:
                known = self._again(former, request, identity)
                if known is not None:
                    return known
            entry = Entry(key, Phase.BEGUN, request.nonce, request.invocation.netns, identity)
            draft = _Draft(entry)
            try:
                return self._make(draft, stages, request, where)
            except BaseException:
                self._roll_back(draft, where)
                raise

    @contextlib.contextmanager
    def _entered(self, request: Request) -> Iterator[Scene]:
        path = request.invocation.netns
        try:
            with scene.opened(path) as where:
                assert where.descriptor is not None
                if namespaces.is_own(where.descriptor) and not request.invocation.allows_own_netns:
                    raise CniError(
                        Code.INVALID_NETNS,
                        "plugin's netns and netns from CNI_NETNS should not be the same",
                    )
                yield where
        except NamespaceError as error:
            raise CniError(Code.INTERNAL, f'failed to open netns "{path}": {error}') from None

    def _again(
        self, former: Entry, request: Request, identity: tuple[int, int]
    ) -> Mapping[str, object] | None:
        """Decide what an earlier entry means: the answer, a mistake, or remains to clear."""
        stands = former.phase is Phase.DONE and former.identity == identity
        if stands and former.nonce == request.nonce:
            return dict(former.result)
        if stands:
            key = former.key
            raise CniError(
                Code.INTERNAL,
                f"{key.ifname} of container {key.container_id} is attached to {key.network} "
                "already: a DEL must come first",
            )
        self._log.info("Clearing what an earlier attempt left", attachment=str(former.key))
        problems = self._take_apart(former)
        if problems:
            raise problems[0]
        self.journal.gone(former.key)
        return None

    def _make(
        self, draft: _Draft, stages: tuple[Stage, ...], request: Request, where: Scene
    ) -> Mapping[str, object]:
        for stage in stages:
            self._plan(draft, stage.after(draft.result), request, where)
        document = chain.document(draft.result or Result(), request.config.version)
        self.journal.plan(draft.entry.with_undo(tuple(draft.undo)).with_result(document))
        if draft.lease:
            self.journal.lease(draft.entry.key, draft.lease)
        self._reached("plan written")
        self._executor.perform(draft.steps, where)
        carriers.wait(draft.carriers)
        self.journal.done(draft.entry.key)
        self._reached("done written")
        return document

    def _plan(self, draft: _Draft, stage: Stage, request: Request, where: Scene) -> None:
        if stage.plugin.is_meta and stage.call.previous is None:
            raise CniError(Code.INTERNAL, "must be called as chained plugin")
        rehearsal: Rehearsal | None = None
        if stage.ipam and registry.ALL.get(stage.ipam) is dhcp.IPAM:
            rehearsal = self._rehearsed(draft, stage, where)
            stage = self._leased(draft, stage, where)
        elif stage.ipam:
            stage = self._addressed(draft, stage, request)
        observed = self._founded(stage, where, draft)
        if rehearsal is None:
            plan = stage.plugin.plan(stage.options, stage.call, observed)
        else:
            plan = rehearsal.continued(stage)
        draft.steps += plan.steps
        draft.undo += [step.undo for step in plan.steps if step.undo is not None]
        draft.carriers += plan.carriers
        for place, found in plan.planned.items():
            draft.planned[place] = (*draft.planned.get(place, ()), *found)
        draft.result = plan.result

    def _rehearsed(self, draft: _Draft, stage: Stage, where: Scene) -> Rehearsal | None:
        """Make the link through which its address will come; None where it is there already."""
        if stage.plugin.type == stage.ipam:
            return None
        unaddressed = stage.with_call(stage.call.addressed(leasing.NOBODY))
        observed = self._founded(unaddressed, where, draft, leasing.about_links)
        rehearsal = leasing.rehearse(unaddressed, observed)
        draft.undo += [step.undo for step in rehearsal.steps if step.undo is not None]
        self.journal.plan(draft.entry.with_undo(tuple(draft.undo)))
        self._reached("link planned")
        self._executor.perform(rehearsal.steps, where)
        return rehearsal

    def _leased(self, draft: _Draft, stage: Stage, where: Scene) -> Stage:
        """Ask for a lease; it is given back before the link goes, through which that is said."""
        options = dhcp.parse(stage.call.config, stage.call)
        lease = self._leasing.acquire(where, stage.call.ifname, options)
        draft.undo.append(leasing.release_of(lease, stage.call.ifname))
        draft.lease = lease.document()
        self._reached("lease acquired")
        found = leases.result(lease, options.priority)
        given = asking.as_programs_see_it(found, stage.call.config.version)
        return stage.with_call(stage.call.addressed(given))

    def _addressed(self, draft: _Draft, stage: Stage, request: Request) -> Stage:
        asked = Asking(stage.ipam, stage.call, request.environment)
        undo = asked.undo()
        draft.undo += undo
        self.journal.begin(draft.entry.with_undo(tuple(draft.undo)))
        self._reached("begin written")
        try:
            addressing = asked.allocate(self.stores)
        except CniError:
            del draft.undo[len(draft.undo) - len(undo) :]  # refused: it has given nothing
            raise
        self._reached("addresses allocated")
        return stage.with_call(stage.call.addressed(addressing))

    def _founded(
        self, stage: Stage, where: Scene, draft: _Draft, wanted: Sift = _everything
    ) -> Observed:
        """Look at the machine, having laid what attachments share, as far as it is ``wanted``."""
        look = stage.plugin.looks(stage.options, stage.call).without(draft.planned)
        for attempt in range(4):
            observed = observing.observe(look, where, self._executor.settled, self._memory.known())
            observed = observed.with_planned(draft.planned)
            if not wanted(stage.plugin.foundation(stage.options, stage.call, observed)):
                return observed
            if attempt == 3:
                break
            with self._foundations:
                seen = observing.observe(look, where, self._executor.settled)
                missing = wanted(stage.plugin.foundation(stage.options, stage.call, seen))
                self._executor.lay(missing, where)
        raise CniError(
            Code.TRY_AGAIN_LATER, f"what {stage.plugin.type} lays is changed by somebody else"
        )

    def _roll_back(self, draft: _Draft, where: Scene) -> None:
        problems = self._executor.undo(draft.undo[::-1], where)
        for problem in problems:
            self._log.error("Cannot take back", attachment=str(draft.entry.key), err=problem)
        if not problems and self.journal.entry(draft.entry.key) is not None:
            self.journal.gone(draft.entry.key)

    def detach(self, entry: Entry, path: str = "") -> None:
        """Take an entry apart and forget it. Raises OperationError, and keeps it, on a problem.

        Programs are looked for in the folders of ``path`` too.
        """
        problems = self._left_by(entry, path)
        if problems:
            raise problems[0]
        self.journal.gone(entry.key)

    def give_up(self, entry: Entry, path: str) -> list[OperationError]:
        """Take an entry apart for good: return what a program that is gone would have released.

        Raises OperationError, and keeps the entry, on any other problem.
        """
        problems = self._left_by(entry, path)
        lost = [each for each in problems if isinstance(each.cause, PluginMissingError)]
        for each in problems:
            if each not in lost:
                raise each
        self.journal.gone(entry.key)
        return lost

    def _left_by(self, entry: Entry, path: str) -> list[OperationError]:
        if entry.phase is not Phase.LEAVING:
            self.journal.leave(entry.key)
        if path and any(isinstance(each, RunDelegate) for each in entry.undo):
            entry = replace(entry, undo=asking.searched_for(entry.undo, path))
        return self._take_apart(entry)

    def _take_apart(self, entry: Entry) -> list[OperationError]:
        """Carry out all undo operations of an entry; nothing is written to the journal."""
        todo = entry.undo[::-1]
        if not todo:
            return []
        with contextlib.ExitStack() as stack:
            try:
                opening = scene.opened(entry.netns, identity=entry.identity)
                where = stack.enter_context(opening)
            except scene.GONE:  # and what was in it too
                where = Scene()
            except NamespaceError as error:  # it may well be there: try again later
                return [OperationError(todo[0], error)]
            return self._executor.undo(todo, where)

    def remove_unknown(self, request: Request) -> None:
        """Carry out a DEL of something that the journal does not know. Raises CniError and such."""
        removing.remove(request, self._draws, self._executor, self.journal.entries)

    def check(self, request: Request) -> None:
        """Carry out a CHECK. Raises CniError, DelegateError, NetlinkError."""
        for stage in chain.stages(request, self._draws):
            if stage.ipam:
                Asking(stage.ipam, stage.call, request.environment).check(self.stores)
            look = stage.plugin.looks(stage.options, stage.call)
            with self._entered(request) as where:
                observed = observing.observe(look, where, self._executor.settled)
            stage.plugin.check(stage.options, stage.call, observed)

    def asking(self, request: Request) -> list[Asking]:
        """Return the IPAM plugins behind a request (for GC and STATUS). Raises CniError."""
        return [
            Asking(stage.ipam, stage.call, request.environment)
            for stage in chain.stages_to_ask(request, self._draws)
            if stage.ipam
        ]


FAILURES = (CniError, OperationError, DelegateError, NamespaceError, NetlinkError, OSError)
