"""Netlink sockets for worker threads: a batch in one call, answers checked one by one.

Requests of the rtnetlink and nfnetlink families are worked through inside ``send``, so a thread
of its own with a blocking socket is the fastest and simplest way to wait for them; the event
loop never touches these sockets. A socket belongs to the namespace it was opened in, for good.
"""

import errno
import socket
import struct
from collections.abc import Sequence

from bitts.net import wire
from bitts.net.errors import NetlinkError
from bitts.net.wire import Acknowledgement, Message, Reply

ROUTE = 0
NETFILTER = 12

_SOL_NETLINK = 270
_CAP_ACK = 10
_EXT_ACK = 11
_STRICT_CHECK = 12
_RECEIVE_BUFFER_FORCE = 33
_BUFFER = 1 << 20
_RECEIVE = 1 << 16
_BATCH = 64
"""Messages per send: their acknowledgements must fit into the receive buffer."""

TIMEOUT = 30.0
"""Seconds that one answer may take; the kernel answers at once, or after an RCU wait."""

_DUMP_TRIES = 5
_FIXED, _LAST = 0x80000000, 0xFFFFFFFF
"""Numbers of messages that are packed beforehand; those that are counted never get there."""

_ANSWER = struct.Struct("=IHHIIi")
_RECEIVE_ONE = 4096


class Socket:
    """One netlink socket of the calling thread's network namespace."""

    def __init__(self, protocol: int = ROUTE) -> None:
        self._socket = socket.socket(
            socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, protocol
        )
        self._sequence = 1
        try:
            for option in (_CAP_ACK, _EXT_ACK):
                self._socket.setsockopt(_SOL_NETLINK, option, 1)
            if protocol == ROUTE:
                self._socket.setsockopt(_SOL_NETLINK, _STRICT_CHECK, 1)
            limit = struct.pack("@ll", int(TIMEOUT), 0)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
        except OSError:
            self._socket.close()
            raise

    def enlarge(self) -> None:
        """Make room for large answers (needs privilege over the namespace)."""
        self._socket.setsockopt(socket.SOL_SOCKET, _RECEIVE_BUFFER_FORCE, _BUFFER)

    def close(self) -> None:
        """Close; the namespace is no longer held by this socket."""
        self._socket.close()

    def __enter__(self) -> "Socket":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def attempt(self, messages: Sequence[Message]) -> list[Acknowledgement]:
        """Send all messages and return the answer to each, in order.

        A batch is no transaction: messages after a failed one are carried out all the same.
        """
        answers: list[Acknowledgement] = []
        for start in range(0, len(messages), _BATCH):
            part = messages[start : start + _BATCH]
            first = self._advance(len(part))
            self._socket.send(wire.packed(part, first))
            answers += self._acknowledgements(first, len(part))
        return answers

    def perform(self, messages: Sequence[Message], what: str = "netlink request") -> None:
        """Send all messages; raises NetlinkError for the first that failed."""
        for answer in self.attempt(messages):
            if answer.error:
                raise NetlinkError(answer.error, what, answer.text)

    def transact(self, messages: Sequence[Message]) -> list[Acknowledgement]:
        """Send messages between the marks of an nftables batch: all of them count, or none.

        Returns an answer for each message that failed, empty when the transaction took place.
        """
        begin, end = _batch_mark(16), _batch_mark(17)
        first = self._advance(len(messages) + 2)
        buffer = (
            wire.bare(begin, first)
            + wire.packed(messages, first + 1)
            + wire.bare(end, first + len(messages) + 1)
        )
        self._socket.send(buffer)
        answers = self._acknowledgements(first + 1, len(messages), lone_error=first)
        return [answer for answer in answers if answer.error]

    def deliver(self, buffer: bytes, what: str = "netlink request") -> None:
        """Send what was packed beforehand: see ``deliver``, and close the socket if it fails."""
        deliver(self._socket, buffer, what)

    def query(self, message: Message, what: str = "netlink query") -> Reply:
        """Return the one answer to a query; raises NetlinkError."""
        sequence = self._advance(1)
        self._socket.send(wire.bare(message, sequence))
        while True:
            for reply in wire.replies(self._socket.recv(_RECEIVE)):
                if reply.sequence != sequence:
                    continue
                if reply.kind == wire.ERROR:
                    answer = wire.acknowledgement(reply)
                    raise NetlinkError(answer.error or errno.EPROTO, what, answer.text)
                return reply

    def dump(self, message: Message, what: str = "netlink dump") -> list[Reply]:
        """Return every answer to a dump; one that was interrupted by changes is repeated."""
        found: list[Reply] = []
        for _ in range(_DUMP_TRIES):
            found, interrupted = self._dump_once(message, what)
            if not interrupted:
                break
        return found

    def _dump_once(self, message: Message, what: str) -> tuple[list[Reply], bool]:
        sequence = self._advance(1)
        kind, flags, body = message
        self._socket.send(wire.bare(Message(kind, flags | wire.DUMP, body), sequence))
        found: list[Reply] = []
        interrupted = False
        while True:
            for reply in wire.replies(self._socket.recv(_RECEIVE)):
                if reply.sequence != sequence:
                    continue
                interrupted |= bool(reply.flags & wire.DUMP_INTERRUPTED)
                if reply.kind == wire.ERROR:
                    answer = wire.acknowledgement(reply)
                    raise NetlinkError(answer.error or errno.EPROTO, what, answer.text)
                if reply.kind == wire.DONE:
                    return found, interrupted
                found.append(reply)

    def _advance(self, count: int) -> int:
        if self._sequence + count > 0x7FFFFFFF:
            self._sequence = 1
        first = self._sequence
        self._sequence += count
        return first

    def _acknowledgements(
        self, first: int, count: int, *, lone_error: int | None = None
    ) -> list[Acknowledgement]:
        """Collect ``count`` answers; an error about the batch as a whole ends the waiting."""
        answers: dict[int, Acknowledgement] = {}
        while len(answers) < count:
            for reply in wire.replies(self._socket.recv(_RECEIVE)):
                if reply.kind != wire.ERROR:
                    continue
                answer = wire.acknowledgement(reply)
                if answer.sequence == lone_error and answer.error:
                    return [answer]
                if first <= answer.sequence < first + count:
                    answers[answer.sequence] = answer
        return [answers[first + index] for index in range(count)]


