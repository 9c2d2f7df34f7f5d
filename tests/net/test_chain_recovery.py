"""The daemon killed at every instant that chain plugins add to ADD and DEL: nothing is left.

What a bridge alone passes through is killed in ``test_recovery``; here a whole list is carried
out as one, and only the instants that are new are looked at.
"""

import re
from typing import Any

import pytest
from support import cnichains, cnidaemon, netns

pytestmark = [pytest.mark.root, pytest.mark.slow]

MBIT = 1_000_000


def config(daemon: cnidaemon.Daemon, *, port: int = 8080) -> dict[str, Any]:
    published = [
        {"hostPort": port, "containerPort": 80, "protocol": "tcp"},
        {"hostPort": port, "containerPort": 53, "protocol": "udp", "hostIP": "127.0.0.1"},
    ]
    limits = {"ingressRate": MBIT, "ingressBurst": MBIT, "egressRate": MBIT, "egressBurst": MBIT}
    plugins = [
        cnichains.bridge(daemon, ipMasq=True),
        {"type": "portmap", "runtimeConfig": {"portMappings": published}},
        {"type": "firewall", "ingressPolicy": "same-bridge"},
        {"type": "bandwidth", "runtimeConfig": {"bandwidth": limits}},
    ]
    return cnichains.as_one(cnichains.Chain(daemon, plugins))


def instants(daemon: cnidaemon.Daemon, pod: str, command: str) -> list[str]:
    """Carry out a command and return the instants that were passed on the way."""
    record = daemon.folder / "instants"
    daemon.stop()
    daemon.start(f"--fault=crash-at=0:{record}")
    record.write_text("")
    outcome = daemon.call(command, config(daemon), pod=pod)
    assert outcome.status == 0, outcome.stdout
    return record.read_text().splitlines()


def chosen(passed: list[str]) -> list[int]:
    """Return the numbers of instants of which the one before was not of the bridge's doing."""
    new = re.compile(r"hostports|addressports|hairpin|allowed|qdisc|filter|bwp|route_localnet|forg")
    return [
        number for number, name in enumerate(passed[:-1], 1)
        if new.search(name) or "plan written" in name
    ]  # fmt: skip


@pytest.fixture
def node(daemon: cnidaemon.Daemon, namespaces: netns.Namespaces) -> cnidaemon.Daemon:
    """A daemon with one attachment that stands throughout and must not be touched."""
    standing = namespaces.make("standing")
    outcome = daemon.call("ADD", config(daemon, port=9090), pod=standing, container="stays")
    assert outcome.status == 0, outcome.stdout
    return daemon


def test_an_add_cut_off_anywhere_leaves_nothing(
    node: cnidaemon.Daemon, namespaces: netns.Namespaces
) -> None:
    before = cnidaemon.leftovers(node.host)
    pod = namespaces.make("pod")
    passed = instants(node, pod, "ADD")
    assert node.call("DEL", config(node), pod=pod).status == 0
    assert cnidaemon.leftovers(node.host) == before
    assert len(chosen(passed)) > 8, passed
    for number in chosen(passed):
        node.stop()
        node.start(f"--fault=crash-at={number}")
        call = node.begin("ADD", config(node), pod=pod)
        node.await_crash()
        call.kill()
        node.start()
        assert cnidaemon.leftovers(node.host) == before, passed[number - 1]
        assert set(node.addresses()) == {"10.88.0.2"}, passed[number - 1]


def test_a_del_cut_off_anywhere_is_finished(
    node: cnidaemon.Daemon, namespaces: netns.Namespaces
) -> None:
    before = cnidaemon.leftovers(node.host)
    pod = namespaces.make("pod")
    assert node.call("ADD", config(node), pod=pod).status == 0
    passed = instants(node, pod, "DEL")
    for number in range(1, len(passed)):
        node.stop()
        node.start()
        added = node.call("ADD", config(node), pod=pod)
        assert added.status == 0, added.stdout
        node.stop()
        node.start(f"--fault=crash-at={number}")
        call = node.begin("DEL", config(node), pod=pod)
        node.await_crash()
        call.kill()
        node.start()
        assert cnidaemon.leftovers(node.host) == before, passed[number - 1]
        assert set(node.addresses()) == {"10.88.0.2"}, passed[number - 1]


def test_one_call_and_one_call_each_come_to_the_same(
    daemon: cnidaemon.Daemon, namespaces: netns.Namespaces
) -> None:
    """A list that a runtime walks through, and the same list carried out as one."""
    pod = namespaces.make("pod")
    seen = []
    for way in ("one", "each"):
        if way == "one":
            outcome = daemon.call("ADD", config(daemon), pod=pod)
            assert outcome.status == 0, outcome.stdout
            result = outcome.document
        else:
            result = walked(daemon).add(pod)
        text = re.sub(r"veth[0-9a-f]{8}|(?:[0-9a-f]{2}:){5}[0-9a-f]{2}", "X", str(result))
        tc = netns.run(daemon.host, "tc", "qdisc", "show")
        found = (text.replace("10.88.0.3", "10.88.0.2"), tc.count(" tbf "), tc.count(" ingress "))
        seen.append(found)
        if way == "one":
            assert daemon.call("DEL", config(daemon), pod=pod).status == 0
        else:
            assert walked(daemon).remove(pod) == []
        assert cnidaemon.leftovers(daemon.host) == ["set closed_bridges: cni0",
                                                    "set within_bridges: {'concat': ['cni0', "
                                                    "'cni0']}"]  # fmt: skip
    assert seen[0] == seen[1]


def walked(daemon: cnidaemon.Daemon) -> cnichains.Chain:
    one = config(daemon)
    plugins = [{**each, "runtimeConfig": one["runtimeConfig"]} for each in one["plugins"]]
    return cnichains.Chain(daemon, plugins)
