"""Messages as bytes: what is packed can be read, and garbage is never more than nothing."""

import ipaddress

import pytest
from bitts.net import addresses, links, routes, wire
from hypothesis import given, settings
from hypothesis import strategies as st


def test_a_batch_is_numbered_and_asks_for_answers() -> None:
    batch = wire.packed([links.delete(index=7), links.delete(name="eth0")], 41)
    found = list(wire.replies(batch))
    assert [(each.kind, each.sequence, each.flags) for each in found] == [(17, 41, 5), (17, 42, 5)]
    assert links.identify(found[0].body)[1] == 7


@pytest.mark.parametrize(
    ("pack", "value"),
    [
        pytest.param(wire.u8, 7, id="u8"),
        pytest.param(wire.u16, 60000, id="u16"),
        pytest.param(wire.u32, 4_000_000_000, id="u32"),
    ],
)
def test_numbers_of_every_size_survive(pack, value) -> None:  # type: ignore[no-untyped-def]
    data = pack(3, value) + wire.text(4, "after")
    found = wire.attributes(memoryview(data))
    assert wire.number(found[3]) == value
    assert wire.string(found[4]) == "after"


@settings(max_examples=200)
@given(st.dictionaries(st.integers(0, 0x3FFF), st.binary(max_size=20), max_size=6))
def test_attributes_survive(pairs: dict[int, bytes]) -> None:
    data = b"".join(wire.attribute(kind, value) for kind, value in pairs.items())
    found = wire.attributes(memoryview(data))
    assert {kind: bytes(value) for kind, value in found.items()} == pairs


@settings(max_examples=200)
@given(st.binary(max_size=120))
def test_garbage_is_read_as_far_as_it_goes(data: bytes) -> None:
    for reply in wire.replies(data):
        wire.acknowledgement(reply)
    wire.attributes(memoryview(data))
    wire.listed(memoryview(data))


@settings(max_examples=100)
@given(st.binary(min_size=16, max_size=200))
def test_decoders_stand_garbage_after_the_header(data: bytes) -> None:
    reply = wire.Reply(16, 0, 1, memoryview(data))
    links.decode(reply)


@pytest.mark.parametrize("text", ["10.1.2.3/16", "fd00::5/64"])
def test_addresses_survive(text: str) -> None:
    interface = ipaddress.ip_interface(text)
    body = memoryview(addresses.add(9, interface, skips_dad=True).body)
    found = addresses.decode(wire.Reply(20, 0, 1, body))
    assert found is not None
    assert (found.index, found.interface) == (9, interface)
    assert bool(found.flags & addresses.NO_DAD) == (interface.version == 6)


@pytest.mark.parametrize(
    "route",
    [
        routes.Route(ipaddress.ip_network("0.0.0.0/0"), ipaddress.ip_address("10.0.0.1")),
        routes.Route(ipaddress.ip_network("::/0"), ipaddress.ip_address("fd00::1"), mtu=1280),
        routes.Route(
            ipaddress.ip_network("10.0.0.0/8"), None, 5, 70000, routes.LINK, 9,
            advmss=1000, source=ipaddress.ip_address("10.0.0.9"), protocol=routes.OURS,
        ),
    ],
)  # fmt: skip
def test_routes_survive(route: routes.Route) -> None:
    body = memoryview(routes.add(route).body)
    assert routes.decode(wire.Reply(24, 0, 1, body)) == route


def test_mac_addresses_are_read_in_every_notation() -> None:
    assert links.mac_bytes("02:00:00:aa:bb:cc") == links.mac_bytes("0200.00aa.bbcc")
    assert links.mac_text(links.mac_bytes("02-00-00-AA-BB-CC")) == "02:00:00:aa:bb:cc"
