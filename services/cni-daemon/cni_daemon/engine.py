"""The verbs: who must wait for whom, what is remembered about them, and who carries them out.

A request runs in one thread from its arrival to its answer: what it does is netlink, which
blocks, and every hand-over to another thread would cost as much as planning. Methods block;
those that are coroutines are for what the daemon does on its own, on the event loop.
"""

import asyncio
import contextlib
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Iterator,
    Mapping,
    Sequence,
)

from bitts.cni import attachments
from bitts.cni.errors import CniError, Code
from bitts.core import logs
from bitts.core.ledger import Ledger

from cni_daemon import callers, chain, strays
from cni_daemon.attaching import Attacher
from cni_daemon.delegates import PluginMissingError
from cni_daemon.executor import OperationError
from cni_daemon.forms import Order
from cni_daemon.ipam import asking
from cni_daemon.locks import Gate, KeyedLocks
from cni_daemon.records import Entry, Phase
from cni_daemon.requests import Request
from cni_daemon.stamping import Kept
from cni_daemon.strays import Strays

LOOP = "attachments"
"""Where the ledger keeps what was decided about ``network/container``."""


class Engine:
    """Carries out the verbs. Every method may raise CniError, OperationError, OSError and such."""

    def __init__(self, attacher: Attacher, record: Ledger) -> None:
        self.attacher = attacher
        self.strays = Strays(attacher.journal.entries)
        self._record = record
        self._attachments = KeyedLocks()
        self._gates: dict[str, Gate] = {}

    def add(self, request: Request, is_heard: Callable[[], bool]) -> Mapping[str, object]:
        """Attach, and return the result document.

        Nothing is done for a caller who has gone: the DEL that follows may have come before it.
        """
        with self._gate(request.config.name).shared(), self._attachments.held(_attachment(request)):
            if not is_heard():
                raise _gone()
            with self._recorded(request, "attached", "ADD"):
                return self.attacher.attach(request)

    def template(self, order: Order) -> Kept | None:
        """Return what an ADD can be ``stamp``ed with, None where there is nothing."""
        return self.attacher.stamper.find(order)

    def learn(self, order: Order) -> None:
        """Remember what was attached the long way, for the next that are like it. Never fails."""
        self.attacher.stamper.learn(order)

    def stamp(
        self, kept: Kept, order: Order, is_heard: Callable[[], bool], tell: Callable[[str], bool]
    ) -> bool | None:
        """Attach by a template, and ``tell`` the result; None where it does not fit.

        Returns whether the caller took it. Raises CniError for one who has gone before.
        """
        network = kept.template.network
        attachment = (order.container_id, order.form.ifname)
        with self._gate(network).shared(), self._attachments.held(attachment):
            if not is_heard():
                raise _gone()
            key = f"{network}/{order.container_id}"
            self._record.started(LOOP, key)
            is_told = self.attacher.stamper.attach(kept, order, tell)
            if is_told is not None:
                decision = f"{order.form.plugin} {order.form.ifname} attached"
                self._record.decided(LOOP, key, decision, "ADD")
            self._record.finished(LOOP, key)
            return is_told

    def remove(self, request: Request) -> None:
        """Detach; what is not there is no error."""
        with self._gate(request.config.name).shared(), self._attachments.held(_attachment(request)):
            entry = self.attacher.journal.find(chain.key(request))
            if entry is None or not request.config.is_previous(entry.result):
                _ = request.config.previous  # one that is malformed is refused
            reason = "DEL" if entry is not None else "DEL of what the journal does not know"
            with self._recorded(request, "detached", reason):
                if entry is None:
                    if request.plugin in strays.MAKERS:
                        self.strays.remove(request.config.name, _attached(request))
                    self.attacher.remove_unknown(request)
                else:
                    self._detach(entry, request)

    def _detach(self, entry: Entry, request: Request) -> None:
        """Detach, if need be without a program that is gone and that nobody names any more."""
        path = request.environment.get("CNI_PATH", "")
        if asking.programs(entry.undo) <= chain.ipam_types(request.config):
            self.attacher.detach(entry, path)
            return
        for each in self.attacher.give_up(entry, path):
            _unreleased(entry, each)

    def check(self, request: Request) -> None:
        """Compare with what stands."""
        with self._attachments.held(_attachment(request)):
            self.attacher.check(request)

    def status(self, request: Request) -> None:
        """Raise CniError (50) when no container could be attached."""
        for asked in self.attacher.asking(request):
            asked.ready(self.attacher.stores)

    def collect(self, request: Request) -> int:
        """Detach everything of a network (and plugin) that is not said to be valid.

        Returns how many attachments that was. Addresses that only a program could give back
        which is not there any more are told as an error, once.
        """
        valid = attachments.valid(request.config.fields)
        if valid is None:
            return 0
        count = 0
        with self._gate(request.config.name).alone():
            problems: list[Exception] = []
            standing: set[attachments.Attachment] = set()
            path = request.environment.get("CNI_PATH", "")
            for entry in self._stale(request, valid):
                try:
                    lost = self.attacher.give_up(entry, path)
                    count += 1
                    problems += [_unreleased(entry, each) for each in lost]
                except OperationError as error:
                    problems.append(error)
                    standing.add(_named(entry))
            if request.plugin in strays.MAKERS:
                count += self.strays.collect(request.config.name, valid)
            others = callers.attachments(self.attacher.journal.entries(), request.config.name)
            for asked in self.attacher.asking(request):
                if asked.is_ours or not standing:  # a program cannot be told what still stands
                    try:
                        asked.collect(self.attacher.stores, valid | others | standing)
                    except PluginMissingError as error:
                        problems.append(error)
        if problems:
            raise problems[0]
        return count

    def _stale(self, request: Request, valid: frozenset[attachments.Attachment]) -> Sequence[Entry]:
        return [
            entry
            for entry in self.attacher.journal.entries()
            if entry.key.network == request.config.name
            and entry.key.type == request.plugin
            and _named(entry) not in valid
        ]

    async def unwind(self, entry: Entry) -> None:
        """Take an entry apart and forget it. Raises OperationError, and keeps it, on a problem."""
        await asyncio.to_thread(self.attacher.detach, entry)

    async def abandon(self, entry: Entry) -> None:
        """Take an entry apart but for what a program that is gone would have to give back.

        Raises OperationError, and keeps the entry, on any other problem.
        """
        for each in await asyncio.to_thread(self.attacher.give_up, entry, ""):
            _unreleased(entry, each)

    async def repair(self, entry: Entry, work: Callable[[Entry], Awaitable[None]]) -> None:
        """Take apart what an earlier failure left, unless somebody is at it or has done it.

        ``work`` is ``unwind`` or ``abandon``.
        """
        key = entry.key
        attachment = (key.container_id, key.ifname)
        if self._attachments.is_held(attachment):
            return
        async with _entered(self._attachments.held(attachment)):
            if self.attacher.journal.entry(key) == entry and entry.phase is not Phase.DONE:
                await work(entry)

    async def undisturbed(self, entry: Entry, work: Callable[[Entry], Awaitable[None]]) -> bool:
        """Work on an attachment while nobody else does, if it is still what it was.

        Returns whether it was; raises what the work raises.
        """
        key = entry.key
        async with _entered(self._attachments.held((key.container_id, key.ifname))):
            if self.attacher.journal.entry(key) is not entry:
                return False
            await work(entry)
            return True

    @contextlib.asynccontextmanager
    async def reserved(self, network: str, container_id: str, ifname: str) -> AsyncIterator[None]:
        """Keep GC of the network, and everybody who works on the attachment, away."""
        gate = self._gates.setdefault(network, Gate())
        async with (
            _entered(gate.shared()),
            _entered(self._attachments.held((container_id, ifname))),
        ):
            yield

    @contextlib.contextmanager
    def _recorded(self, request: Request, decision: str, reason: str) -> Iterator[None]:
        """Remember what was decided about an attachment, for whoever asks why."""
        key = f"{request.config.name}/{request.invocation.container_id}"
        name = f"{request.plugin} {request.invocation.ifname}"
        self._record.started(LOOP, key)
        try:
            yield
        except Exception as error:
            self._record.decided(LOOP, key, f"{name} not {decision}", str(error))
            raise
        else:
            self._record.decided(LOOP, key, f"{name} {decision}", reason)
        finally:
            self._record.finished(LOOP, key)

    def _gate(self, network: str) -> Gate:
        found = self._gates.get(network)
        return self._gates.setdefault(network, Gate()) if found is None else found


