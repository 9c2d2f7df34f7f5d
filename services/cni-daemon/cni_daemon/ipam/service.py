"""``bitts.ipam.v1`` on the introspection socket: allocate, release, list, watch."""

import asyncio
import secrets
import threading
from collections.abc import AsyncIterator, Callable, Iterable

from bitts.cni import results
from bitts.cni.conversion import ConversionError
from bitts.cni.documents import DocumentError
from bitts.cni.errors import CniError
from bitts.rpc import codes
from bitts.rpc import ipam as wire

from cni_daemon import callers
from cni_daemon.engine import Engine
from cni_daemon.executor import OperationError
from cni_daemon.ipam.allocating import Allocator, TakenError, Wish, WishError
from cni_daemon.journal import Journal
from cni_daemon.operations import ReleaseAddresses, RunDelegate
from cni_daemon.records import Entry, Key, Phase

PENDING = 10_000
"""Allocations of which a reader may have unread news before it is cut off."""

_KEEP_ADDRESSES = (ReleaseAddresses, RunDelegate)


class IpamService(wire.IpamBase):
    """Answers from the journal, which knows every allocation that an attachment or a call has."""

    def __init__(self, engine: Engine, allocator: Allocator) -> None:
        self._engine = engine
        self._allocator = allocator
        self._journal: Journal = engine.attacher.journal
        self._epoch = secrets.token_hex(8)

    async def allocate(self, request: wire.AllocateRequest) -> wire.Allocation:
        """Take addresses, or return those that the owner has already."""
        wish = _wish(request)
        try:
            async with self._engine.reserved(wish.network, wish.owner, wish.interface):
                entry = await asyncio.to_thread(self._allocator.allocate, wish)
        except WishError as error:
            raise codes.RpcError(codes.Code.INVALID_ARGUMENT, str(error)) from None
        except TakenError as error:
            raise codes.RpcError(codes.Code.ALREADY_EXISTS, str(error)) from None
        except CniError as error:
            raise codes.RpcError(codes.Code.RESOURCE_EXHAUSTED, error.message) from None
        except OSError as error:
            raise codes.RpcError(codes.Code.UNAVAILABLE, f"cannot write: {error}") from None
        found = allocation(entry)
        assert found is not None
        return found

    async def release(self, request: wire.ReleaseRequest) -> wire.ReleaseResponse:
        """Give back what ``allocate`` gave."""
        key = callers.addresses(request.network, request.owner, request.interface)
        entry = self._journal.entry(key)
        if entry is None:
            return wire.ReleaseResponse(released=0)
        try:
            done = await self._engine.undisturbed(entry, self._engine.unwind)
        except (OperationError, OSError) as error:
            raise codes.RpcError(codes.Code.UNAVAILABLE, f"cannot release: {error}") from None
        return wire.ReleaseResponse(released=int(done))

    async def list(self, request: wire.ListRequest) -> wire.ListResponse:
        """List what is allocated now."""
        number = self._journal.revision  # before: what is listed may be newer, never older
        found = list(_wanted(self._journal.entries(), request.network))
        return wire.ListResponse(allocations=found, revision=self._at(number))

    async def watch(self, request: wire.WatchRequest) -> AsyncIterator[wire.Event]:
        """Tell what there is, then what changes."""
        news = News(asyncio.get_running_loop(), PENDING)
        revision, entries = self._journal.watch(news.offer)
        try:
            for found in _wanted(entries, request.network):
                yield wire.Event(
                    kind=wire.EventKind.PRESENT, allocation=found, revision=self._at(revision)
                )
            yield wire.Event(kind=wire.EventKind.SYNCED, revision=self._at(revision))
            told = {each.key for each in entries if allocation(each) is not None}
            async for number, key, entry in news:
                event = self._event(number, key, entry, request.network, told)
                if event is not None:
                    yield event
        finally:
            self._journal.unwatch(news.offer)

    def _event(
        self, number: int, key: Key, entry: Entry | None, network: str, told: set[Key]
    ) -> wire.Event | None:
        """Return what to tell of a change; most records of an ADD are no news to anybody."""
        if network not in ("", key.network):
            return None
        found = None if entry is None else allocation(entry)
        if found is not None:
            told.add(key)
            kind = wire.EventKind.PRESENT
        elif entry is None and key in told:
            told.discard(key)
            kind = wire.EventKind.GONE
            found = wire.Allocation(
                network=key.network, owner=key.container_id, interface=key.ifname
            )
        else:
            return None
        return wire.Event(kind=kind, allocation=found, revision=self._at(number))

    def _at(self, number: int) -> wire.Revision:
        return wire.Revision(epoch=self._epoch, number=number)


