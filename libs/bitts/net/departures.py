"""Removing links: told as soon as a link has gone, not when the kernel has cleared up after it.

A link goes within a millisecond, but the call that asks for it comes back only after an RCU wait
of 15 to 30. So a thread that has nothing else to do makes the call, and who wants to know listens
on the same socket: for the announcement that the link has gone, and for the kernel's refusal.
"""

import concurrent.futures
import errno
import secrets
import socket
import struct
from collections.abc import Mapping, Sequence

from bitts.net import filters, links, sockets, wire
from bitts.net.errors import NetlinkError
from bitts.net.wire import Message, Reply

CALLERS = 48
"""Threads that wait out RCU periods; with fewer, many removals at once wait for each other's."""

_LINK_GROUP = 1
_RECEIVE = 1 << 16
_TIMEOUT = struct.pack("@ll", int(sockets.TIMEOUT), 0)

_OWN_GROUPS, _GROUP_BITS = 0xB1000000, 24
"""Numbers of groups that links are in while they go, and in which nobody has any before."""


class Departures:
    """Asks for removals. Thread-safe; links are those of the namespace the daemon lives in."""

    def __init__(self) -> None:
        self._callers = concurrent.futures.ThreadPoolExecutor(CALLERS, "remove")

    def begin(self, leaving: Mapping[int, str]) -> "Departure":
        """Have links removed by their names; their indexes tell their announcements from others.

        Raises OSError.
        """
        departure = Departure(leaving)
        self._callers.submit(departure.ask)
        return departure

    def close(self) -> None:
        """Let the calls end that are being made. Blocks."""
        self._callers.shutdown()


class Departure:
    """Links that are going, by their indexes.

    Several are put into a group of their own and go as one: each alone would wait for the other.
    """

    def __init__(self, leaving: Mapping[int, str]) -> None:
        self._leaving = dict(leaving)
        self._messages = _messages([*leaving.values()])
        self._socket = socket.socket(
            socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, sockets.ROUTE
        )
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _TIMEOUT)
            filters.attach(self._socket, _filter([*leaving]))
            self._socket.bind((0, _LINK_GROUP))
        except OSError:
            self._socket.close()
            raise

    def ask(self) -> None:
        """Ask the kernel; returns when it has cleared up, whoever waits has long gone on."""
        try:
            self._socket.send(wire.packed(self._messages, 1))
        except OSError:  # the waiting was given up, and the socket closed
            self._socket.close()

    def wait(self) -> dict[int, NetlinkError]:
        """Wait until the links have gone. Returns the errors of those that did not, by index.

        Where there was none, that is an error too.
        """
        waiting, failed = dict(self._leaving), dict[int, NetlinkError]()
        try:
            while waiting:
                for reply in wire.replies(self._socket.recv(_RECEIVE)):
                    self._hear(reply, waiting, failed)
        except OSError as error:
            code = errno.ETIMEDOUT if isinstance(error, BlockingIOError) else error.errno
            for index, name in waiting.items():
                failed[index] = NetlinkError(code or errno.EIO, f"removing link {name}")
        finally:
            self._socket.close()
        return failed

    def _hear(self, reply: Reply, waiting: dict[int, str], failed: dict[int, NetlinkError]) -> None:
        """Take note of an announcement, or of an answer: about one link, or at last about all."""
        if reply.kind == links.DELETE:
            waiting.pop(links.identify(reply.body)[1], None)
            return
        answer = wire.acknowledgement(reply)
        is_last = answer.sequence == len(self._messages)
        if not (is_last or answer.error):
            return
        meant = [*waiting] if is_last else [[*self._leaving][answer.sequence - 1]]
        for index in meant:
            name = waiting.pop(index, "")
            if answer.error and name:
                failed[index] = NetlinkError(answer.error, f"removing link {name}", answer.text)


def _messages(names: Sequence[str]) -> list[Message]:
    if len(names) == 1:
        return [links.delete(name=names[0])]
    group = _OWN_GROUPS | secrets.randbits(_GROUP_BITS)
    return [*(links.regroup(name, group) for name in names), links.delete_group(group)]


def _filter(indexes: Sequence[int]) -> bytes:
    """Let pass the kernel's answers, and the ends of links (not only of their being ports)."""
    count = len(indexes)
    return filters.assembled(
        filters.load(filters.TYPE, 2),
        filters.equal(wire.ERROR, 2, then=count + 5),
        filters.equal(links.DELETE, 2, otherwise=count + 3),
        filters.load(filters.FAMILY, 1),
        filters.equal(0, 1, otherwise=count + 1),
        filters.load(filters.INDEX, 4),
        *(filters.equal(each, 4, then=count - place) for place, each in enumerate(indexes)),
        filters.verdict(passes=False),
        filters.verdict(passes=True),
    )
