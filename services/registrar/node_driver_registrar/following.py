"""Knows which driver is behind the socket, and notices at once when it may be another one.

A driver that boots, hangs or crashes is waited for, as long as it takes: to restart instead
would only lengthen the wait by the kubelet's back-off. What cannot get better by itself, a
driver without a usable name, ends the process.
"""

import asyncio
import os
from collections.abc import Callable

from bitts.core import backoff, logs
from bitts.core.process import ExitError
from bitts.csi import calllog, identity
from bitts.rpc import channel
from bitts.rpc.codes import Code, RpcError

from node_driver_registrar.model import Driver

INTERVAL = 1.0
"""Seconds between two looks at the driver's socket."""
PAUSE_START, PAUSE_MAX = 0.1, 5.0
"""Seconds between two tries of a driver that is connected and does not answer."""

Stamp = tuple[int, int]


class Follower:
    """Follows the driver at ``address``; ``on_change`` is told when ``driver`` is another.

    ``timeout`` is for each call; a driver that Probes as not ready for ``ready_timeout`` seconds
    is taken as it is.
    """

    def __init__(
        self, address: str, timeout: float, ready_timeout: float, on_change: Callable[[], None]
    ) -> None:
        self.driver: Driver | None = None
        self.connected: channel.Channel | None = None
        self._address = address
        self._timeout = timeout
        self._ready_timeout = ready_timeout
        self._on_change = on_change
        self._starts = 0
        self._failures = 0
        self._told = ""
        self._log = logs.get("driver").bind(address=address)

    async def run(self) -> None:
        """Work until cancelled; raises ExitError for a driver without a usable name."""
        while True:
            lost = asyncio.Event()
            opened = channel.Channel(
                self._address,
                observers=[calllog.CallLog(self._log)],
                on_lost=lambda _, lost=lost: lost.set(),  # type: ignore[misc]
                reconnect=False,
            )
            try:
                await self._follow(opened, lost)
            except RpcError as error:
                self._tell(f"The driver does not answer: {error.message}")
                await asyncio.sleep(backoff.delay(self._failures, PAUSE_START, PAUSE_MAX))
                self._failures += 1
            finally:
                self.connected = None
                await opened.close()

    async def probe(self) -> None:
        """Raise RpcError unless the driver is there and healthy."""
        if self.connected is None:
            raise RpcError(Code.UNAVAILABLE, "the driver is not connected")
        if not await self._is_ready(self.connected):
            raise RpcError(Code.UNAVAILABLE, "the driver is not ready")

    async def _follow(self, opened: channel.Channel, lost: asyncio.Event) -> None:
        """Take up one connection and stay with it to its end."""
        before = await asyncio.to_thread(stamp, opened.path)
        await opened.connect(None, report=self._log.warning)
        after = await asyncio.to_thread(stamp, opened.path)
        if before != after:
            return  # which of the two this connection leads to is unknown: dial again
        name = await self._name(opened)
        await self._until_ready(opened)
        self._failures, self._told = 0, ""
        self._starts += 1
        self.driver = Driver(name, self._starts)
        self.connected = opened
        self._log.info("The driver answers", driver=name, start=self._starts)
        self._on_change()
        await self._until_gone(opened.path, after, lost)

    async def _name(self, opened: channel.Channel) -> str:
        stub = identity.IdentityStub(opened)
        request = identity.GetPluginInfoRequest()
        reply = await stub.get_plugin_info(request, timeout=self._timeout)
        problem = name_problem(reply.name)
        if problem:
            raise ExitError(1, f"GetPluginInfo of {self._address}: {problem}")
        return reply.name

    async def _until_ready(self, opened: channel.Channel) -> None:
        """Give a booting driver the time to become ready, and no more than that."""
        loop = asyncio.get_running_loop()
        end = loop.time() + self._ready_timeout
        while loop.time() < end:
            if await self._is_ready(opened):
                return
            self._tell("The driver is not ready yet")
            await asyncio.sleep(min(INTERVAL, max(0.0, end - loop.time())))
        if self._ready_timeout:
            self._log.warning("The driver is not ready, going on", seconds=self._ready_timeout)

    async def _is_ready(self, opened: channel.Channel) -> bool:
        """Probe; raises RpcError if the driver does not answer."""
        try:
            stub = identity.IdentityStub(opened)
            reply = await stub.probe(identity.ProbeRequest(), timeout=self._timeout)
        except RpcError as error:
            if error.code is Code.UNIMPLEMENTED:
                return True
            if error.code is Code.FAILED_PRECONDITION:  # the spec's code for "not ready"
                return False
            raise
        return reply.ready is None or reply.ready.value

    async def _until_gone(self, path: str, known: Stamp | None, lost: asyncio.Event) -> None:
        """Wait until the connection ends or another socket stands in the place of this one.

        A socket that is merely gone is of no interest: a driver that stops removes it first.
        """
        while True:
            try:
                async with asyncio.timeout(INTERVAL):
                    await lost.wait()
            except TimeoutError:
                found = await asyncio.to_thread(stamp, path)
                if found is not None and found != known:
                    self._log.info("Another socket stands in the driver's place")
                    return
            else:
                self._log.warning("Lost the connection to the driver, waiting for its return")
                return

    def _tell(self, state: str) -> None:
        if state != self._told:
            self._log.warning(state)
            self._told = state


def stamp(path: str) -> Stamp | None:
    """Return what tells a socket from another one of the same name; None if there is none.

    As long as a server lives its inode is taken, and when it dies the connection tells. Times are
    left out: drivers change their socket's mode after it is there.
    """
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def name_problem(name: str) -> str:
    """Return what keeps a driver's name from becoming the name of a socket, or ""."""
    if not name:
        return "the driver's name is empty: configure one in the driver"
    if name.startswith(".") or "/" in name or not name.isprintable():
        return f"the driver's name {name!r} cannot be a file's name: configure another one"
    return ""
