"""Leases: what an ACK means, and what is due when."""

import ipaddress
from dataclasses import replace

import pytest
from bitts.cni import results
from bitts.cni.errors import CniError
from cni_daemon.dhcp import leases
from cni_daemon.dhcp.leases import Due, Lease
from cni_daemon.dhcp.packets import Kind, Option, Packet, PacketError
from cni_daemon.ipam import dhcp
from hypothesis import given
from hypothesis import strategies as st
from support import cnicalls

SERVER = ipaddress.IPv4Address("10.0.0.1").packed


def ack(options: dict[int, bytes], yours: str = "10.0.0.9") -> Packet:
    return Packet(
        Kind.ACK, 1, "02:00:00:00:00:01", {Option.SERVER: SERVER, **options},
        yours=ipaddress.IPv4Address(yours),
    )  # fmt: skip


def lease(seconds: int = 1000) -> Lease:
    given = {Option.LEASE_TIME: seconds.to_bytes(4, "big")}
    return leases.acknowledged(ack({int(k): v for k, v in given.items()}), "00", now=100.0)


def test_times_are_those_of_the_reference_unless_the_server_says_others() -> None:
    plain = leases.acknowledged(ack({}), "00", now=0.0)
    assert (plain.renewal, plain.rebinding, plain.end) == (1800.0, 3060.0, 3600.0)
    said = leases.acknowledged(
        ack({Option.LEASE_TIME: b"\0\0\0\x64", Option.RENEWAL_TIME: b"\0\0\0\x05",
             Option.REBINDING_TIME: b"\0\0\0\x10"}), "00", now=0.0,
    )  # fmt: skip
    assert (said.renewal, said.rebinding, said.end) == (5.0, 16.0, 100.0)
    nonsense = leases.acknowledged(
        ack({Option.LEASE_TIME: b"\0\0\0\x64", Option.RENEWAL_TIME: b"\0\0\xff\xff",
             Option.REBINDING_TIME: b"\0\0\xff\xff"}), "00", now=0.0,
    )  # fmt: skip
    assert (nonsense.renewal, nonsense.rebinding, nonsense.end) == (100.0, 100.0, 100.0)
    endless = leases.acknowledged(ack({Option.LEASE_TIME: b"\xff" * 4}), "00", now=0.0)
    assert endless.end is None
    assert leases.due(endless, 1e9)[0] is Due.WAIT


@pytest.mark.parametrize(
    ("at", "tried", "what", "pause"),
    [
        (100.0, 0.0, Due.WAIT, 500.0),
        (600.0, 0.0, Due.RENEW, 0.0),
        (601.0, 600.0, Due.WAIT, 174.0),  # half of what is left until rebinding
        (949.0, 940.0, Due.WAIT, 1.0),  # never past it
        (950.0, 949.0, Due.REBIND, 0.0),
        (951.0, 950.0, Due.WAIT, 74.0),
        (1090.0, 1060.0, Due.WAIT, 10.0),  # nor past the end
        (1100.0, 1099.0, Due.EXPIRE, 0.0),
    ],
)
def test_what_is_due(at: float, tried: float, what: Due, pause: float) -> None:
    found, left = leases.due(replace(lease(), tried=tried), at)
    assert found is what
    assert left == pytest.approx(pause)


@given(st.floats(0, 5000), st.floats(0, 5000), st.integers(1, 4000))
def test_whoever_waits_as_long_as_is_said_gets_to_the_end(
    start: float, tried: float, seconds: int
) -> None:
    kept, at = replace(lease(seconds), tried=tried), start
    for _ in range(500):
        what, pause = leases.due(kept, at)
        if what is Due.EXPIRE:
            assert kept.end is not None
            assert at >= kept.end
            return
        if what is Due.WAIT:
            assert pause > 0
            at += pause
        else:
            assert pause == 0
            kept = kept.attempted(at)
            at += 0.01
    raise AssertionError("it never ends")


def test_a_lease_comes_back_from_its_document() -> None:
    made = replace(lease(), routers=("10.0.0.1",), provided={"12": "6162"})
    assert leases.from_document(made.document()) == made


