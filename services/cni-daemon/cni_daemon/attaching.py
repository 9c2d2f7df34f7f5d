"""Attach and take apart, in a worker thread: the order in which things are written and done.

ADD: write ``begin`` → take addresses → look, lay foundations, plan → write ``plan`` with all
undo operations → act → write ``done``. Whatever goes wrong, everything is taken back before
the error is reported; what could not be taken back stays in the journal and is tried again.
"""

import random
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from bitts.cni import conversion, results
from bitts.cni.conversion import ConversionError
from bitts.cni.errors import CniError, Code
from bitts.cni.results import Result
from bitts.core import logs
from bitts.net import namespaces
from bitts.net.errors import NamespaceError, NamespaceGone
from bitts.net.links import Link

from cni_daemon import chain, observing, scene
from cni_daemon.chain import Stage
from cni_daemon.delegates import DelegateError
from cni_daemon.executor import Executor, OperationError
from cni_daemon.faults import Reached
from cni_daemon.ipam.asking import Asking
from cni_daemon.ipam.stores import Stores
from cni_daemon.journal import Journal
from cni_daemon.model import Draws, Observed, Place, Step
from cni_daemon.operations import Operation
from cni_daemon.records import Entry, Phase
from cni_daemon.requests import Request
from cni_daemon.scene import Scene

_VERSION = "1.1.0"


@dataclass(frozen=True, slots=True)
class Attached:
    """An attachment that stands. ``carriers`` are host links that must come up."""

    entry: Entry
    document: Mapping[str, object]
    carriers: tuple[int, ...] = ()


class _Draft:
    """What the stages of one ADD add up to while they are planned."""

    def __init__(self, entry: Entry) -> None:
        self.entry = entry
        self.undo: list[Operation] = []
        self.steps: list[Step] = []
        self.carriers: list[int] = []
        self.planned: dict[Place, tuple[Link, ...]] = {}
        self.result: Result | None = None