class News:
    """What a reader has not been told yet: the latest about each key, up to a limit.

    ``offer`` may be called in any thread; the iteration is on the event loop, and raises
    RpcError ABORTED once more keys are pending than the limit allows.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, limit: int) -> None:
        self._loop = loop
        self._limit = limit
        self._mutex = threading.Lock()
        self._pending: dict[Key, tuple[int, Entry | None]] = {}
        self._arrived = asyncio.Event()
        self._is_awake = False
        self._is_cut = False

    def offer(self, revision: int, key: Key, entry: Entry | None) -> None:
        """Take a change."""
        with self._mutex:
            self._pending.pop(key, None)
            if len(self._pending) >= self._limit:
                self._is_cut = True
            else:
                self._pending[key] = (revision, entry)
            is_asleep, self._is_awake = not self._is_awake, True
        if is_asleep:
            self._loop.call_soon_threadsafe(self._arrived.set)

    def __aiter__(self) -> "News":
        return self

    async def __anext__(self) -> tuple[int, Key, Entry | None]:
        while True:
            with self._mutex:
                if self._is_cut:
                    text = f"more than {self._limit} allocations have changed unread: watch anew"
                    raise codes.RpcError(codes.Code.ABORTED, text)
                if self._pending:
                    key = next(iter(self._pending))
                    revision, entry = self._pending.pop(key)
                    return revision, key, entry
                self._is_awake = False
                self._arrived.clear()
            await self._arrived.wait()


def allocation(entry: Entry) -> wire.Allocation | None:
    """Return what an entry has of addresses; None for one that has none of its own."""
    if entry.phase is not Phase.DONE:
        return None
    if not any(isinstance(each, _KEEP_ADDRESSES) for each in entry.undo):
        return None
    try:
        ips = results.decode(dict(entry.result), "1.1.0").ips
    except (DocumentError, ConversionError):
        ips = ()
    key = entry.key
    is_call = key.step == callers.ADDRESSES
    return wire.Allocation(
        network=key.network,
        owner=key.container_id,
        interface=key.ifname,
        addresses=[
            wire.Address(address=str(ip.address), gateway=str(ip.gateway or "")) for ip in ips
        ],
        source=wire.AllocationSource.CALL if is_call else wire.AllocationSource.ATTACHMENT,
    )


def _wanted(entries: Iterable[Entry], network: str) -> Iterable[wire.Allocation]:
    found = (allocation(each) for each in entries if network in ("", each.key.network))
    return (each for each in found if each is not None)


def _wish(request: wire.AllocateRequest) -> Wish:
    return Wish(
        network=request.network,
        owner=request.owner,
        interface=request.interface,
        sets=[[_range(each) for each in one.ranges] for one in request.sets],
        requested=list(request.requested),
        directory=request.data_dir,
    )


_NAMES: tuple[tuple[str, Callable[[wire.Range], str]], ...] = (
    ("subnet", lambda one: one.subnet),
    ("rangeStart", lambda one: one.range_start),
    ("rangeEnd", lambda one: one.range_end),
    ("gateway", lambda one: one.gateway),
)


def _range(one: wire.Range) -> dict[str, str]:
    return {name: read(one) for name, read in _NAMES if read(one)}
