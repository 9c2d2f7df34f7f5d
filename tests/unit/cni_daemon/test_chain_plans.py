"""Plans of the plugins that come after the first: values only, no kernel."""

import itertools
from dataclasses import replace
from typing import Any

import pytest
from bitts.cni import results
from bitts.cni.errors import CniError
from bitts.net import links, tc
from bitts.net.links import Link
from bitts.net.routes import Route
from cni_daemon import operations as op
from cni_daemon import routing, traffic
from cni_daemon.model import FIREWALLD, Observed, Place, Plan, View
from cni_daemon.plugins import bandwidth, firewall, portmap, portrules, tuning
from cni_daemon.plugins.interface import AnyPlugin
from hypothesis import given
from hypothesis import strategies as st
from support import cnicalls

PREVIOUS = {
    "cniVersion": "1.1.0",
    "interfaces": [
        {"name": "cni0"}, {"name": "veth1"}, {"name": "eth0", "sandbox": cnicalls.NETNS},
    ],
    "ips": [
        {"address": "10.88.0.2/24", "interface": 2}, {"address": "10.77.0.2/24", "interface": 1},
        {"address": "fd00::2/64", "interface": 2}, {"address": "10.88.0.9/24", "interface": 2},
    ],
}  # fmt: skip
POD = View(links={"eth0": Link(5, "eth0", "veth", "02:00:00:00:00:01", 1500, peer_index=9,
                               queue_length=1000)})  # fmt: skip
SEEN = Observed(host=View(links={"veth1": Link(9, "veth1", "veth", mtu=1450)}), pod=POD)


def planned(plugin: AnyPlugin, document: dict[str, Any], observed: Observed = SEEN) -> Plan:
    made = cnicalls.call({"type": plugin.type, "prevResult": PREVIOUS, **document})
    return plugin.plan(plugin.parse(made.config, made), made, observed)


def published(*mappings: dict[str, Any], **keys: Any) -> Plan:
    runtime = {"portMappings": list(mappings)}
    return planned(portmap.PLUGIN, {"runtimeConfig": runtime, **keys})


def mapping(port: int, protocol: str = "tcp", **keys: Any) -> dict[str, Any]:
    return {"hostPort": port, "containerPort": 80, "protocol": protocol, **keys}


def names(plan: Plan) -> list[str]:
    added = [s.do for s in plan.steps if isinstance(s.do, op.AddElements)]
    return [each.container.name for each in added]


def undone(plan: Plan) -> list[op.Operation]:
    return [step.undo for step in reversed(plan.steps) if step.undo is not None]


def test_a_port_is_an_entry_for_each_family() -> None:
    plan = published(mapping(8080))
    assert names(plan) == ["hostports4", "hairpin4", "hostports6", "hairpin6"]
    first = plan.steps[0].do
    assert isinstance(first, op.AddElements)
    (element,) = first.elements
    assert element.key == bytes([6, 0, 0, 0, 0x1F, 0x90, 0, 0])
    assert element.data == bytes([10, 88, 0, 2, 0, 80, 0, 0])
    assert plan.result.ips[0].address == results.parse_interface("10.88.0.2/24")


def test_what_is_published_is_taken_back_entry_by_entry() -> None:
    plan = published(mapping(8080), mapping(53, "udp", hostIP="192.0.2.1"), mapping(8080))
    added = [s.do for s in plan.steps if isinstance(s.do, op.AddElements)]
    removed = [each for each in undone(plan) if isinstance(each, op.RemoveElements)]
    assert [(a.container, a.elements[0].key) for a in added] == [
        (r.container, r.elements[0].key) for r in reversed(removed)
    ]


def test_flows_are_forgotten_after_the_entries_are_made_and_after_they_are_gone() -> None:
    plan = published(mapping(53, "udp", hostIP="192.0.2.1"))
    kinds = [type(step.do).__name__ for step in plan.steps if step.do is not None]
    assert kinds == ["AddElements", "AddElements", "ForgetFlows", "AllowLoopbackSources",
                     "AddElements"]  # fmt: skip
    back = [type(each).__name__ for each in undone(plan)]
    assert back[-1] == "ForgetFlows"


def test_without_snat_no_source_is_rewritten() -> None:
    plan = published(mapping(8080), snat=False)
    assert names(plan) == ["hostports4", "hostports6"]
    assert not [s for s in plan.steps if isinstance(s.do, traffic.AllowLoopbackSources)]


def test_rules_of_other_conditions_have_maps_of_their_own() -> None:
    usual, other = portrules.USUAL, portrules.Rules(13, "ip daddr 192.0.2.1")
    assert usual.suffix == ""
    assert other.suffix != portrules.Rules(14).suffix
    assert f"@{other.ports(4, has_address=False)}" in portrules.base(other).operations[0].script  # type: ignore[union-attr] # the one kind there is


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["!", "-d", "192.0.2.0/24"], "ip daddr != 192.0.2.0/24"),
        (["-s", "10.0.0.1", "-i", "eth1"], "ip saddr 10.0.0.1 iifname eth1"),
        (["ip", "daddr", "!=", "192.0.2.1"], "ip daddr != 192.0.2.1"),
    ],
)
def test_conditions_become_nft_expressions(words: list[str], expected: str) -> None:
    assert portrules.condition("conditionsV4", words, "") == expected


