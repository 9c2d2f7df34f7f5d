"""The verbs on the event loop: locks, threads, and answering as soon as the kernel has done it.

The work itself blocks and runs in threads (``attaching``). Removing a link blocks its thread
for 15 to 30 ms although the link is gone after one, so a DEL is answered when the link monitor
announces that, and there are many threads for removals: each waits out its RCU period.
"""

import asyncio
import concurrent.futures
import contextlib
import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from typing import TypeVar

from bitts.cni import attachments
from bitts.cni.errors import CniError, Code
from bitts.core import logs
from bitts.core.ledger import Ledger
from bitts.net.monitor import LinkMonitor

from cni_daemon import callers, chain
from cni_daemon.attaching import Attached, Attacher
from cni_daemon.executor import OperationError
from cni_daemon.locks import Gate, KeyedLocks
from cni_daemon.model import Place
from cni_daemon.operations import DeleteLink, Operation
from cni_daemon.records import Entry, Phase
from cni_daemon.requests import Request

T = TypeVar("T")
LOOP = "attachments"
"""Where the ledger keeps what was decided about ``network/container``."""

CARRIER_TIMEOUT = 3.0
"""Seconds until a new host link must be up; the reference waits 2.5 in steps."""

WORKERS = 8
"""Threads for attaching: the kernel's own lock lets few run at a time anyway."""

REMOVERS = 48
"""Threads for removals; with fewer, a burst of DELs waits for the RCU periods of others."""


