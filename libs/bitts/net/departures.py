"""Removing links: told as soon as a link has gone, not when the kernel has cleared up after it.

A link goes within a millisecond, but the call that asks for it comes back only after an RCU wait
of 15 to 30. So a thread that has nothing else to do makes the call, and who wants to know listens
on the same socket: for the announcement that the link has gone, and for the kernel's refusal.
"""

import concurrent.futures
import errno
import socket
import struct

from bitts.net import filters, links, sockets, wire
from bitts.net.errors import NetlinkError

CALLERS = 48
"""Threads that wait out RCU periods; with fewer, many removals at once wait for each other's."""

_LINK_GROUP = 1
_RECEIVE = 1 << 16
_TIMEOUT = struct.pack("@ll", int(sockets.TIMEOUT), 0)

_HEAD = filters.assembled(
    filters.load(filters.TYPE, 2),
    filters.equal(wire.ERROR, 2, then=5),
    filters.equal(links.DELETE, 2, otherwise=5),
    filters.load(filters.FAMILY, 1),
    filters.equal(0, 1, otherwise=3),
    filters.load(filters.INDEX, 4),
)
"""What passes: the kernel's answer, and the end of one link (not only of its being a port)."""

_TAIL = filters.assembled(filters.verdict(passes=True), filters.verdict(passes=False))


class Departures:
    """Asks for removals. Thread-safe; links are those of the namespace the daemon lives in."""

    def __init__(self) -> None:
        self._callers = concurrent.futures.ThreadPoolExecutor(CALLERS, "remove")

    def begin(self, index: int, name: str) -> "Departure":
        """Have a link removed by its name; its ``index`` tells its announcement from others."""
        departure = Departure(index, name)
        self._callers.submit(departure.ask)
        return departure

    def close(self) -> None:
        """Let the calls end that are being made. Blocks."""
        self._callers.shutdown()


class Departure:
    """One link that is going."""

    def __init__(self, index: int, name: str) -> None:
        self._index = index
        self._name = name
        about = filters.assembled(filters.equal(index, 4, otherwise=1))
        self._socket = socket.socket(
            socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, sockets.ROUTE
        )
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _TIMEOUT)
            filters.attach(self._socket, _HEAD + about + _TAIL)
            self._socket.bind((0, _LINK_GROUP))
        except OSError:
            self._socket.close()
            raise

    def ask(self) -> None:
        """Ask the kernel; returns when it has cleared up, whoever waits has long gone on."""
        try:
            self._socket.send(wire.packed([links.delete(name=self._name)], 1))
        except OSError:  # the waiting was given up, and the socket closed
            self._socket.close()

    def wait(self) -> None:
        """Wait until the link has gone. Raises NetlinkError, also where there was none."""
        try:
            while not self._has_news(self._socket.recv(_RECEIVE)):
                continue
        except OSError as error:
            code = errno.ETIMEDOUT if isinstance(error, BlockingIOError) else error.errno
            raise NetlinkError(code or errno.EIO, f"removing link {self._name}") from None
        finally:
            self._socket.close()

    def _has_news(self, data: bytes) -> bool:
        for reply in wire.replies(data):
            if reply.kind == wire.ERROR:
                answer = wire.acknowledgement(reply)
                if answer.error:
                    raise NetlinkError(answer.error, f"removing link {self._name}", answer.text)
                return True
            if reply.kind == links.DELETE and links.identify(reply.body)[:2] == (0, self._index):
                return True
        return False
