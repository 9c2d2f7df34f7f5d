"""The connections to the nodes: kept open, watched, and known to be away when they are.

A keeper per node dials, asks who is there and what it holds, and then looks in every few
seconds. So a call for a node that is away is refused at once, and one for a node that falls
silent ends soon, however long its client would wait. A call may have the keeper try again at
once, so that a node that has just come back is not refused for the length of a pause.
"""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

from bitts.core import backoff, ledger, logs
from bitts.csi import v1
from bitts.rpc import channel, endpoints, server
from bitts.rpc.codes import Code, RpcError

from local_driver import announced, places
from local_driver.cluster import known
from local_driver.cluster.book import Book

Q = TypeVar("Q", contravariant=True)
R = TypeVar("R", covariant=True)

LOOP = "nodes"
"""What the keepers' work is called in introspection."""

PATIENCE = 1.0
"""Seconds that a call waits for a node that seems away to be tried once more."""

CONTACT_TIMEOUT = 3.0
"""Seconds for a node to answer who it is, also while it is connected."""

LIST_TIMEOUT = 20.0
"""Seconds for a page of what a node holds."""

PAGE = 500
LONGEST_CALL = 600.0
"""Seconds for a call whose client gave no deadline."""

LOOK_INTERVAL, LIST_INTERVAL = 5.0, 60.0
"""Seconds between two looks at a node that is there, and between two lists of what it holds."""

FIRST_PAUSE, LONGEST_PAUSE = 0.2, 5.0
"""Seconds between two attempts to reach a node that is away."""


class AwayError(RpcError):
    """The node cannot be reached: UNAVAILABLE, and the text says which and why."""

    def __init__(self, node: str, reason: str) -> None:
        super().__init__(Code.UNAVAILABLE, f"node {node} is away: {reason}")


class Rpc(Protocol[Q, R]):
    """A method of a stub."""

    async def __call__(self, request: Q, *, timeout: float) -> R:
        """Call it, within so many seconds; raises RpcError."""
        ...


class Stubs:
    """What a node serves for the controller."""

    def __init__(self, opened: channel.Channel) -> None:
        self.channel = opened
        self.identity = v1.IdentityStub(opened)
        self.controller = v1.ControllerStub(opened)
        self.groups = v1.GroupControllerStub(opened)


@dataclass(frozen=True, slots=True)
class Expected:
    """What a node of ours says of itself."""

    driver_name: str
    capabilities: frozenset[str]