@pytest.mark.parametrize("words", [["-p", "tcp"], ["-s"], ["ip", "daddr;flush ruleset"], ["!"]])
def test_conditions_that_cannot_be_expressed_are_refused(words: list[str]) -> None:
    with pytest.raises(CniError, match="conditionsV4"):
        portrules.condition("conditionsV4", words, "")


def test_forwarding_is_one_element_per_address() -> None:
    plan = planned(firewall.PLUGIN, {})
    assert names(plan) == ["allowed4", "allowed4", "allowed6", "allowed4"]
    assert len(undone(plan)) == 4


@pytest.mark.parametrize(
    ("backend", "running", "uses_zone"),
    [
        ("", "0", False), ("", "1", True), ("iptables", "1", False), ("firewalld", "0", True),
        ("nftables", "1", True),
    ],
)  # fmt: skip
def test_an_address_is_a_source_of_a_zone_where_firewalld_decides(
    backend: str, running: str, uses_zone: bool
) -> None:  # fmt: skip
    seen = replace(SEEN, host=replace(SEEN.host, settings={FIREWALLD: running}))
    plan = planned(firewall.PLUGIN, {"backend": backend, "firewalldZone": "work"}, seen)
    added = [each.do for each in plan.steps if isinstance(each.do, traffic.AddSource)]
    assert bool(added) == uses_zone != bool(names(plan))
    if uses_zone:
        assert added[2] == traffic.AddSource("work", "fd00::2/128")
        assert undone(plan)[1] == traffic.RemoveSource("work", "fd00::2/128")


def test_the_rules_are_laid_for_a_zone_only_where_bridges_are_closed() -> None:
    def laid(**keys: str) -> list[op.Operation]:
        document = {"type": "firewall", "backend": "firewalld", "prevResult": PREVIOUS, **keys}
        made = cnicalls.call(document)
        options = firewall.parse(made.config, made)
        return [*firewall.foundation(options, made, SEEN)]

    assert laid() == []
    assert len(laid(ingressPolicy="same-bridge")) == 2


def test_limits_hang_on_the_host_s_end_and_on_a_link_that_goes() -> None:
    limits = {"ingressRate": 8_000_000, "ingressBurst": 800_000,
              "egressRate": 16_000_000, "egressBurst": 800_000}  # fmt: skip
    plan = planned(bandwidth.PLUGIN, limits)
    kinds = [type(step.do).__name__ for step in plan.steps]
    assert kinds == ["ShapeLink", "MakeLink", "OpenIngress", "RedirectIngress", "ShapeLink"]
    name = plan.result.interfaces[-1].name
    assert undone(plan) == [op.DeleteLink(Place.HOST, name, 1000)]
    assert plan.steps[0].do == traffic.ShapeLink(9, tc.Bucket(1_000_000, 1_562_500, 125_000))


def test_the_link_s_name_is_the_reference_s() -> None:
    made = cnicalls.call({"type": "bandwidth", "name": "tnet"}, container="c1")
    assert bandwidth.link_name(made) == "bwpbf975393d85d"


@given(st.integers(1, 2**40), st.integers(1, 2**32 - 2))
def test_a_bucket_never_wraps_around(rate: int, burst: int) -> None:
    found = tc.bucket(rate, burst, latency=0.025)
    assert 0 < found.limit < 2**32
    exact = burst * 1_000_000 / rate * 15.625
    assert found.buffer == pytest.approx(min(exact, 2**32 - 1), abs=32, rel=1e-6)


def test_a_tuned_link_is_put_back_as_it_was() -> None:
    plan = planned(
        tuning.PLUGIN,
        {"mac": "02:00:00:00:00:09", "mtu": 1400, "promisc": True, "allmulti": False, "txQLen": 5,
         "sysctl": {"net.ipv4.conf.IFNAME.arp_filter": "1"}},
    )  # fmt: skip
    setting, change = plan.steps
    assert setting.do == op.SetSysctl(Place.POD, "ipv4/conf/eth0/arp_filter", "1")
    assert setting.undo is None
    assert change.undo == op.ChangeLink(
        Place.POD,
        links.Change(
            cleared=links.PROMISCUOUS | links.ALL_MULTICAST, mac="02:00:00:00:00:01", mtu=1500,
            txqlen=1000,
        ),
        name="eth0",
    )  # fmt: skip
    assert plan.result.interfaces[2].mac == "02:00:00:00:00:09"


def test_every_undo_survives_the_journal() -> None:
    plans = [
        published(mapping(53, "udp", hostIP="192.0.2.1"), mapping(80)),
        planned(firewall.PLUGIN, {}),
        planned(firewall.PLUGIN, {"backend": "firewalld"}),
        planned(bandwidth.PLUGIN, {"egressRate": 80_000, "egressBurst": 80_000}),
        planned(tuning.PLUGIN, {"mtu": 1400}),
    ]
    operations = list(itertools.chain.from_iterable(undone(plan) for plan in plans))
    route = routing.ReplaceRoute(
        Place.POD, Route(results.parse_interface("10.0.0.0/8").network), is_optional=True
    )
    for each in [*operations, route]:
        assert op.decode(op.encode(each)) == each