@contextlib.asynccontextmanager
async def _entered(holding: contextlib.AbstractContextManager[None]) -> AsyncIterator[None]:
    """Hold something that blocks until it is free, from the event loop."""
    await asyncio.to_thread(holding.__enter__)
    try:
        yield
    finally:
        holding.__exit__(None, None, None)


def _unreleased(entry: Entry, problem: OperationError) -> CniError:
    """Tell what stays behind with an IPAM plugin that is gone, and what to do about it."""
    key = entry.key
    logs.get("engine").error("Addresses are not given back", attachment=str(key), err=problem)
    return CniError(
        Code.INTERNAL,
        f"addresses of container {key.container_id}, {key.ifname} are not given back: {problem}",
        "everything else of it is gone, and this is not tried again: put the plugin back and "
        "repeat GC, or free them where it keeps them",
    )


def _gone() -> CniError:
    return CniError(Code.TRY_AGAIN_LATER, "not attached, its caller has gone")


def _named(entry: Entry) -> attachments.Attachment:
    return attachments.Attachment(entry.key.container_id, entry.key.ifname)


def _attached(request: Request) -> attachments.Attachment:
    return attachments.Attachment(request.invocation.container_id, request.invocation.ifname)


def _attachment(request: Request) -> tuple[str, str]:
    return request.invocation.container_id, request.invocation.ifname
