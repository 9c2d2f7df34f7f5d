"""Tap devices: links whose other end is a program's, usually a virtual machine's.

The kernel makes them by ioctl on ``/dev/net/tun`` only (``linux/if_tun.h``), in the calling
thread's namespace. Until the last step a device goes with the descriptor, so that a maker who
dies leaves nothing.
"""

import ctypes
import fcntl
import os
import struct
from dataclasses import dataclass

DEVICE = "/dev/net/tun"

MULTI_QUEUE = 0x0100
WITHOUT_PACKET_INFO = 0x1000
VIRTIO_HEADER = 0x4000

_TAP, _EXCLUSIVE = 0x0002, 0x8000
_REQUEST = struct.Struct("16sH22x")
_SET_INTERFACE, _SET_PERSISTENT = 0x400454CA, 0x400454CB
_SET_OWNER, _SET_GROUP, _SET_INDEX = 0x400454CC, 0x400454CE, 0x400454DA


@dataclass(frozen=True, slots=True)
class Tap:
    """A device to make: ``flags`` beyond that it is a tap; None: anybody privileged may use it."""

    name: str
    index: int
    flags: int = 0
    owner: int | None = None
    group: int | None = None


def make(tap: Tap) -> None:
    """Make a device in the calling thread's namespace. Raises OSError, EBUSY for a taken name."""
    descriptor = os.open(DEVICE, os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.ioctl(descriptor, _SET_INDEX, struct.pack("=I", tap.index))
        request = _REQUEST.pack(tap.name.encode(), tap.flags | _TAP | _EXCLUSIVE)
        fcntl.ioctl(descriptor, _SET_INTERFACE, request)
        for command, value in ((_SET_OWNER, tap.owner), (_SET_GROUP, tap.group)):
            if value is not None:
                fcntl.ioctl(descriptor, command, ctypes.c_int(value).value)  # all 32 bits count
        fcntl.ioctl(descriptor, _SET_PERSISTENT, 1)
    finally:
        os.close(descriptor)
