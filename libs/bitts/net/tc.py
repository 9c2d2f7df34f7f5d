"""Traffic control: a token bucket on a link, and what arrives at a link sent through another.

Numbers and structures are those of ``linux/pkt_sched.h`` and ``linux/pkt_cls.h``. A bucket's
size travels as the time that it takes to fill, in ticks of 64 ns, 32 bits wide: what does not
fit is cut to the largest that does, not wrapped around.
"""

import errno
import socket
import struct
from dataclasses import dataclass

from bitts.net import wire
from bitts.net.errors import NetlinkError
from bitts.net.sockets import Socket
from bitts.net.wire import Message, Reply

NEW, DELETE, GET = 36, 37, 38
_NEW_FILTER = 44
ROOT, INGRESS = 0xFFFFFFFF, 0xFFFFFFF1
_INGRESS_HANDLE, _BUCKET_HANDLE = 0xFFFF0000, 0x10000

_ECHO = 0x8
_INFO = struct.Struct("=BxxxiIII")
_KIND, _OPTIONS = 1, 2
_RATE_SPEC = struct.Struct("=BBHhHI")
_BUCKET = struct.Struct("=III")
_BUCKET_PARAMETERS, _BUCKET_RATE64 = 1, 4
_ETHERNET = 1
"""The link layer named in a rate, without which a table of sizes would be needed."""

_EVERY_PROTOCOL = 3
_FIRST = 1
_FLOW = 0x10001
_U32_CLASS, _U32_SELECTOR, _U32_ACTION = 1, 5, 7
_MATCH_ALL = struct.pack("=BBBxHHhhI", 1, 0, 1, 0, 0, 0, 0, 0) + struct.pack("=IIii", 0, 0, 0, 0)
_STOLEN, _REDIRECT = 4, 1
_LIMIT = 0xFFFFFFFF
_MICROSECONDS = 1_000_000
_TICKS = 15.625
"""Ticks of a microsecond, since Linux 2.6.31 (``/proc/net/psched`` says the same everywhere)."""


@dataclass(frozen=True, slots=True)
class Bucket:
    """A token bucket: ``rate`` in bytes per second, ``buffer`` in ticks, ``limit`` in bytes."""

    rate: int
    buffer: int
    limit: int


@dataclass(frozen=True, slots=True)
class Discipline:
    """A queueing discipline as the kernel describes it; ``bucket`` if it is one."""

    kind: str
    index: int
    parent: int
    bucket: Bucket | None = None


def bucket(rate: int, burst: int, *, latency: float) -> Bucket:
    """Return the bucket for a rate and a burst in bytes, in which nobody waits above ``latency``.

    ``latency`` is in seconds. The arithmetic is that of the reference plugin, but it saturates.
    """
    rate = max(rate, 1)
    ticks = int(int(burst * _MICROSECONDS / rate) * _TICKS)
    return Bucket(rate, min(ticks, _LIMIT), min(int(rate * latency) + burst, _LIMIT))


def shape(index: int, wanted: Bucket) -> Message:
    """Let a link send no faster than a bucket allows; one that is there is changed."""
    rate = _RATE_SPEC.pack(0, _ETHERNET, 0, 0, 0, min(wanted.rate, _LIMIT))
    packed = rate + bytes(_RATE_SPEC.size) + _BUCKET.pack(wanted.limit, wanted.buffer, 0)
    options = wire.attribute(_BUCKET_PARAMETERS, packed)
    if wanted.rate > _LIMIT:
        options += wire.attribute(_BUCKET_RATE64, struct.pack("=Q", wanted.rate))
    body = (
        _INFO.pack(0, index, _BUCKET_HANDLE, ROOT, 0)
        + wire.text(_KIND, "tbf")
        + wire.nested(_OPTIONS, options)
    )
    return Message(NEW, wire.CREATE | wire.REPLACE, body)


def ingress(index: int) -> Message:
    """Make the place where filters meet what arrives at a link."""
    body = _INFO.pack(0, index, _INGRESS_HANDLE, INGRESS, 0) + wire.text(_KIND, "ingress")
    return Message(NEW, wire.CREATE | wire.EXCLUSIVE, body)


def remove_ingress(index: int) -> Message:
    """Remove that place and its filters."""
    return Message(DELETE, 0, _INFO.pack(0, index, _INGRESS_HANDLE, INGRESS, 0))


def redirect(index: int, target: int) -> Message:
    """Send all that arrives at a link through another one first."""
    parameters = struct.pack("=IIiiiiI", 0, 0, _STOLEN, 0, 0, _REDIRECT, target)
    action = wire.nested(
        1, wire.text(1, "mirred"), wire.nested(2 | wire.NESTED, wire.attribute(2, parameters))
    )
    options = (
        wire.u32(_U32_CLASS, _FLOW)
        + wire.attribute(_U32_SELECTOR, _MATCH_ALL)
        + wire.attribute(_U32_ACTION, action)
    )
    place = (_FIRST << 16) | socket.htons(_EVERY_PROTOCOL)
    body = (
        _INFO.pack(0, index, 0, _INGRESS_HANDLE, place)
        + wire.text(_KIND, "u32")
        + wire.nested(_OPTIONS, options)
    )
    return Message(_NEW_FILTER, wire.CREATE | wire.EXCLUSIVE, body)


def find(channel: Socket, index: int, parent: int) -> Discipline | None:
    """Return a link's discipline at ``ROOT`` or ``INGRESS``, None for none or a built-in one.

    The kernel answers only those who want an echo, and tells nothing of built-in ones, so an
    acknowledgement is asked for as well.
    Raises NetlinkError.
    """
    message = Message(GET, wire.ACK | _ECHO, _INFO.pack(0, index, 0, parent, 0))
    try:
        return decode(channel.query(message, "looking for a qdisc"))
    except NetlinkError as error:
        if error.is_missing or error.code == errno.EPROTO:
            return None
        raise


@wire.decoder("a qdisc")
def decode(reply: Reply) -> Discipline:
    """Read a discipline's description. Raises NetlinkError."""
    _, index, _, parent, _ = _INFO.unpack_from(reply.body)
    found = wire.attributes(reply.body[_INFO.size :])
    kind = wire.string(found.get(_KIND))
    options = wire.attributes(found.get(_OPTIONS, memoryview(b""))) if kind == "tbf" else {}
    return Discipline(kind, index, parent, _bucket(options))


def _bucket(options: dict[int, memoryview]) -> Bucket | None:
    packed = options.get(_BUCKET_PARAMETERS)
    if packed is None:
        return None
    *_, rate = _RATE_SPEC.unpack_from(packed)
    limit, buffer, _ = _BUCKET.unpack_from(packed, 2 * _RATE_SPEC.size)
    return Bucket(wire.number(options.get(_BUCKET_RATE64), rate), buffer, limit)
