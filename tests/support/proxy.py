"""A CSI driver's socket with faults on the way: latency, codes, lost answers, hangs, crashes.

The proxy is a gRPC server of its own that forwards bytes to a real driver, so a sidecar and
its driver meet on real sockets while a test decides what the sidecar gets to see::

    async with proxy.Proxy(listen, target) as csi:
        csi.inject(proxy.Fault("CreateVolume", code=Code.UNAVAILABLE, when=When.AFTER))
        ...
        assert csi.count("CreateVolume", volume="pvc-1") == 2

``Fault.when`` says whether the driver has done the work by then: a failure AFTER it is what
leaks volumes in careless sidecars.
"""

import asyncio
import enum
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from bitts.csi import v1
from bitts.rpc import channel, codes, server, services

from support import waiting

LONGEST_CALL = 600.0
ANY = "*"


class When(enum.Enum):
    """Before the call reaches the driver, or after the driver has answered."""

    BEFORE = enum.auto()
    AFTER = enum.auto()


class Loss(enum.Enum):
    """What is cut so that the answer never arrives."""

    CALL = enum.auto()
    CONNECTION = enum.auto()


@dataclass(eq=False)
class Fault:
    """What happens to the next ``times`` calls of ``method`` (None: to all) for ``volume``.

    In this order, as far as given: ``delay`` seconds pass; the call hangs until ``release``;
    the driver crashes; the answer is lost; ``code`` is the answer; the answer is garbled (AFTER).
    """

    method: str = ANY
    when: When = When.BEFORE
    volume: str = ANY
    times: int | None = 1
    delay: float = 0.0
    hangs: bool = False
    crashes: bool = False
    lost: Loss | None = None
    code: codes.Code | None = None
    message: str = "injected by the test"
    garbles: bool = False
    hit: int = 0
    _released: asyncio.Event = field(default_factory=asyncio.Event)

    def release(self) -> None:
        """Let calls go on that hang on this fault, now and later."""
        self._released.set()

    async def released(self) -> None:
        """Wait for ``release``."""
        await self._released.wait()

    def fits(self, seen: "Seen") -> bool:
        """Whether the fault strikes this call."""
        return (
            self.method in (ANY, seen.method)
            and self.volume in (ANY, seen.volume)
            and (self.times is None or self.hit < self.times)
        )


@dataclass(eq=False)
class Seen:
    """A call that arrived. ``done`` once the driver has answered; ``code`` is its answer."""

    method: str
    volume: str
    done: bool = False
    code: codes.Code | None = None


