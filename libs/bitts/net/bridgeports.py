"""Ports of bridges and the VLANs that go through them, in one dump (``linux/if_bridge.h``)."""

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from bitts.net import links, wire
from bitts.net.wire import Message, Reply

_FAMILY = 7
_INFO = struct.Struct("=BxHiII")
_MASTER, _AF_SPEC, _EXTENSIONS = 10, 26, 29
_WITH_STRETCHES = 4
_ENTRY = struct.Struct("=HH")
_BEGIN, _END = 8, 16


@dataclass(frozen=True, slots=True)
class Port:
    """A port by its link's index, its bridge's, and the VLANs it is in, tagged or not."""

    index: int
    bridge: int
    vlans: tuple[range, ...]

    def is_in(self, vlan: int) -> bool:
        """Say whether frames of a VLAN go through the port."""
        return any(vlan in stretch for stretch in self.vlans)


def every() -> Message:
    """Ask for the ports of all bridges; a bridge itself is told among them, with bridge 0."""
    return Message(
        links.GET, 0, _INFO.pack(_FAMILY, 0, 0, 0, 0) + wire.u32(_EXTENSIONS, _WITH_STRETCHES)
    )


@wire.decoder("a bridge port")
def decode(reply: Reply) -> Port:
    """Read one port. Raises NetlinkError."""
    _, _, index, _, _ = _INFO.unpack_from(reply.body)
    found = wire.attributes(reply.body[_INFO.size :])
    stretches = tuple(_stretches(found.get(_AF_SPEC, memoryview(b""))))
    return Port(index, wire.number(found.get(_MASTER)), stretches)


def _stretches(entries: memoryview) -> Iterator[range]:
    first = 0
    for entry in wire.listed(entries):
        if len(entry) != _ENTRY.size:  # how a card switches, which is said there too
            continue
        flags, number = _ENTRY.unpack(entry)
        if flags & _BEGIN:
            first = number
        elif flags & _END:
            yield range(first, number + 1)
        else:
            yield range(number, number + 1)