def test_old_routes_and_the_router_count_without_classless_ones() -> None:
    addresses = b"".join(
        ipaddress.IPv4Address(each).packed
        for each in ("10.0.0.0", "10.0.0.2", "192.168.7.1", "10.0.0.3", "0.0.0.0", "10.0.0.4")
    )
    given = {
        Option.STATIC_ROUTES: addresses, Option.ROUTERS: SERVER,
        Option.SUBNET_MASK: b"\xff\xff\xff\0",
    }  # fmt: skip
    found = leases.result(
        leases.acknowledged(ack({int(k): v for k, v in given.items()}), "00", 0.0), 5
    )
    routes = [(str(each.destination), str(each.gateway), each.priority) for each in found.routes]
    assert routes == [
        ("10.0.0.0/8", "10.0.0.2", 5), ("192.168.7.0/24", "10.0.0.3", 5),
        ("0.0.0.0/0", "10.0.0.1", 5),
    ]  # fmt: skip
    assert str(found.ips[0].address) == "10.0.0.9/24"


def test_classless_routes_stand_for_all() -> None:
    data = bytes([0, *SERVER, 24, 10, 9, 8, 0, 0, 0, 0, 33, 1])
    given = {int(Option.CLASSLESS_ROUTES): data, int(Option.ROUTERS): SERVER}
    found = leases.result(leases.acknowledged(ack(given), "00", 0.0))
    assert found.routes == (
        results.Route(results.parse_interface("0.0.0.0/0"), ipaddress.IPv4Address("10.0.0.1")),
        results.Route(results.parse_interface("10.9.8.0/24"), ipaddress.IPv4Address(0), scope=253),
    )
    assert str(found.ips[0].address) == "10.0.0.9/8", "the mask of its class"


@pytest.mark.parametrize(
    "packet",
    [ack({}, "0.0.0.0"), ack({Option.SERVER: b""}), ack({Option.SUBNET_MASK: b"\xff\0\xff\0"})],
    ids=["no address", "no server", "odd mask"],
)
def test_an_ack_that_makes_no_sense_is_refused(packet: Packet) -> None:
    with pytest.raises(PacketError):
        leases.acknowledged(packet, "00", 0.0)


def test_the_configuration_says_what_is_asked_and_told() -> None:
    plain = cnicalls.call({"type": "bridge", "ipam": {"type": "dhcp"}})
    found = dhcp.parse(plain.config, plain)
    assert list(found.parameters) == [3, 1, 58, 59]
    assert bytes.fromhex(found.client_id) == b"\0c1/net/eth0"
    document = {
        "type": "bridge",
        "ipam": {"type": "dhcp", "priority": 9, "request": [{"option": "routers"},
                 {"skipDefault": True}, {"option": "42"}],
                 "provide": [{"option": "host-name", "fromArg": "K8S_POD_NAME"},
                             {"option": "77", "value": "x"}]},
    }  # fmt: skip
    call = cnicalls.call(document, args="K8S_POD_NAME=web")
    asked = dhcp.parse(call.config, call)
    assert list(asked.parameters) == [3, 42, 58, 59]
    assert (asked.provided, asked.priority) == ({12: b"web", 77: b"x"}, 9)
    long = cnicalls.call({"type": "bridge", "ipam": {"type": "dhcp"}}, container="c" * 250)
    assert len(dhcp.parse(long.config, long).client_id) == 2 * 254


@pytest.mark.parametrize(
    ("ipam", "message"),
    [
        ({"request": [{"option": "weather"}]}, "option 'weather' is neither"),
        ({"request": [{"option": "256"}]}, "option '256' is neither"),
        ({"provide": [{"option": "12", "value": "x" * 256}]}, "longer than 255 bytes"),
        ({"provide": [{"option": "53", "value": "x"}]}, "option 53 is set by the client"),
        ({"priority": -1}, "priority"),
    ],
)
def test_a_wrong_option_is_named(ipam: dict[str, object], message: str) -> None:
    call = cnicalls.call({"type": "bridge", "ipam": {"type": "dhcp", **ipam}})
    with pytest.raises(CniError, match=message):
        dhcp.parse(call.config, call)
