"""Plans as values: what each plugin would do, and that what it makes it can take back."""

from typing import Any

import pytest
from bitts.cni import results
from bitts.cni.errors import CniError
from bitts.cni.results import Result
from bitts.net import links
from bitts.net.addresses import Address
from bitts.net.links import Link
from cni_daemon import operations as op
from cni_daemon.model import Observed, Place, Plan, View
from cni_daemon.plugins import bridge, loopback, ptp
from cni_daemon.plugins.registry import ALL
from support import cnicalls
from support.cnicalls import addressed, call

BRIDGE = Link(7, "cni0", "bridge", "02:00:00:00:00:07", 1500, links.UP)
SEEN = Observed(
    host=View(links={"cni0": BRIDGE}, settings={"ipv4/ip_forward": "1"}),
    pod=View(),
    settled=frozenset({"bridge cni0 7 has 02:00:00:00:00:07"}),
)
IPAM = {"ipam": {"type": "host-local"}}


def bridged(
    document: dict[str, Any], answer: Result | None = None, observed: Observed = SEEN
) -> Plan:
    made = call({"type": "bridge", **document}, addressing=answer)
    return bridge.plan(bridge.parse(made.config, made), made, observed)


def laid(
    document: dict[str, Any], answer: Result | None = None, observed: Observed = SEEN
) -> tuple[op.Operation, ...]:
    made = call({"type": "bridge", **document}, addressing=answer)
    return bridge.foundation(bridge.parse(made.config, made), made, observed)


def done(plan: Plan) -> list[op.Operation]:
    return [step.do for step in plan.steps if step.do is not None]


def kinds(plan: Plan) -> list[str]:
    return [type(each).__name__ for each in done(plan)]


def test_an_address_comes_before_the_link_is_up_and_routes_after() -> None:
    plan = bridged(
        {**IPAM, "isDefaultGateway": True}, addressed("10.0.0.5/24 10.0.0.1", "fd00::5/64 fd00::1")
    )
    assert kinds(plan) == [
        "MakeVeth", "ChangeLink", "SetSysctl", "SetSysctl", "SetSysctl", "SetSysctl", "ChangeLink",
        "AddAddress", "AddAddress", "ChangeLink", "AddRoute", "AddRoute",
    ]  # fmt: skip
    assert plan.carriers == (plan.result.interfaces[1].name,)
    undo = [step.undo for step in plan.steps if step.undo is not None]
    assert undo == [op.DeleteLink(Place.HOST, plan.result.interfaces[1].name, 1000)]


def test_the_result_names_bridge_pair_and_container() -> None:
    plan = bridged({**IPAM, "isDefaultGateway": True}, addressed("10.0.0.5/24"))
    first, second, third = plan.result.interfaces
    assert (first.name, first.mac) == ("cni0", BRIDGE.mac)
    assert second.name.startswith("veth")
    assert (third.name, third.sandbox) == ("eth0", cnicalls.NETNS)
    assert [str(ip.gateway) for ip in plan.result.ips] == ["10.0.0.1"]
    assert [(str(r.destination), str(r.gateway)) for r in plan.result.routes] == [
        ("0.0.0.0/0", "10.0.0.1")
    ]


def test_a_default_route_that_is_there_is_not_added_again() -> None:
    answer = addressed("10.0.0.5/24 10.0.0.1", routes=("0.0.0.0/0",))
    plan = bridged({**IPAM, "isDefaultGateway": True}, answer)
    added = [each for each in done(plan) if isinstance(each, op.AddRoute)]
    assert len(added) == 1  # the reference fails here: "file exists"
    assert len(plan.result.routes) == 2


def test_mtu_and_metrics_of_routes_are_applied() -> None:
    route = results.Route(
        results.parse_interface("10.9.0.0/16"), mtu=1400, advmss=1300, priority=5, table=9, scope=0
    )
    answer = Result(ips=addressed("10.0.0.5/24 10.0.0.1").ips, routes=(route,))
    added = [each for each in done(bridged({**IPAM}, answer)) if isinstance(each, op.AddRoute)]
    found = added[0].route
    assert (found.mtu, found.advmss, found.priority, found.table) == (1400, 1300, 5, 9)
    assert str(found.gateway) == "10.0.0.1"


