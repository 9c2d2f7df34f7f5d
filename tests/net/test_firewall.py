"""firewall in real namespaces: what is forwarded where iptables' own policy is to drop."""

from typing import Any

import pytest
from support import cnichains, cnidaemon, netns, peers

pytestmark = pytest.mark.root


def chain(daemon: cnidaemon.Daemon, bridge: str = "cni0", **keys: Any) -> cnichains.Chain:
    number = 88 if bridge == "cni0" else 89
    first = cnichains.bridge(daemon, bridge=bridge)
    first["ipam"]["ranges"] = [[{"subnet": f"10.{number}.0.0/24"}]]
    return cnichains.Chain(daemon, [first, {"type": "firewall", **keys}])


@pytest.fixture
def outside(daemon: cnidaemon.Daemon, namespaces: netns.Namespaces) -> str:
    """A neighbour of a node whose iptables forwards nothing."""
    made = namespaces.make("outside")
    netns.run(daemon.host, "ip", "link", "add", "uplink", "type", "veth", "peer", "name", "eth0",
              "netns", made.rsplit("/", 1)[1])  # fmt: skip
    for place, name, number in ((daemon.host, "uplink", 1), (made, "eth0", 2)):
        netns.run(place, "ip", "addr", "add", f"192.0.2.{number}/24", "dev", name)
        netns.run(place, "ip", "link", "set", name, "up")
    netns.run(made, "ip", "route", "add", "10.0.0.0/8", "via", "192.0.2.1")
    netns.run(daemon.host, "iptables", "-P", "FORWARD", "DROP")
    return made


def reaches(where: str, address: str) -> bool:
    return netns.inside(where, lambda: cnichains.reaches(address))


def test_what_a_container_begins_passes_and_what_others_begin_does_not(
    daemon: cnidaemon.Daemon, namespaces: netns.Namespaces, outside: str
) -> None:
    pod, bare = namespaces.make("pod"), namespaces.make("bare")
    without = cnichains.Chain(daemon, [cnichains.bridge(daemon)])
    without.add(bare, container="bare")
    guarded = chain(daemon)
    result = guarded.add(pod)
    assert reaches(pod, "192.0.2.2")
    assert not reaches(bare, "192.0.2.2")
    assert not reaches(outside, result["ips"][0]["address"].split("/")[0])
    guarded.check(pod, result)
    assert guarded.remove(pod) == []
    assert "elements" not in netns.run(daemon.host, "nft", "list", "set", "inet", "bitts_cni",
                                       "allowed4")  # fmt: skip


def test_people_s_own_rules_come_first(
    daemon: cnidaemon.Daemon, namespaces: netns.Namespaces, outside: str
) -> None:
    pod = namespaces.make("pod")
    chain(daemon, iptablesAdminChainName="MINE").add(pod)
    assert reaches(pod, "192.0.2.2")
    netns.run(daemon.host, "iptables", "-A", "MINE", "-d", "192.0.2.2", "-j", "DROP")
    assert not reaches(pod, "192.0.2.2")
    rules = netns.run(daemon.host, "iptables", "-S", "FORWARD")
    assert '"CNI firewall plugin rules" -j CNI-FORWARD' in rules


@pytest.mark.parametrize("policy", ["open", "same-bridge", "isolated"])
def test_ingress_policies_close_bridges_to_each_other(
    daemon: cnidaemon.Daemon, namespaces: netns.Namespaces, policy: str
) -> None:
    one, two, far = (namespaces.make(each) for each in ("one", "two", "far"))
    near = chain(daemon, ingressPolicy=policy)
    near.add(one, container="one")
    near.add(two, container="two")
    chain(daemon, bridge="cni1", ingressPolicy=policy).add(far, container="far")
    assert reaches(one, "10.89.0.2") == (policy == "open")
    assert reaches(one, "10.89.0.1"), "the node itself"
    netns.run(daemon.host, "sh", "-c",
              "echo 1 > /proc/sys/net/bridge/bridge-nf-call-iptables")  # fmt: skip
    assert reaches(one, "10.88.0.3") == (policy != "isolated")


def test_rules_that_somebody_flushed_come_back_with_the_next_container(
    daemon: cnidaemon.Daemon, namespaces: netns.Namespaces
) -> None:
    pods = [namespaces.make(each) for each in "ab"]
    closed = chain(daemon, ingressPolicy="isolated")
    closed.add(pods[0], container="a")
    netns.run(daemon.host, "nft", "flush", "ruleset")
    closed.add(pods[1], container="b")
    listed = netns.run(daemon.host, "nft", "list", "ruleset")
    assert '"cni0" . "cni0"' in listed
    assert "10.88.0.3" in listed


def test_check_finds_what_is_missing(
    daemon: cnidaemon.Daemon, namespaces: netns.Namespaces
) -> None:
    pod = namespaces.make("pod")
    guarded = chain(daemon)
    result = guarded.add(pod)
    netns.run(daemon.host, "nft", "flush", "set", "inet", "bitts_cni", "allowed4")
    outcome = guarded.attempt("CHECK", pod, previous=result)
    assert "forwarding for 10.88.0.2 is not allowed any more" in outcome.error
    assert guarded.remove(pod) == []


@pytest.mark.parametrize(
    ("keys", "previous", "expected"),
    [
        ({"ingressPolicy": "x"}, {"ips": []}, 'unknown ingress policy: "x"'),
        ({}, None, "missing prevResult from earlier plugin"),
        ({"ingressPolicy": "isolated"}, {"ips": []}, "interface needs to be set for ingress"),
    ],
)
def test_mistakes_are_told_as_the_reference_tells_them(
    daemon: cnidaemon.Daemon, namespaces: netns.Namespaces, keys: dict[str, Any], previous: Any,
    expected: str,
) -> None:  # fmt: skip
    pod, node = namespaces.make("pod"), namespaces.make("theirs")
    config = daemon.config("firewall", **keys)
    if previous is not None:
        config["prevResult"] = {"cniVersion": "1.1.0", **previous}
    assert expected in daemon.call("ADD", config, pod=pod).error
    theirs = cnidaemon.execute(peers.plugin("firewall"), "ADD", config, host=node, pod=pod)
    assert expected in theirs.error
