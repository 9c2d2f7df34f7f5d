"""Wishes for routes, as values."""

import contextlib

import pytest
from bitts.net import routes
from cni_daemon import callers, routekeeping
from cni_daemon.records import Entry, Phase
from cni_daemon.routekeeping import RouteError, Wish
from hypothesis import given
from hypothesis import strategies as st


def test_a_wish_becomes_the_kernels_route() -> None:
    wish = Wish("mesh", "10.0.0.0/8", "192.0.2.1", "lo", 7, 50, 1400).checked()
    route = wish.route()
    assert (str(route.destination), str(route.gateway)) == ("10.0.0.0/8", "192.0.2.1")
    assert (route.index, route.table, route.priority, route.mtu) == (1, 7, 50, 1400)
    assert (route.protocol, route.scope) == (routes.OURS, routes.UNIVERSE)
    assert Wish("mesh", "::/0", device="lo").route().scope == routes.LINK


def test_one_owner_has_one_wish_for_a_destination_in_a_table() -> None:
    key = Wish("mesh", "10.0.0.0/8", "192.0.2.1").key
    assert key == Wish("mesh", "10.0.0.0/8", device="lo", table=routes.MAIN).key
    assert key != Wish("mesh", "10.0.0.0/8", table=7).key
    assert key != Wish("other", "10.0.0.0/8").key


TEXTS = st.text(max_size=20)


@given(TEXTS, TEXTS, TEXTS, TEXTS, st.integers(-1, 2**33))
def test_any_wish_is_understood_or_refused(
    owner: str, destination: str, gateway: str, device: str, table: int
) -> None:
    wish = Wish(owner, destination, gateway, device, table)
    with contextlib.suppress(RouteError):
        assert wish.checked().key.container_id == owner


def test_a_wish_comes_back_from_its_entry() -> None:
    document = {"owner": "mesh", "destination": "10.0.0.0/8", "gateway": "192.0.2.1", "table": 7}
    key = callers.route("mesh", "10.0.0.0/8", 7)
    entry = Entry(key, Phase.DONE, result=document)
    assert routekeeping.of_entry(entry) == Wish("mesh", "10.0.0.0/8", "192.0.2.1", table=7)
    assert callers.is_route(entry)
    assert not callers.is_route(entry.in_phase(Phase.LEAVING))


def test_a_route_without_a_way_is_refused() -> None:
    with pytest.raises(RouteError, match="no link 'nowhere'"):
        Wish("mesh", "10.0.0.0/8", device="nowhere").route()
