"""sbr in real namespaces: rules and tables beside the reference plugin's."""

import json
from typing import Any

import pytest
from support import cnidaemon, netns, peers

pytestmark = pytest.mark.root


@pytest.fixture
def pods(namespaces: netns.Namespaces) -> list[str]:
    """Two equal containers: two links, each with its routes."""
    made = [namespaces.make(each) for each in ("ours", "theirs")]
    for pod in made:
        for number, name in enumerate(("eth0", "net1")):
            netns.run(pod, "ip", "link", "add", name, "type", "veth", "peer", "name", f"o{number}")
            for link in (name, f"o{number}"):
                netns.run(pod, "sh", "-c", f"echo 0 > /proc/sys/net/ipv6/conf/{link}/accept_dad")
                netns.run(pod, "ip", "link", "set", link, "addrgenmode", "none", "up")
            for address in (f"10.{number}.0.2/24", f"fd0{number}::2/64"):
                netns.run(pod, "ip", "addr", "add", address, "dev", name)
        netns.run(pod, "ip", "addr", "add", "10.7.0.2/24", "dev", "net1")
        netns.run(pod, "ip", "route", "add", "default", "via", "10.0.0.1", "dev", "eth0")
        netns.run(pod, "ip", "route", "add", "192.0.2.0/24", "via", "10.1.0.1", "dev", "net1")
        netns.run(pod, "ip", "-6", "route", "add", "default", "via", "fd01::1", "dev", "net1")
    return made


def config(daemon: cnidaemon.Daemon, pod: str, **keys: Any) -> dict[str, Any]:
    previous = {
        "cniVersion": "1.1.0",
        "interfaces": [{"name": "eth0", "sandbox": pod}, {"name": "net1", "sandbox": pod}],
        "ips": [
            {"address": "10.1.0.2/24", "gateway": "10.1.0.1", "interface": 1},
            {"address": "10.7.0.2/24", "interface": 1},
            {"address": "fd01::2/64", "gateway": "fd01::1", "interface": 1},
            {"address": "10.0.0.2/24", "gateway": "10.0.0.1", "interface": 0},
        ],
    }
    return {**daemon.config("sbr", **keys), "prevResult": previous}


def seen(pod: str) -> list[str]:
    """Return rules and routes, each as text."""
    found = []
    for family in ("-4", "-6"):
        for words in (("rule",), ("route", "show", "table", "all")):
            shown = netns.as_json(pod, "ip", family, "-j", "-d", *words)
            found += [json.dumps(each, sort_keys=True) for each in shown]
    return sorted(found)


@pytest.mark.parametrize(
    "keys",
    [
        {}, {"table": 5000}, {"gateways": ["10.1.0.9"]}, {"addSourceHints": True},
        {"gateways": ["10.1.0.9", "fd01::9"], "addSourceHints": True},
    ],
    ids=str,
)  # fmt: skip
def test_both_do_the_same_and_ours_takes_it_back(
    daemon: cnidaemon.Daemon, namespaces: netns.Namespaces, pods: list[str], keys: dict[str, Any]
) -> None:
    before = seen(pods[0])
    added = daemon.call("ADD", config(daemon, pods[0], **keys), pod=pods[0], ifname="net1")
    assert added.status == 0, added.stdout
    node = namespaces.make("node2")
    theirs = cnidaemon.execute(
        peers.plugin("sbr"), "ADD", config(daemon, pods[1], **keys), host=node, pod=pods[1],
        ifname="net1",
    )  # fmt: skip
    assert theirs.status == 0, theirs.stdout
    assert json.loads(added.stdout.replace(pods[0], pods[1])) == theirs.document
    assert seen(pods[0]) == seen(pods[1])
    assert daemon.call("CHECK", config(daemon, pods[0], **keys), pod=pods[0]).status == 0
    removed = daemon.call("DEL", config(daemon, pods[0], **keys), pod=pods[0], ifname="net1")
    assert removed.status == 0, removed.stdout
    assert [each for each in seen(pods[0]) if '"table": "local"' not in each] == [
        each for each in before if '"table": "local"' not in each
    ]


def test_a_container_that_is_gone_is_no_problem(
    daemon: cnidaemon.Daemon, namespaces: netns.Namespaces, pods: list[str]
) -> None:
    wanted = config(daemon, pods[0])
    assert daemon.call("ADD", wanted, pod=pods[0], ifname="net1").status == 0
    namespaces.remove(pods[0])
    assert daemon.call("DEL", wanted, pod=pods[0], ifname="net1").status == 0
    assert daemon.call("DEL", wanted, pod="", ifname="net1").status == 0


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({"gateways": ["x"]}, "invalid static gateway IP address: x"),
        ({"gateways": ["10.1.0.1", "10.1.0.2"]}, "gateways list contains multiple IPv4 addresses"),
        ({"gateways": ["10.1.0.1", "fd01::1", "fd01::2"]}, "cannot contain more than 2 entries"),
        ({"prevResult": None}, "must be called as chained plugin"),
        ({"prevResult": {"cniVersion": "1.1.0"}}, "No IP addresses supplied on interface: net1"),
    ],
)
def test_mistakes_are_told_as_the_reference_tells_them(
    daemon: cnidaemon.Daemon, namespaces: netns.Namespaces, pods: list[str],
    keys: dict[str, Any], expected: str,
) -> None:  # fmt: skip
    before = seen(pods[0])
    wanted = {**config(daemon, pods[0]), **keys}
    assert expected in daemon.call("ADD", wanted, pod=pods[0], ifname="net1").error
    assert seen(pods[0]) == before
    node = namespaces.make("node2")
    theirs = cnidaemon.execute(
        peers.plugin("sbr"), "ADD", wanted, host=node, pod=pods[0], ifname="net1"
    )
    assert expected in theirs.error