class Engine:
    """Carries out the verbs. Every method may raise CniError, OperationError, OSError and such."""

    def __init__(self, attacher: Attacher, monitor: LinkMonitor, record: Ledger) -> None:
        self.attacher = attacher
        self._record = record
        self._monitor = monitor
        self._workers = concurrent.futures.ThreadPoolExecutor(WORKERS, "attach")
        self._removers = concurrent.futures.ThreadPoolExecutor(REMOVERS, "remove")
        self._attachments = KeyedLocks()
        self._gates: dict[str, Gate] = {}
        self._log = logs.get("engine")

    async def close(self) -> None:
        """Let the threads end what they are at."""
        for pool in (self._workers, self._removers):
            await asyncio.to_thread(pool.shutdown)

    async def add(self, request: Request) -> Mapping[str, object]:
        """Attach, and return the result document."""
        async with self._gate(request).shared(), self._attachments.held(_attachment(request)):
            with self._recorded(request, "attached", "ADD"):
                attached = await self._work(self.attacher.attach, request)
                await self._await_carriers(attached)
            return attached.document

    async def remove(self, request: Request) -> None:
        """Detach; what is not there is no error."""
        async with self._gate(request).shared(), self._attachments.held(_attachment(request)):
            entry = self.attacher.journal.find(chain.key(request))
            reason = "DEL" if entry is not None else "DEL of what the journal does not know"
            with self._recorded(request, "detached", reason):
                if entry is None:
                    _raise_first(await self._removal(self.attacher.remove_unknown, request))
                else:
                    await self.unwind(entry)

    async def repair(self, entry: Entry) -> None:
        """Take apart what an earlier failure left, unless somebody is at it or has done it."""
        key = entry.key
        attachment = (key.container_id, key.ifname)
        if self._attachments.is_held(attachment):
            return
        async with self._attachments.held(attachment):
            if self.attacher.journal.entry(key) == entry and entry.phase is not Phase.DONE:
                await self.unwind(entry)

    async def undisturbed(self, entry: Entry, work: Callable[[Entry], Awaitable[None]]) -> bool:
        """Work on an attachment while nobody else does, if it is still what it was.

        Returns whether it was; raises what the work raises.
        """
        key = entry.key
        async with self._attachments.held((key.container_id, key.ifname)):
            if self.attacher.journal.entry(key) is not entry:
                return False
            await work(entry)
            return True

    @contextlib.asynccontextmanager
    async def reserved(self, network: str, container_id: str, ifname: str) -> AsyncIterator[None]:
        """Keep GC of the network, and everybody who works on the attachment, away."""
        gate = self._gates.setdefault(network, Gate())
        async with gate.shared(), self._attachments.held((container_id, ifname)):
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

    async def check(self, request: Request) -> None:
        """Compare with what stands."""
        async with self._attachments.held(_attachment(request)):
            await self._work(self.attacher.check, request)

    async def status(self, request: Request) -> None:
        """Raise CniError (50) when no container could be attached."""
        for asking in self.attacher.asking(request):
            await self._work(asking.ready, self.attacher.stores)

    async def collect(self, request: Request) -> int:
        """Detach everything of a network (and plugin) that is not said to be valid.

        Returns how many attachments that was.
        """
        valid = attachments.valid(request.config.fields)
        if valid is None:
            return 0
        count = 0
        async with self._gate(request).alone():
            problems: list[Exception] = []
            for entry in self._stale(request, valid):
                try:
                    await self.unwind(entry)
                    count += 1
                except OperationError as error:
                    problems.append(error)
            others = callers.attachments(self.attacher.journal.entries(), request.config.name)
            for asking in self.attacher.asking(request):
                await self._work(asking.collect, self.attacher.stores, valid | others)
        if problems:
            raise problems[0]
        return count

    def _stale(self, request: Request, valid: frozenset[attachments.Attachment]) -> Sequence[Entry]:
        return [
            entry
            for entry in self.attacher.journal.entries()
            if entry.key.network == request.config.name
            and entry.key.type == request.plugin
            and attachments.Attachment(entry.key.container_id, entry.key.ifname) not in valid
        ]

    async def unwind(self, entry: Entry) -> None:
        """Take an entry apart and forget it. Raises OperationError, and keeps it, on a problem."""
        journal = self.attacher.journal
        parts, rest = _parts(entry.undo[::-1])
        begin: Callable[[], None] = _nothing
        if entry.phase is not Phase.LEAVING:
            begin = functools.partial(journal.leave, entry.key)
        problems: list[OperationError] = []
        for part in parts:
            await self._remove_link(entry, part, begin, problems)
            begin = _nothing

        def end() -> None:
            begin()
            problems.extend(self.attacher.take_apart(entry, rest))
            if not problems:
                journal.gone(entry.key)

        await self._removal(end)
        _raise_first(problems)

    async def _remove_link(
        self, entry: Entry, operations: tuple[Operation, ...], begin: Callable[[], None],
        problems: list[OperationError],
    ) -> None:  # fmt: skip
        """Carry out operations of which the last removes a link; go on once it is announced."""
        removed = operations[-1]
        assert isinstance(removed, DeleteLink)
        announced = self._monitor.leaving(removed.index)

        def work() -> None:
            begin()
            problems.extend(self.attacher.take_apart(entry, operations))

        task = asyncio.ensure_future(self._removal(work))
        either: set[asyncio.Future[object]] = {task, announced}  # type: ignore[arg-type] # only waited for
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not announced.done() or not announced.result():
            await task  # it failed, there was no such link, or events were lost
        else:
            task.add_done_callback(self._note)

    def _note(self, task: "asyncio.Future[None]") -> None:
        if not task.cancelled() and task.exception() is not None:
            self._log.error("Removal failed after its announcement", err=task.exception())

    async def _await_carriers(self, attached: Attached) -> None:
        for index in attached.carriers:
            if not await self._monitor.running(index, CARRIER_TIMEOUT):
                await self.unwind(attached.entry)
                raise CniError(Code.INTERNAL, "bridge port in error state: down")

    async def _work(self, function: Callable[..., T], *arguments: object) -> T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._workers, function, *arguments)

    async def _removal(self, function: Callable[..., T], *arguments: object) -> T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._removers, function, *arguments)

    def _gate(self, request: Request) -> Gate:
        return self._gates.setdefault(request.config.name, Gate())


def _attachment(request: Request) -> tuple[str, str]:
    return request.invocation.container_id, request.invocation.ifname


def _is_host_link(operation: Operation) -> bool:
    return (
        isinstance(operation, DeleteLink) and operation.place == Place.HOST and operation.index > 0
    )


def _parts(
    operations: tuple[Operation, ...],
) -> tuple[list[tuple[Operation, ...]], tuple[Operation, ...]]:
    """Split operations behind each that removes a host link; returns the parts and the rest."""
    parts: list[tuple[Operation, ...]] = []
    start = 0
    for index, operation in enumerate(operations, 1):
        if _is_host_link(operation):
            parts.append(operations[start:index])
            start = index
    return parts, operations[start:]


def _nothing() -> None:
    return None


def _raise_first(problems: Sequence[OperationError]) -> None:
    if problems:
        raise problems[0]
