"""Ranges: what host-local accepts, and the order in which addresses are given."""

import ipaddress

import pytest
from bitts.cni import results
from bitts.cni.documents import Fields
from cni_daemon.ipam import ranges
from cni_daemon.ipam.ranges import Range, RangeError
from hypothesis import given, settings
from hypothesis import strategies as st


def read(**keys: str) -> Range:
    return ranges.read(Fields(keys))


def test_defaults_leave_out_network_and_broadcast() -> None:
    found = read(subnet="10.1.2.0/24")
    assert (str(found), str(found.gateway)) == ("10.1.2.1-10.1.2.254", "10.1.2.1")
    assert str(read(subnet="fd00::/120")) == "fd00::1-fd00::ff"


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({}, "missing subnet"),
        ({"subnet": "10.0.0.0/31"}, "Network 10.0.0.0/31 too small to allocate from"),
        ({"subnet": "fd00::/127"}, "too small"),
        ({"subnet": "10.0.0.1/24"}, "Network has host bits set"),
        ({"subnet": "10.0.0.0/24", "gateway": "10.1.0.1"}, "gateway 10.1.0.1 not in network"),
        ({"subnet": "10.0.0.0/24", "gateway": "fd00::1"}, "gateway fd00::1 not in network"),
        ({"subnet": "10.0.0.0/24", "rangeStart": "10.1.0.1"}, "RangeStart 10.1.0.1 not in network"),
        ({"subnet": "10.0.0.0/24", "rangeEnd": "9.0.0.1"}, "RangeEnd 9.0.0.1 not in network"),
        (
            {"subnet": "10.0.0.0/24", "rangeStart": "10.0.0.9", "rangeEnd": "10.0.0.8"},
            "RangeStart 10.0.0.9 is after RangeEnd 10.0.0.8 in network 10.0.0.0/24",
        ),
    ],
)
def test_ranges_that_make_no_sense_are_refused(keys: dict[str, str], message: str) -> None:
    with pytest.raises(RangeError, match=message.replace("/", "/")):
        read(**keys)


@pytest.mark.parametrize(
    ("sets", "message"),
    [
        ([()], "invalid range set 0: empty"),
        (
            [(read(subnet="10.0.0.0/24"), read(subnet="fd00::/64"))],
            "invalid range set 0: mixed address families",
        ),
        (
            [(read(subnet="10.0.0.0/24"), read(subnet="10.0.0.0/25"))],
            "invalid range set 0: subnets .* overlap",
        ),
        (
            [(read(subnet="10.0.0.0/24"),), (read(subnet="10.0.0.0/16"),)],
            "range set 0 overlaps with 1",
        ),
    ],
)
def test_sets_that_collide_are_refused(sets: list[ranges.RangeSet], message: str) -> None:
    with pytest.raises(RangeError, match=message):
        ranges.check(sets)


def small(start: int, size: int, gateway: int | None) -> Range:
    base = int(ipaddress.IPv4Address("10.0.0.0")) + start
    first, last = ipaddress.IPv4Address(base), ipaddress.IPv4Address(base + size)
    router = first + gateway if gateway is not None else ipaddress.IPv4Address("10.9.9.9")
    return Range(ipaddress.IPv4Network("10.0.0.0/16"), first, last, router)


@settings(max_examples=150)
@given(
    st.lists(st.tuples(st.integers(0, 20), st.none() | st.integers(0, 5)), min_size=1, max_size=3),
    st.integers(0, 400),
)
def test_every_address_is_offered_once_beginning_after_the_last(
    shapes: list[tuple[int, int | None]], last: int
) -> None:
    one = tuple(small(100 * n, size, gateway) for n, (size, gateway) in enumerate(shapes))
    latest = ipaddress.IPv4Address("10.0.0.0") + last
    offered = [each.address for each in ranges.walk(one, latest)]
    everything = {
        each.start + offset
        for each in one
        for offset in range(int(each.end) - int(each.start) + 1)
        if each.start + offset != each.gateway
    }
    assert len(offered) == len(set(offered)) == ranges.size(one)
    assert set(offered) == everything
    holder = ranges.range_of(one, latest)
    if holder is not None and latest in everything:
        assert offered[-1] == latest  # given last, so offered last


def test_an_address_is_found_in_its_range_only() -> None:
    one = (read(subnet="10.0.0.0/24"), read(subnet="10.0.1.0/24"))
    assert ranges.range_of(one, results.parse_address("10.0.1.7")) == one[1]
    assert ranges.range_of(one, results.parse_address("10.0.2.7")) is None
    assert ranges.range_of(one, results.parse_address("fd00::1")) is None
