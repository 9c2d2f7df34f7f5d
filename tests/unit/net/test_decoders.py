"""Every decoder beside garbage: what the kernel never sends is a NetlinkError and nothing else.

Real messages are those that the running kernel sends, and those that we would send it ourselves,
which have the same form. ``BITTS_EXAMPLES`` is how many are tried of each kind.
"""

import ipaddress
import os
from collections.abc import Callable, Sequence

import pytest
from bitts.net import addresses, bridgeports, links, nftables, routes, rules, tc, wire
from bitts.net.errors import NetlinkError
from bitts.net.links import Change
from bitts.net.nftables import Container, Element, Goto
from bitts.net.routes import Route
from bitts.net.rules import Rule
from bitts.net.sockets import Socket
from bitts.net.wire import Message, Reply
from hypothesis import given, settings
from hypothesis import strategies as st

EXAMPLES = int(os.environ.get("BITTS_EXAMPLES", "80"))

FOUR, SIX = ipaddress.ip_interface("10.0.0.9/24"), ipaddress.ip_interface("fd00::9/64")
SET = Container("bitts_cni", "masq4")
PACKED: dict[str, Sequence[Message]] = {
    "addresses": [addresses.add(7, FOUR), addresses.add(7, SIX, skips_dad=True)],
    "routes": [
        routes.add(Route(FOUR.network, mtu=1400, advmss=1000, source=FOUR.ip)),
        routes.add(Route(SIX.network, SIX.ip + 1, 7, 70000, priority=5)),
    ],
    "rules": [rules.add(Rule(4, 70000, FOUR.ip, 24, 9)), rules.add(Rule(6, 99, SIX.ip))],
    "links": [
        links.create("vlan", "v0", data=links.kind_data("vlan", 7), lower=3),
        links.bridge("br0", mac="02:00:00:00:00:01", mtu=1400, filters_vlans=True),
        links.change(7, Change(hairpin=True, isolated=True)),
    ],
    "ports": [
        links.port_vlan(7, 5, is_pvid=True),
        links.change(7, Change(hairpin=True, isolated=True)),
    ],
    "identity": [links.delete(index=7)],
    "qdiscs": [tc.shape(7, tc.bucket(1 << 34, 1 << 20, latency=0.025)), tc.ingress(7)],
    "sets": [nftables.every(SET)],
    "placed": [nftables.rules("bitts_cni")],
    "elements": [
        nftables.add(SET, [Element(FOUR.ip.packed, Goto("masq")), Element(FOUR.ip.packed, b"abcd")])
    ],
}
ASKED = {
    "addresses": addresses.of_link(), "routes": routes.every(), "rules": rules.every(),
    "links": links.every(), "identity": links.every(), "ports": bridgeports.every(),
}  # fmt: skip
"""What the kernel is asked for, by anyone."""

DECODERS: dict[str, Callable[[Reply], object]] = {
    "addresses": addresses.decode,
    "routes": routes.decode,
    "rules": rules.decode,
    "links": links.decode,
    "ports": bridgeports.decode,
    "identity": lambda reply: links.identify(reply.body),
    "qdiscs": tc.decode,
    "sets": nftables.decode_set,
    "placed": nftables.decode_rule,
    "elements": nftables.decode,
}


def decoded(name: str, body: bytes) -> object:
    """Return what is read from a body, the NetlinkError where that is what comes of it."""
    try:
        return DECODERS[name](Reply(16, 0, 1, memoryview(body)))
    except NetlinkError as error:
        return error


def real(name: str) -> list[bytes]:
    """Return bodies of messages that are well-formed."""
    bodies = [message.body for message in PACKED[name]]
    if name in ASKED:
        with Socket() as channel:
            bodies += [bytes(each.body) for each in channel.dump(ASKED[name])]
    return bodies


@pytest.fixture(params=DECODERS)
def name(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


def test_what_is_well_formed_is_read(name: str) -> None:
    for body in real(name):
        assert not isinstance(decoded(name, body), NetlinkError)


def test_what_is_cut_off_is_read_or_refused(name: str) -> None:
    for body in real(name):
        for length in range(min(len(body), 300)):
            decoded(name, body[:length])
    assert isinstance(decoded(name, b""), NetlinkError) or name == "elements"


@pytest.mark.parametrize("name", DECODERS)
def test_what_is_changed_is_read_or_refused(name: str) -> None:
    bodies = st.sampled_from(real(name))
    changes = st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), min_size=1, max_size=4)

    @settings(max_examples=EXAMPLES, deadline=None, database=None)
    @given(bodies, changes, st.binary(max_size=8))
    def changed(body: bytes, changes: list[tuple[int, int]], rest: bytes) -> None:
        made = bytearray(body)
        for place, value in changes:
            made[place % len(made)] = value
        decoded(name, bytes(made) + rest)

    changed()


@pytest.mark.parametrize("name", DECODERS)
def test_garbage_is_read_or_refused(name: str) -> None:
    @settings(max_examples=EXAMPLES, deadline=None, database=None)
    @given(st.binary(max_size=120))
    def garbage(body: bytes) -> None:
        decoded(name, body)

    garbage()


def attributes() -> st.SearchStrategy[bytes]:
    """Return bodies' tails: attributes of likely types, with values of any length, nested."""
    pairs = st.tuples(st.integers(1, 40), st.binary(max_size=40))
    leaf = st.lists(pairs, max_size=3).map(_joined)
    return st.lists(st.tuples(st.integers(1, 40), leaf | st.binary(max_size=40))).map(_joined)


def _joined(pairs: Sequence[tuple[int, bytes]]) -> bytes:
    return b"".join(wire.attribute(kind, value) for kind, value in pairs)


@pytest.mark.parametrize("name", DECODERS)
def test_attributes_of_any_type_and_length_are_read_or_refused(name: str) -> None:
    headers = st.sampled_from([body[:length] for body in real(name) for length in (4, 12, 16, 20)])

    @settings(max_examples=EXAMPLES, deadline=None, database=None)
    @given(headers, attributes())
    def attributed(header: bytes, tail: bytes) -> None:
        decoded(name, header + tail)

    attributed()


@pytest.mark.parametrize(
    ("name", "body", "words"),
    [
        ("addresses", b"\2", "an address"),
        ("addresses", bytes([2, 40, 0, 0, 7, 0, 0, 0]) + wire.attribute(2, b"abcd"), "40"),
        ("addresses", bytes([2, 24, 0, 0, 7, 0, 0, 0]) + wire.attribute(2, b"abc"), "b'abc'"),
        ("routes", bytes([10, 200, 0, 0, 254, 3, 0, 1, 0, 0, 0, 0]), "200"),
        ("sets", b"", "an nftables set"),
    ],
)
def test_a_refusal_says_what_was_read(name: str, body: bytes, words: str) -> None:
    found = decoded(name, body)
    assert isinstance(found, NetlinkError)
    assert words in str(found)
    assert not found.is_missing