def delivery(messages: Sequence[Message]) -> bytes:
    """Return a batch as ``deliver`` sends it: whether all went well, its last answer tells."""
    return _numbered(messages, _FIXED)


def transaction(messages: Sequence[Message]) -> bytes:
    """Return a transaction of nftables as ``deliver`` sends it."""
    begin, end = _batch_mark(16), _batch_mark(17)
    return (
        wire.bare(begin, _FIXED)
        + _numbered(messages, _FIXED + 1)
        + wire.bare(end, _FIXED + len(messages) + 1)
    )


def _numbered(messages: Sequence[Message], first: int) -> bytes:
    """Let only the last message be acknowledged, and give it a number that says so."""
    *others, last = messages
    silent = [wire.bare(each, first + index) for index, each in enumerate(others)]
    return b"".join(silent) + wire.packed([last], _LAST)


def bare() -> socket.socket:
    """Return an rtnetlink socket of the calling thread's namespace for ``deliver``, nothing else.

    What was sent is answered before ``send`` returns, so nobody ever waits for an answer.
    """
    return socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, ROUTE)


def deliver(channel: socket.socket, buffer: bytes, what: str) -> None:
    """Send what ``delivery`` or ``transaction`` made. Raises NetlinkError for what failed.

    After that answers may still come: the socket must be closed then.
    """
    channel.send(buffer)
    while True:
        answer = channel.recv(_RECEIVE_ONE, socket.MSG_DONTWAIT)
        if len(answer) < _ANSWER.size:
            raise NetlinkError(errno.EPROTO, what)
        _, kind, _, sequence, _, error = _ANSWER.unpack_from(answer)
        if kind != wire.ERROR or sequence < _FIXED:
            continue  # to a question of earlier on
        if error:
            raise NetlinkError(-error, what)
        if sequence == _LAST:
            return


def _batch_mark(kind: int) -> Message:
    return Message(kind, 0, b"\0\0\0\x0a")  # addressed to the nftables subsystem