def port(*, hairpin: bool | None = None, isolated: bool | None = None) -> op.ChangeLink:
    change = links.Change(alias="bitts-cni net/c1/eth0", hairpin=hairpin, isolated=isolated)
    return op.ChangeLink(Place.HOST, change, 1000)


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ({}, port()),
        ({"hairpinMode": True}, port(hairpin=True, isolated=False)),
        ({"portIsolation": True}, port(hairpin=False, isolated=True)),
        ({"vlan": 5}, op.SetPortVlan(1000, 5, is_pvid=True)),
        ({"vlan": 5}, op.SetPortVlan(1000, 1, remove=True)),
        ({"vlanTrunk": [{"minID": 7, "maxID": 8}, {"id": 3}]}, op.SetPortVlan(1000, 8)),
        ({"vlanTrunk": [{"id": 3}]}, op.SetPortVlan(1000, 1, is_pvid=True)),
    ],
)
def test_port_settings(document: dict[str, Any], expected: op.Operation) -> None:
    assert expected in done(bridged(document))


def test_a_default_vlan_may_be_kept() -> None:
    plan = bridged({"vlan": 5, "preserveDefaultVlan": True})
    assert op.SetPortVlan(1000, 1, remove=True) not in done(plan)


def test_a_layer_2_port_is_switched_on_or_left_alone() -> None:
    up = kinds(bridged({}))
    down = bridged({"disableContainerInterface": True})
    assert up.count("ChangeLink") == 2
    assert kinds(down).count("ChangeLink") == 1
    assert down.carriers == ()


@pytest.mark.parametrize(
    ("args", "document", "expected"),
    [
        ("MAC=02:00:00:00:00:aa", {}, "02:00:00:00:00:aa"),
        (
            "MAC=02:00:00:00:00:aa",
            {"args": {"cni": {"mac": "02-00-00-00-00-BB"}}},
            "02:00:00:00:00:bb",
        ),
        (
            "",
            {
                "runtimeConfig": {"mac": "02:00:00:00:00:cc"},
                "args": {"cni": {"mac": "02:00:00:00:00:bb"}},
            },
            "02:00:00:00:00:cc",
        ),
    ],
)
def test_the_later_source_of_a_mac_address_wins(
    args: str, document: dict[str, Any], expected: str
) -> None:
    made = call({"type": "bridge", **document}, args=args)
    plan = bridge.plan(bridge.parse(made.config, made), made, SEEN)
    assert plan.result.interfaces[2].mac == expected


@pytest.mark.parametrize("mac", ["xyz", "02:00", "02:00:00:00:00:00:00"])
def test_a_mac_address_must_be_one(mac: str) -> None:
    with pytest.raises(CniError, match="invalid MAC address"):
        bridged({"runtimeConfig": {"mac": mac}})


def test_a_bridge_that_is_missing_is_made_first() -> None:
    made = laid({"mtu": 1400, "vlan": 3}, observed=Observed(pod=View()))
    assert isinstance(made[0], op.MakeBridge)
    assert (made[0].mtu, made[0].filters_vlans) == (1400, True)
    assert int(made[0].mac[:2], 16) & 3 == 2  # ours to give, and unicast


def test_a_bridge_that_is_ready_needs_nothing() -> None:
    here = {"cni0": (Address(7, results.parse_interface("10.0.0.1/24")),)}
    seen = Observed(View({"cni0": BRIDGE}, here, SEEN.host.settings), View(), SEEN.settled)
    answer = addressed("10.0.0.5/24")
    assert laid({**IPAM, "isGateway": True}, answer, seen) == ()
    assert laid({**IPAM, "isGateway": True}, answer) == (
        op.AddAddress(Place.HOST, 7, results.parse_interface("10.0.0.1/24"), skips_dad=True),
    )


def test_a_stranger_is_not_taken_for_a_bridge() -> None:
    stranger = Observed(View({"cni0": Link(7, "cni0", "veth")}), View())
    with pytest.raises(CniError, match="already exists but is not a bridge"):
        laid({}, observed=stranger)


