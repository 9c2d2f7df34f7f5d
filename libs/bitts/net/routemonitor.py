"""Tells that routes of one protocol may have changed, without saying how.

The kernel announces routes that are added and removed, but not those of IPv4 that go with their
link, and it loses announcements when too many come. So whoever wants to know looks at the
routes again; this only says when that is worth it.
"""

import asyncio
import ctypes
import errno
import socket
import struct
import sys

from bitts.net import links, routes

_GROUPS = (1, 7, 11)
"""Links, and routes of either IP version (``linux/rtnetlink.h``)."""

_SOL_NETLINK, _ADD_MEMBERSHIP = 270, 1
_RECEIVE = 1 << 16
_ATTACH_FILTER = 26
_INSTRUCTION = struct.Struct("=HBBI")
_LOAD_HALF, _LOAD_BYTE, _LOAD_WORD = 0x28, 0x30, 0x20
_EQUAL, _ANY_BIT, _RETURN = 0x15, 0x45, 0x06
_ALL = 0xFFFFFFFF
_PROTOCOL_AT, _FLAGS_AT = 21, 24


def _as_loaded(number: int, size: int) -> int:
    return int.from_bytes(number.to_bytes(size, sys.byteorder), "big")


def _filter(protocol: int) -> list[tuple[int, int, int, int]]:
    """Let through: routes of the protocol, links that go, and links that are switched off."""
    return [
        (_LOAD_HALF, 0, 0, 4),
        (_EQUAL, 7, 0, _as_loaded(links.DELETE, 2)),
        (_EQUAL, 4, 0, _as_loaded(links.NEW, 2)),
        (_EQUAL, 1, 0, _as_loaded(routes.NEW, 2)),
        (_EQUAL, 0, 5, _as_loaded(routes.DELETE, 2)),
        (_LOAD_BYTE, 0, 0, _PROTOCOL_AT),
        (_EQUAL, 2, 3, protocol),
        (_LOAD_WORD, 0, 0, _FLAGS_AT),
        (_ANY_BIT, 1, 0, _as_loaded(links.UP, 4)),
        (_RETURN, 0, 0, _ALL),
        (_RETURN, 0, 0, 0),
    ]


class RouteMonitor:
    """Listens in the namespace in which it is opened, on the event loop."""

    def __init__(self, protocol: int = routes.OURS) -> None:
        self._changed = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._socket = socket.socket(
            socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC, 0
        )
        program = _filter(protocol)
        packed = b"".join(_INSTRUCTION.pack(*each) for each in program)
        code = (ctypes.c_char * len(packed)).from_buffer_copy(packed)
        header = struct.pack("@HxxxxxxQ", len(program), ctypes.addressof(code))
        self._socket.setsockopt(socket.SOL_SOCKET, _ATTACH_FILTER, header)
        self._socket.bind((0, 0))
        for group in _GROUPS:
            self._socket.setsockopt(_SOL_NETLINK, _ADD_MEMBERSHIP, group)
        self._loop.add_reader(self._socket.fileno(), self._read)

    def close(self) -> None:
        """Stop listening."""
        self._loop.remove_reader(self._socket.fileno())
        self._socket.close()

    async def wait(self) -> None:
        """Return once something may have changed since this returned last."""
        await self._changed.wait()
        self._changed.clear()

    def _read(self) -> None:
        self._changed.set()
        while True:
            try:
                self._socket.recv(_RECEIVE)
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno != errno.ENOBUFS:
                    raise
