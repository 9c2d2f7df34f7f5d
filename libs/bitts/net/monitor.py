"""Link events of one namespace on the event loop: who waits for a link hears of it at once.

A link's removal is announced about a millisecond after it was asked for, while the call that
asks returns only after an RCU wait of 15 to 30; waiting for the announcement is what makes a
DEL quick. Events may be lost when too many come (ENOBUFS): then every waiter looks for itself.
"""

import asyncio
import ctypes
import errno
import socket
import struct
import sys
from collections.abc import Callable

from bitts.net import links, wire

_LINK_GROUP = 1
_RECEIVE_BUFFER_FORCE = 33
_BUFFER = 8 << 20
_RECEIVE = 1 << 16
_PER_WAKEUP = 256

_ATTACH_FILTER = 26
_INSTRUCTION = struct.Struct("=HBBI")
_LOAD_HALF, _LOAD_BYTE, _LOAD_WORD = 0x28, 0x30, 0x20
_EQUAL, _ANY_BIT, _RETURN = 0x15, 0x45, 0x06
_ALL = 0xFFFFFFFF


def _as_loaded(number: int, size: int) -> int:
    """Return a number in the machine's order as the filter loads it, which is the network's."""
    return int.from_bytes(number.to_bytes(size, sys.byteorder), "big")


_FILTER = (
    (_LOAD_BYTE, 0, 0, 16),  # address family
    (_EQUAL, 0, 6, 0),
    (_LOAD_HALF, 0, 0, 4),  # message type
    (_EQUAL, 3, 0, _as_loaded(links.DELETE, 2)),
    (_EQUAL, 0, 3, _as_loaded(links.NEW, 2)),
    (_LOAD_WORD, 0, 0, 24),  # link flags
    (_ANY_BIT, 0, 1, _as_loaded(links.RUNNING, 4)),
    (_RETURN, 0, 0, _ALL),
    (_RETURN, 0, 0, 0),
)


class LinkMonitor:
    """Tells when links come up or go. Open it inside the namespace, from the event loop.

    It remembers which links of an index from ``floor`` on have their carrier.
    """

    def __init__(self, floor: int = 1, on_loss: Callable[[], None] = lambda: None) -> None:
        self._floor = floor
        self._on_loss = on_loss
        self._running: set[int] = set()
        self._waiting_gone: dict[int, asyncio.Future[bool]] = {}
        self._waiting_up: dict[int, asyncio.Future[bool]] = {}
        self._loop = asyncio.get_running_loop()
        self._socket = socket.socket(
            socket.AF_NETLINK,
            socket.SOCK_RAW | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC,
            0,
        )
        self._socket.setsockopt(socket.SOL_SOCKET, _RECEIVE_BUFFER_FORCE, _BUFFER)
        _filter(self._socket)
        self._socket.bind((0, _LINK_GROUP))
        self._loop.add_reader(self._socket.fileno(), self._read)

    def close(self) -> None:
        """Stop listening; those who wait learn that nothing is known."""
        self._loop.remove_reader(self._socket.fileno())
        self._socket.close()
        self._release()

    async def running(self, index: int, timeout: float) -> bool:
        """Wait until a link has its carrier; False where that was not seen in time."""
        if index in self._running:
            return True
        return await self._wait(self._waiting_up, index, timeout)

    def leaving(self, index: int) -> "asyncio.Future[bool]":
        """Return a future of the link's removal; ask before removing it.

        Its value is True when the removal was announced, False when events were lost.
        """
        found = self._waiting_gone.get(index)
        if found is None:
            found = self._waiting_gone[index] = self._loop.create_future()
        return found

    async def _wait(
        self, waiting: dict[int, "asyncio.Future[bool]"], index: int, timeout: float
    ) -> bool:
        future = waiting.setdefault(index, self._loop.create_future())
        try:
            async with asyncio.timeout(timeout):
                return await asyncio.shield(future)
        except TimeoutError:
            waiting.pop(index, None)
            return False

    def _read(self) -> None:
        for _ in range(_PER_WAKEUP):
            try:
                data = self._socket.recv(_RECEIVE)
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno != errno.ENOBUFS:
                    raise
                self._release()
                self._on_loss()
                continue
            for reply in wire.replies(data):
                if reply.kind in {links.NEW, links.DELETE}:
                    self._take(reply)

    def _take(self, reply: wire.Reply) -> None:
        family, index, flags = links.identify(reply.body)
        if family:  # a bridge port's news: the link itself may well live on
            return
        if reply.kind == links.DELETE:
            _settle(self._waiting_gone.pop(index, None))
            self._running.discard(index)
        elif flags & links.RUNNING and index >= self._floor:
            self._running.add(index)
            _settle(self._waiting_up.pop(index, None))

    def _release(self) -> None:
        self._running.clear()
        for waiting in (self._waiting_gone, self._waiting_up):
            for future in waiting.values():
                _settle(future, announced=False)
            waiting.clear()


def _filter(listening: socket.socket) -> None:
    """Let the kernel drop what would only wake us: a new pair alone is ten announcements.

    What passes: links that go, and links that have their carrier; not a bridge's view of them.
    """
    program = (ctypes.c_char * (len(_FILTER) * _INSTRUCTION.size)).from_buffer_copy(
        b"".join(_INSTRUCTION.pack(*each) for each in _FILTER)
    )
    header = struct.pack("@HxxxxxxQ", len(_FILTER), ctypes.addressof(program))
    listening.setsockopt(socket.SOL_SOCKET, _ATTACH_FILTER, header)


def _settle(future: "asyncio.Future[bool] | None", *, announced: bool = True) -> None:
    if future is not None and not future.done():
        future.set_result(announced)