def test_a_second_ipv6_network_may_share_a_bridge_and_a_second_ipv4_may_not() -> None:
    here = {
        "cni0": (
            Address(7, results.parse_interface("10.9.0.1/24")),
            Address(7, results.parse_interface("fd99::1/64")),
        )
    }
    settings = {"ipv4/ip_forward": "1", "ipv6/conf/all/forwarding": "1"}
    seen = Observed(View({"cni0": BRIDGE}, here, settings), View(), SEEN.settled)
    assert len(laid({**IPAM, "isGateway": True}, addressed("fd00::5/64"), seen)) == 1
    with pytest.raises(CniError, match=r"different from 10\.0\.0\.1"):
        laid({**IPAM, "isGateway": True}, addressed("10.0.0.5/24"), seen)
    forced = laid({**IPAM, "isGateway": True, "forceAddress": True}, addressed("10.0.0.5/24"), seen)
    assert [type(each).__name__ for each in forced] == ["RemoveAddress", "AddAddress"]


def test_masquerading_is_an_element_with_its_removal() -> None:
    plan = bridged({**IPAM, "ipMasq": True}, addressed("10.0.0.5/24 10.0.0.1"))
    last = plan.steps[-1]
    assert isinstance(last.do, op.AddElements)
    assert isinstance(last.undo, op.RemoveElements)
    assert last.do.elements[0].key == last.undo.elements[0].key == bytes([10, 0, 0, 5])
    foundation = laid({**IPAM, "ipMasq": True}, addressed("10.0.0.5/24 10.0.0.1"))
    assert isinstance(foundation[0], op.Once)


def test_ipam_without_addresses_is_an_error() -> None:
    with pytest.raises(CniError, match="missing IP config"):
        bridged({**IPAM}, Result())


def test_ptp_routes_everything_through_its_gateway() -> None:
    made = call({"type": "ptp", **IPAM}, addressing=addressed("10.0.0.5/24 10.0.0.1"))
    plan = ptp.plan(ptp.parse(made.config, made), made, Observed(pod=View()))
    inside = [each for each in done(plan) if isinstance(each, op.AddRoute | op.RemoveRoute)]
    shown = [
        (type(each).__name__, each.place, str(each.route.destination), str(each.route.gateway))
        for each in inside
    ]
    assert shown == [
        ("RemoveRoute", "pod", "10.0.0.0/24", "None"),
        ("AddRoute", "pod", "10.0.0.1/32", "None"),
        ("AddRoute", "pod", "10.0.0.0/24", "10.0.0.1"),
        ("AddRoute", "host", "10.0.0.5/32", "None"),
    ]
    assert [ip.interface for ip in plan.result.ips] == [1]


def test_ptp_needs_a_gateway() -> None:
    made = call({"type": "ptp", **IPAM}, addressing=addressed("10.0.0.5/24"))
    with pytest.raises(CniError, match="gateway"):
        ptp.plan(ptp.parse(made.config, made), made, Observed(pod=View()))


def test_ptp_says_that_no_dhcp_server_can_be_asked_and_what_to_do() -> None:
    made = call({"type": "ptp", "ipam": {"type": "dhcp"}})
    with pytest.raises(CniError, match=r'ipam.type "dhcp" .* use .* "host-local"') as caught:
        ptp.parse(made.config, made)
    assert caught.value.code == 2


def test_loopback_tells_what_the_kernel_will_give() -> None:
    made = call({"type": "loopback"})
    seen = Observed(pod=View(settings={"ipv6/conf/lo/disable_ipv6": "0"}))
    plan = loopback.plan(loopback.parse(made.config, made), made, seen)
    assert [str(ip.address) for ip in plan.result.ips] == ["127.0.0.1/8", "::1/128"]
    without = loopback.plan(loopback.parse(made.config, made), made, Observed(pod=View()))
    assert [str(ip.address) for ip in without.result.ips] == ["127.0.0.1/8"]


def test_loopback_refuses_a_foreign_address_and_passes_results_on() -> None:
    made = call({"type": "loopback", "prevResult": {"ips": [{"address": "10.0.0.5/24"}]}})
    plan = loopback.plan(loopback.parse(made.config, made), made, Observed(pod=View()))
    assert plan.result == made.previous
    foreign = View(addresses={"lo": (Address(1, results.parse_interface("10.0.0.1/8")),)})
    with pytest.raises(CniError, match="non-loopback address"):
        loopback.plan(loopback.parse(made.config, made), made, Observed(pod=foreign))


def test_every_plugin_is_registered_under_its_own_name() -> None:
    assert all(name == plugin.type for name, plugin in ALL.items())


def test_names_and_addresses_drawn_are_proper() -> None:
    drawn = cnicalls.draws()
    for _ in range(50):
        assert len(drawn.link_name()) == 12
        assert int(drawn.mac()[:2], 16) & 3 == 2
