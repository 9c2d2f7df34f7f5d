"""Socket filters: the kernel drops announcements that would only wake us, before they cost.

One new veth pair is ten announcements. A filter is a short program of the classic BPF machine
(``linux/filter.h``); offsets count from the netlink header, numbers are compared as the machine
wrote them.
"""

import ctypes
import socket
import struct
import sys

TYPE, FAMILY, INDEX = 4, 16, 20
"""Where a link's message has its type, its address family, and the link's index."""

_ATTACH = 26
_INSTRUCTION = struct.Struct("=HBBI")
_LOAD = {1: 0x30, 2: 0x28, 4: 0x20}
_EQUAL, _ANY_BIT, _RETURN = 0x15, 0x45, 0x06
_ALL = 0xFFFFFFFF

Instruction = tuple[int, int, int, int]


def load(offset: int, size: int) -> Instruction:
    """Take a number of so many bytes."""
    return _LOAD[size], 0, 0, offset


def equal(number: int, size: int, *, then: int = 0, otherwise: int = 0) -> Instruction:
    """Compare with what was loaded, and skip so many instructions."""
    return _EQUAL, then, otherwise, _as_loaded(number, size)


def any_bit(mask: int, size: int, *, then: int = 0, otherwise: int = 0) -> Instruction:
    """Ask whether any of these bits is set in what was loaded, and skip as ``equal`` does."""
    return _ANY_BIT, then, otherwise, _as_loaded(mask, size)


def verdict(*, passes: bool) -> Instruction:
    """End, and let the message through or not."""
    return _RETURN, 0, 0, _ALL if passes else 0


def _as_loaded(number: int, size: int) -> int:
    """Return a number in the machine's order as it is loaded, which is the network's."""
    return int.from_bytes(number.to_bytes(size, sys.byteorder), "big")


def assembled(*program: Instruction) -> bytes:
    """Return instructions as the kernel takes them; pieces may be joined."""
    return b"".join(_INSTRUCTION.pack(*each) for each in program)


def attach(listening: socket.socket, code: bytes) -> None:
    """Have a socket filtered by an assembled program. Raises OSError."""
    kept = (ctypes.c_char * len(code)).from_buffer_copy(code)
    header = struct.pack("@HxxxxxxQ", len(code) // _INSTRUCTION.size, ctypes.addressof(kept))
    listening.setsockopt(socket.SOL_SOCKET, _ATTACH, header)
