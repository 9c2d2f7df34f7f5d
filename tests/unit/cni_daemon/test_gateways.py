"""Gateways of VLANs: who gets which link, under which name, and when it may go."""

from typing import Any

import pytest
from bitts.cni import results
from bitts.cni.errors import CniError
from bitts.cni.results import Result
from bitts.net import links
from bitts.net.addresses import Address
from bitts.net.links import Link
from cni_daemon import devices
from cni_daemon import operations as op
from cni_daemon.dhcp import leasing
from cni_daemon.model import Observed, Place, Plan, View
from cni_daemon.plugins import bridge
from support.cnicalls import addressed, call

BRIDGE = Link(7, "cni0", "bridge", "02:00:00:00:00:07", 1400, links.UP)
CONFIG = {"type": "bridge", "vlan": 5, "isGateway": True, "ipam": {"type": "host-local"}}


def seen(*addresses: str, mac: str = "") -> Observed:
    """Return a node with the bridge, and with the gateway where it is to have a MAC address."""
    found = {"cni0": BRIDGE}
    if mac:
        found["cni0.5"] = Link(9, "cni0.5", "veth", mac, 1400, links.UP)
    given = tuple(Address(9, results.parse_interface(each)) for each in addresses)
    forwards = {"ipv4/ip_forward": "1", "ipv6/conf/all/forwarding": "1"}
    return Observed(View(found, {"cni0.5": given}, forwards), View())


def planned(observed: Observed, answer: Result, **keys: Any) -> Plan:
    made = call({**CONFIG, **keys}, addressing=answer)
    return bridge.plan(bridge.parse(made.config, made), made, observed)


def sharing(plan: Plan) -> devices.ShareGateway:
    """Return the step that comes last: the container's port is in the VLAN by then."""
    last = plan.steps[-1].do
    assert isinstance(last, devices.ShareGateway)
    return last


def test_a_vlan_has_a_link_of_its_own_for_its_gateway() -> None:
    plan = planned(seen(), addressed("10.0.0.5/24", "fd00::5/64 fd00::99"))
    made = sharing(plan)
    assert (made.bridge, made.vlan, made.gateway.name, made.mtu) == (7, 5, "cni0.5", 1400)
    assert [str(each) for each in made.addresses] == ["10.0.0.1/24", "fd00::99/64"]
    assert plan.result.interfaces[3] == results.Interface("cni0.5", made.gateway.mac)
    assert int(made.gateway.mac[:2], 16) & 3 == 2  # ours to give, and unicast


def test_the_bridge_itself_gets_no_address_then() -> None:
    made = call(CONFIG, addressing=addressed("10.0.0.5/24"))
    laid = bridge.foundation(bridge.parse(made.config, made), made, seen())
    assert not any(isinstance(each, op.AddAddress) for each in laid)


def test_a_gateway_that_comes_back_has_the_same_mac_address() -> None:
    answer = addressed("10.0.0.5/24")
    first, again = (sharing(planned(seen(), answer)) for _ in range(2))
    other = sharing(planned(seen(), answer, vlan=6))
    assert first.gateway.mac == again.gateway.mac != other.gateway.mac


def test_one_that_is_there_is_told_as_it_is() -> None:
    plan = planned(seen("10.0.0.1/24", mac="02:00:00:00:00:99"), addressed("10.0.0.5/24"))
    assert plan.result.interfaces[3].mac == "02:00:00:00:00:99"
    assert sharing(plan).dropped == ()


def test_another_address_is_refused_or_replaced() -> None:
    there = seen("10.9.0.1/24", "fd99::1/64", mac="02:00:00:00:00:99")
    answer = addressed("10.0.0.5/24", "fd00::5/64")
    with pytest.raises(CniError, match=r'"cni0.5" already has an IP address different from 10'):
        planned(there, answer)
    forced = sharing(planned(there, answer, forceAddress=True))
    assert [str(each) for each in forced.dropped] == ["10.9.0.1/24"]


def test_it_is_taken_away_after_the_container_s_link() -> None:
    plan = planned(seen(), addressed("10.0.0.5/24"))
    undo = [step.undo for step in plan.steps if step.undo is not None][::-1]
    assert isinstance(undo[0], op.DeleteLink)
    assert undo[-1] == devices.RemoveIdleGateway("cni0.5", 5)


def test_a_del_that_the_journal_does_not_know_looks_after_it_too() -> None:
    made = call(CONFIG, command="DEL")
    options = bridge.parse(made.config, made)
    assert bridge.remove(options, made, Observed()) == (
        op.DeleteLink(Place.POD, "eth0"), devices.RemoveIdleGateway("cni0.5", 5),
    )  # fmt: skip
    assert bridge.remove(None, made, Observed()) == (op.DeleteLink(Place.POD, "eth0"),)


@pytest.mark.parametrize("keys", [{"vlan": 0}, {"isGateway": False}, {"ipam": {}}])
def test_without_vlan_gateway_or_addresses_there_is_none(keys: dict[str, Any]) -> None:
    plan = planned(seen(), addressed("10.0.0.5/24"), **keys)
    assert len(plan.result.interfaces) == 3
    assert not any(isinstance(each.undo, devices.RemoveIdleGateway) for each in plan.steps)


def test_a_bridge_s_name_must_leave_room_for_the_vlan() -> None:
    made = call({**CONFIG, "bridge": "a-long-bridge", "vlan": 100})
    with pytest.raises(CniError, match=r"'a-long-bridge\.100', and links have at most 15 bytes"):
        bridge.parse(made.config, made)


def test_a_lease_can_be_had_before_the_gateway_is_known() -> None:
    first = planned(seen(), leasing.NOBODY)
    second = planned(seen(), addressed("10.0.0.5/24 10.0.0.1"))
    done = leasing.before_addresses(first.steps)
    assert done == second.steps[: len(done)]


def test_check_misses_a_gateway_that_is_gone() -> None:
    plan = planned(seen(), addressed("10.0.0.5/24"))
    made = call({**CONFIG, "prevResult": results.encode(results.relabelled(plan.result, "1.1.0"))},
                command="CHECK")  # fmt: skip
    with pytest.raises(CniError, match=r"Interface cni0\.5 is missing"):
        bridge.check(bridge.parse(made.config, made), made, seen())


@pytest.mark.parametrize(("vlan", "refused"), [(5, False), (42, True)])
def test_a_bridge_whose_gateway_no_link_can_be_named_after_is_refused(
    vlan: int, *, refused: bool
) -> None:
    made = call({**CONFIG, "bridge": "a-long-bridge"[:13], "vlan": vlan})
    if not refused:
        assert bridge.parse(made.config, made).vlan_gateway == "a-long-bridge.5"
        return
    with pytest.raises(CniError, match=r"would be named 'a-long-bridge\.42'.*shorter name"):
        bridge.parse(made.config, made)


def test_without_addresses_a_vlan_has_no_gateway_that_could_be_named_wrong() -> None:
    bare = {key: value for key, value in CONFIG.items() if key != "ipam"}
    made = call({**bare, "bridge": "a-long-bridge", "vlan": 4000})
    assert bridge.parse(made.config, made).vlan_gateway == ""