class NodeLink:
    """One node, there or away."""

    def __init__(
        self,
        node: str,
        endpoint: endpoints.Endpoint,
        expected: Expected,
        book: Book,
        record: ledger.Ledger,
    ) -> None:
        self.node = node
        self.address = endpoint.text
        self._endpoint = endpoint
        self._expected = expected
        self._book = book
        self._ledger = record
        self._stubs: Stubs | None = None
        self._reason = "it has not been asked yet"
        self._wanted = asyncio.Event()
        self._attempted = asyncio.Event()
        self._listing = asyncio.Lock()
        self._log = logs.get("nodes")

    @property
    def is_here(self) -> bool:
        """Whether the node answered when it was last asked."""
        return self._live() is not None

    @property
    def reason(self) -> str:
        """Why the node is away; of one that is here, why it was."""
        return self._reason

    def _live(self) -> Stubs | None:
        stubs = self._stubs
        return stubs if stubs is not None and stubs.channel.is_connected else None

    async def call(self, method: Callable[[Stubs], Rpc[Q, R]], request: Q) -> R:
        """Call a method of the node, for as long as our own client waits.

        Raises RpcError as the node does, AwayError when it is away.
        """

        async def invoke(stubs: Stubs) -> R:
            return await method(stubs)(request, timeout=_time_left())

        return await self._through(invoke)

    async def _through(self, invoke: Callable[[Stubs], Awaitable[R]]) -> R:
        stubs = await self.reached()
        try:
            return await invoke(stubs)
        except RpcError as error:
            if error.code is Code.UNAVAILABLE and not stubs.channel.is_connected:
                raise AwayError(self.node, error.message) from error
            raise

    async def reached(self) -> Stubs:
        """Return the node's services; raises AwayError after a moment's patience."""
        stubs = self._live()
        if stubs is None:
            self._attempted.clear()
            self._wanted.set()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(PATIENCE):
                    await self._attempted.wait()
            stubs = self._live()
        if stubs is None:
            raise AwayError(self.node, self._reason)
        return stubs

    async def attempted(self) -> None:
        """Wait until the node was tried once, with whatever outcome."""
        await self._attempted.wait()

    async def refresh(self) -> None:
        """Have the node list what it holds; raises RpcError, AwayError."""
        await self._through(lambda stubs: self._listed(stubs, min(LIST_TIMEOUT, _time_left())))

    async def has(self, digest: str) -> bool:
        """Whether the node has a volume, by its name's digest; raises RpcError, AwayError.

        ABORTED while it is just being made.
        """
        return await self._through(lambda stubs: self._holds(stubs, digest, _time_left()))

    async def _holds(self, stubs: Stubs, digest: str, timeout: float) -> bool:
        request = v1.ControllerGetVolumeRequest(volume_id=f"{places.of_node(self.node)}-{digest}")
        try:
            await stubs.controller.controller_get_volume(request, timeout=timeout)
        except RpcError as error:
            if error.code is not Code.NOT_FOUND:
                raise
            return False
        return True

    async def settle(self) -> None:
        """Ask what became of each CreateVolume whose outcome nobody heard; raises RpcError.

        A volume that is there is left to the next list, which takes it into the account.
        """
        stubs = await self.reached()
        for intent in self._book.intents.doubtful(self.node):
            try:
                if not await self._holds(stubs, intent.digest, CONTACT_TIMEOUT):
                    self._book.intents.settle_denied(intent)
            except RpcError as error:
                if error.code is not Code.ABORTED:  # it is still at it
                    raise

    async def keep(self) -> None:
        """Keep in touch with the node, until cancelled."""
        failures = 0
        while True:
            lost = asyncio.Event()
            opened = self._dialled(lost)
            try:
                is_here = await self._has_contact(opened)
                failures = 0 if is_here else failures + 1
                self._attempted.set()
                if is_here:
                    await self._stay(lost)
            except RpcError as error:
                self._gone(error.message)
            finally:
                self._stubs = None
                await opened.close()
            pause = backoff.delay(failures, FIRST_PAUSE, LONGEST_PAUSE)
            self._ledger.retry_at(LOOP, self.node, time.time() + pause, failures=failures)
            await self._pause(pause)

    def _dialled(self, lost: asyncio.Event) -> channel.Channel:
        def note(_reason: str) -> None:
            lost.set()

        return channel.Channel(self._endpoint, on_lost=note, reconnect=False)

    async def _pause(self, seconds: float) -> None:
        await asyncio.sleep(FIRST_PAUSE)  # so that many calls do not make many attempts
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._wanted.wait()
        self._wanted.clear()

    async def _has_contact(self, opened: channel.Channel) -> bool:
        try:
            await self._contact(Stubs(opened))
        except RpcError as error:
            self._gone(error.message)
            return False
        return True

    async def _contact(self, stubs: Stubs) -> None:
        info = await stubs.identity.get_plugin_info(
            v1.GetPluginInfoRequest(), timeout=CONTACT_TIMEOUT
        )
        if info.name != self._expected.driver_name:
            text = f"driver {info.name!r} answers at {self.address}: correct its --driver-name"
            raise RpcError(Code.UNAVAILABLE, text)
        told = await stubs.controller.controller_get_capabilities(
            v1.ControllerGetCapabilitiesRequest(), timeout=CONTACT_TIMEOUT
        )
        differences = self._expected.capabilities ^ announced.rpcs(told.capabilities)
        if differences:
            self._log.warning(
                "Node serves something else than the controller: start both with the same "
                "--attach and --csi",
                node=self.node,
                differences=sorted(differences),
            )
        await self._listed(stubs, LIST_TIMEOUT)
        self._stubs = stubs
        self._log.info("Node is here", node=self.node, address=self.address)
        self._ledger.decided(LOOP, self.node, "here", f"it answers at {self.address}")
        self._ledger.waits(LOOP, self.node)

    def _gone(self, reason: str) -> None:
        if reason != self._reason or self._stubs is not None:
            self._log.warning("Node is away", node=self.node, address=self.address, err=reason)
            self._ledger.decided(LOOP, self.node, "away", reason, error=reason)
        self._reason = reason

    async def _stay(self, lost: asyncio.Event) -> None:
        """Look in until something is wrong; raises RpcError."""
        next_list = time.monotonic() + LIST_INTERVAL
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_INTERVAL):
                    await lost.wait()
            if lost.is_set():
                raise RpcError(Code.UNAVAILABLE, f"the connection to {self.address} was lost")
            assert self._stubs is not None
            await self._look(self._stubs)
            if time.monotonic() >= next_list:
                await self._listed(self._stubs, LIST_TIMEOUT)
                await self.settle()
                next_list = time.monotonic() + LIST_INTERVAL

    async def _look(self, stubs: Stubs) -> None:
        try:
            await stubs.identity.probe(v1.ProbeRequest(), timeout=CONTACT_TIMEOUT)
        except RpcError as error:
            if error.code is Code.DEADLINE_EXCEEDED:
                text = f"nothing was heard from {self.address} for {CONTACT_TIMEOUT:g} s"
                raise RpcError(Code.UNAVAILABLE, text) from error
            raise

    async def _listed(self, stubs: Stubs, timeout: float) -> None:
        """Read everything that the node holds; one list at a time, or an older would win."""
        async with self._listing:
            with self._book.listing(self.node) as mark:
                volumes = await _volumes(stubs, timeout)
                self._book.told(self.node, mark, volumes, await _snapshots(stubs, timeout))


async def _volumes(stubs: Stubs, timeout: float) -> list[known.KnownVolume]:
    found: list[known.KnownVolume] = []
    request = v1.ListVolumesRequest(max_entries=PAGE)
    while True:
        page = await stubs.controller.list_volumes(request, timeout=timeout)
        found += map(known.volume, page.entries)
        if not page.next_token:
            return found
        request.starting_token = page.next_token


async def _snapshots(stubs: Stubs, timeout: float) -> list[known.KnownSnapshot]:
    found: list[known.KnownSnapshot] = []
    request = v1.ListSnapshotsRequest(max_entries=PAGE)
    while True:
        page = await stubs.controller.list_snapshots(request, timeout=timeout)
        told = (entry.snapshot for entry in page.entries)
        found += (known.snapshot(one) for one in told if one is not None)
        if not page.next_token:
            return found
        request.starting_token = page.next_token


def _time_left() -> float:
    """Return the seconds that the client of the call at hand has left."""
    try:
        left = server.current().remaining()
    except LookupError:
        left = None
    return LONGEST_CALL if left is None else left
