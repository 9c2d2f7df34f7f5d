"""VLANs of bridge ports, as the kernel tells them: single ones, and first and last of a stretch."""

import struct

from bitts.net import bridgeports, wire
from hypothesis import given
from hypothesis import strategies as st

BEGIN, END, OWN = 8, 16, 6


def entry(flags: int, vlan: int) -> bytes:
    return wire.attribute(2, struct.pack("=HH", flags, vlan))


def told(index: int, bridge: int, stretches: list[tuple[int, int]]) -> wire.Reply:
    """Return what the kernel says of a port; a card's own switch is described there too."""
    entries = [wire.u16(1, 1)]
    for first, last in stretches:
        if first == last:
            entries.append(entry(OWN, first))
        else:
            entries += [entry(BEGIN, first), entry(END, last)]
    body = struct.pack("=BxHiII", 7, 0, index, 0, 0)
    body += wire.u32(10, bridge) + wire.nested(26, *entries)
    return wire.Reply(16, 0, 1, memoryview(body))


@given(st.lists(st.integers(1, 4094), unique=True, max_size=8))
def test_a_port_is_in_the_vlans_of_its_stretches_and_in_no_other(edges: list[int]) -> None:
    ordered = sorted(edges)
    stretches = [*zip(ordered[::2], ordered[1::2], strict=False)]
    stretches += [(ordered[-1], ordered[-1])] if len(ordered) % 2 else []
    port = bridgeports.decode(told(9, 7, stretches))
    assert (port.index, port.bridge) == (9, 7)
    for vlan in {1, 4094, *(each + d for each in edges for d in (-1, 0, 1))}:
        assert port.is_in(vlan) == any(first <= vlan <= last for first, last in stretches)