class Raw:
    """A message that nobody looks into."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def __bytes__(self) -> bytes:
        return self._data

    @classmethod
    def parse(cls, data: bytes) -> Self:
        return cls(data)


_GARBLED = Raw(b"\xff" * 16)  # no protobuf message has a field of type 7


class Proxy:
    """Listens at ``listen`` and forwards to the driver at ``target``."""

    def __init__(self, listen: str, target: str) -> None:
        self.path = listen
        self.calls: list[Seen] = []
        self._target = target
        self._faults: list[Fault] = []
        self._server: server.Server | None = None
        self._crash: asyncio.Task[None] | None = None
        self._driver = channel.Channel(target, on_lost=self._driver_lost)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()

    async def start(self) -> None:
        """Listen, also again after a crash."""
        self._server = server.Server([], self.path, lookup=self._method)
        await self._server.start()

    @property
    def is_serving(self) -> bool:
        """Whether the socket is there: not after a crash."""
        return self._server is not None

    async def stop(self) -> None:
        """Stop at once; calls in flight are cancelled."""
        self.clear()
        if self._server is not None:
            await self._server.stop(grace=0.0)
        await self._driver.close()

    async def crash(self) -> None:
        """Vanish as a killed driver does: connections break, the socket refuses."""
        crashing = self._server
        if crashing is not None:
            self.cut()
            await crashing.stop(grace=0.0)
            self._server = None

    def cut(self) -> None:
        """Break all connections of clients."""
        if self._server is not None:
            for connection in set(self._server.connections):
                connection.link.transport.abort()

    def inject(self, fault: Fault) -> Fault:
        """Add a fault; earlier ones strike first."""
        self._faults.append(fault)
        return fault

    def clear(self) -> None:
        """Take all faults away and let hanging calls go."""
        for fault in self._faults:
            fault.release()
        self._faults.clear()

    def seen(self, method: str = ANY, *, volume: str = ANY) -> list[Seen]:
        """Return the calls that arrived, in order."""
        return [
            one for one in self.calls if method in (ANY, one.method) and volume in (ANY, one.volume)
        ]

    def count(self, method: str = ANY, *, volume: str = ANY) -> int:
        """Return how many calls arrived."""
        return len(self.seen(method, volume=volume))

    def volumes(self, method: str) -> set[str]:
        """Return the volumes that calls of a method were about."""
        return {one.volume for one in self.seen(method)}

    async def wait_for(
        self, method: str, *, times: int = 1, volume: str = ANY, timeout: float = 15.0
    ) -> None:
        """Wait until so many calls have arrived."""
        what = f"{times} × {method} for volume {volume}"
        await waiting.until(lambda: self.count(method, volume=volume) >= times, what, timeout)

    def _driver_lost(self, reason: str) -> None:
        self.cut()

    def _method(self, path: str) -> services.Method:
        known = _METHODS.get(path)
        if known is not None and known.is_streaming:
            return services.Method(path, Raw, self._forward_stream, is_streaming=True)
        return services.Method(path, Raw, self._forward)

    async def _forward(self, request: Raw) -> Raw:
        path = server.current().method
        seen = self._note(path, request)
        await self._strike(seen, When.BEFORE)
        try:
            reply = await self._driver.unary(path, request, Raw, timeout=_time_left())
        except codes.RpcError as error:
            seen.done, seen.code = True, error.code
            await self._strike(seen, When.AFTER)
            raise
        seen.done, seen.code = True, codes.Code.OK
        fault = await self._strike(seen, When.AFTER)
        return _GARBLED if fault is not None and fault.garbles else reply

    async def _forward_stream(self, request: Raw) -> AsyncIterator[Raw]:
        path = server.current().method
        seen = self._note(path, request)
        await self._strike(seen, When.BEFORE)
        async for reply in self._driver.stream(path, request, Raw, timeout=_time_left()):
            yield reply
        seen.done, seen.code = True, codes.Code.OK
        await self._strike(seen, When.AFTER)

    def _note(self, path: str, request: Raw) -> Seen:
        seen = Seen(path.rpartition("/")[2], _volume(path, request))
        self.calls.append(seen)
        return seen

    async def _strike(self, seen: Seen, when: When) -> Fault | None:
        fault = next((one for one in self._faults if one.when is when and one.fits(seen)), None)
        if fault is None:
            return None
        fault.hit += 1
        await asyncio.sleep(fault.delay)
        if fault.hangs:
            await fault.released()
        if fault.crashes:
            # A task of its own: the crash cancels this call too.
            self._crash = asyncio.create_task(self.crash(), name="proxy crash")
            await asyncio.shield(self._crash)
        if fault.lost is Loss.CONNECTION:
            server.current().drop_connection()
        if fault.lost is Loss.CALL:
            server.current().drop_call()
        if fault.code is not None:
            raise codes.RpcError(fault.code, fault.message)
        return fault


def _time_left() -> float:
    left = server.current().remaining()
    return LONGEST_CALL if left is None else left


def _methods(bases: Iterable[services.Service]) -> dict[str, services.Method]:
    return {method.name: method for base in bases for method in base.rpc_methods()}


_METHODS = _methods(
    [
        v1.IdentityBase(),
        v1.ControllerBase(),
        v1.GroupControllerBase(),
        v1.SnapshotMetadataBase(),
        v1.NodeBase(),
    ]
)


def _volume(path: str, request: Raw) -> str:
    """Return the volume a call is about: the name in CreateVolume, the ID elsewhere."""
    known = _METHODS.get(path)
    if known is None:
        return ""
    message = known.request_type.parse(bytes(request))
    return getattr(message, "name", "") or getattr(message, "volume_id", "")