class Attacher:
    """Carries out requests on this node. Every public method blocks; call it in a thread."""

    def __init__(
        self, journal: Journal, executor: Executor, stores: Stores, indexes: Iterator[int],
        reached: Reached,
    ) -> None:  # fmt: skip
        self.journal = journal
        self.stores = stores
        self._executor = executor
        self._reached = reached
        self._draws = Draws(random.SystemRandom(), indexes)
        self._foundations = threading.Lock()
        self._log = logs.get("attaching")

    def attach(self, request: Request) -> Attached:
        """Carry out an ADD. Raises CniError, OperationError, DelegateError, OSError."""
        stages = chain.stages(request, self._draws)
        key = chain.key(request)
        with self._entered(request) as where:
            assert where.descriptor is not None
            identity = namespaces.identity(where.descriptor)
            former = self.journal.entry(key)
            if former is not None:
                attached = self._again(former, request, identity)
                if attached is not None:
                    return attached
            entry = Entry(key, Phase.BEGUN, request.nonce, request.invocation.netns, identity)
            draft = _Draft(entry)
            try:
                document = self._make(draft, stages, request, where)
            except BaseException:
                self._roll_back(draft, where)
                raise
            return Attached(entry.with_undo(tuple(draft.undo)), document, tuple(draft.carriers))

    @contextmanager
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

    def _again(self, former: Entry, request: Request, identity: tuple[int, int]) -> Attached | None:
        """Decide what an earlier entry means: the answer, a mistake, or remains to clear."""
        stands = former.phase is Phase.DONE and former.identity == identity
        if stands and former.nonce == request.nonce:
            return Attached(former, former.result)
        if stands:
            key = former.key
            raise CniError(
                Code.INTERNAL,
                f"{key.ifname} of container {key.container_id} is attached to {key.network} "
                "already: a DEL must come first",
            )
        self._log.info("Clearing what an earlier attempt left", attachment=str(former.key))
        problems = self.take_apart(former)
        if problems:
            raise problems[0]
        self.journal.gone(former.key)
        return None

    def _make(
        self, draft: _Draft, stages: tuple[Stage, ...], request: Request, where: Scene
    ) -> Mapping[str, object]:
        for stage in stages:
            self._plan(draft, stage.after(draft.result), request, where)
        document = _document(draft.result or Result(), request.config.version)
        self.journal.plan(draft.entry.with_undo(tuple(draft.undo)))
        self._reached("plan written")
        self._executor.perform(draft.steps, where)
        self.journal.done(draft.entry.key, document)
        self._reached("done written")
        return document

    def _plan(self, draft: _Draft, stage: Stage, request: Request, where: Scene) -> None:
        if stage.plugin.is_meta and stage.call.previous is None:
            raise CniError(Code.INTERNAL, "must be called as chained plugin")
        if stage.ipam:
            stage = self._addressed(draft, stage, request)
        observed = self._founded(stage, where, draft)
        plan = stage.plugin.plan(stage.options, stage.call, observed)
        draft.steps += plan.steps
        draft.undo += [step.undo for step in plan.steps if step.undo is not None]
        draft.carriers += plan.carriers
        for place, found in plan.planned.items():
            draft.planned[place] = (*draft.planned.get(place, ()), *found)
        draft.result = plan.result

    def _addressed(self, draft: _Draft, stage: Stage, request: Request) -> Stage:
        asking = Asking(stage.ipam, stage.call, request.environment)
        undo = asking.undo()
        draft.undo += undo
        self.journal.begin(draft.entry.with_undo(tuple(draft.undo)))
        self._reached("begin written")
        try:
            addressing = asking.allocate(self.stores)
        except CniError:
            del draft.undo[len(draft.undo) - len(undo) :]  # refused: it has given nothing
            raise
        self._reached("addresses allocated")
        return stage.with_call(stage.call.addressed(addressing))

    def _founded(self, stage: Stage, where: Scene, draft: _Draft) -> Observed:
        """Look at the machine, having laid what attachments share."""
        look = stage.plugin.looks(stage.options, stage.call)
        for attempt in range(4):
            observed = observing.observe(look, where, self._executor.settled)
            observed = observed.with_planned(draft.planned)
            if not stage.plugin.foundation(stage.options, stage.call, observed):
                return observed
            if attempt == 3:
                break
            with self._foundations:
                seen = observing.observe(look, where, self._executor.settled)
                missing = stage.plugin.foundation(stage.options, stage.call, seen)
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

    def take_apart(
        self, entry: Entry, operations: tuple[Operation, ...] | None = None
    ) -> list[OperationError]:
        """Carry out undo operations of an entry (all of them, in reverse, unless given).

        Returns the problems; nothing is written to the journal.
        """
        todo = entry.undo[::-1] if operations is None else operations
        if not todo:
            return []
        try:
            with scene.opened(entry.netns, identity=entry.identity) as where:
                return self._executor.undo(todo, where)
        except NamespaceError:  # gone, or something else by now: what was in it is gone too
            return self._executor.undo(todo, Scene())

    def remove_unknown(self, request: Request) -> list[OperationError]:
        """Carry out a DEL of something that the journal does not know. Raises CniError."""
        problems: list[OperationError] = []
        for stage in reversed(chain.stages(request, self._draws)):
            operations: list[Operation] = []
            try:
                with scene.opened(request.invocation.netns) as where:
                    observed = Observed(settled=self._executor.settled)
                    operations += stage.plugin.remove(stage.options, stage.call, observed)
                    problems += self._executor.undo(operations, where)
            except (NamespaceGone, NamespaceError):
                problems += self._executor.undo(
                    stage.plugin.remove(stage.options, stage.call, Observed()), Scene()
                )
            if stage.ipam:
                asking = Asking(stage.ipam, stage.call, request.environment)
                problems += self._executor.undo(asking.undo(), Scene())
        return problems

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
            for stage in chain.stages(request, self._draws)
            if stage.ipam
        ]


def _document(result: Result, version: str) -> Mapping[str, object]:
    try:
        current = results.relabelled(result, _VERSION) if not result.version else result
        return results.encode(conversion.convert(current, version))
    except ConversionError as error:
        raise CniError(Code.INTERNAL, str(error)) from None


FAILURES = (CniError, OperationError, DelegateError, NamespaceError, OSError)
