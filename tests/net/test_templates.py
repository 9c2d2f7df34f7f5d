"""ADDs that look alike: from the third on they are made by a template, and nobody can tell."""

import json
import pathlib
from collections.abc import Mapping
from typing import Any

import pytest
from support import cnichains, cnidaemon, cnisnapshot, netns, processes

pytestmark = pytest.mark.root

MBIT = 1_000_000
WARM = ("warm-a", "warm-b")
"""Containers that come before: the first lays what pods share, the second makes the template."""


def config(daemon: cnidaemon.Daemon, port: int = 8080) -> dict[str, Any]:
    limits = {"ingressRate": MBIT, "ingressBurst": MBIT, "egressRate": MBIT, "egressBurst": MBIT}
    plugins: list[dict[str, Any]] = [
        cnichains.bridge(daemon, dual=True, ipMasq=True, hairpinMode=True),
        {"type": "portmap", "capabilities": {"portMappings": True}},
        {"type": "firewall"},
        {"type": "bandwidth", "capabilities": {"bandwidth": True}},
    ]
    published = [{"hostPort": port, "containerPort": 80, "protocol": "tcp"}]
    return daemon.config(
        "bitts", plugins=plugins, runtimeConfig={"portMappings": published, "bandwidth": limits}
    )


def stamped(daemon: cnidaemon.Daemon) -> int:
    """Return how many ADDs were made by a template."""
    return daemon.log().count("Attached by a template")


@pytest.fixture
def node(
    namespaces: netns.Namespaces, spawner: processes.Processes, short_dir: pathlib.Path
) -> cnidaemon.Daemon:
    return cnidaemon.Daemon(spawner, namespaces.make("node"), short_dir, "--v=5")


def warm_up(daemon: cnidaemon.Daemon, pods: Mapping[str, str]) -> None:
    for number, name in enumerate(WARM):
        about = {"pod": pods[name], "container": name}
        added = daemon.call("ADD", config(daemon, 9000 + number), **about)
        assert added.status == 0, added.stdout
    assert stamped(daemon) == 0


def rules(host: str) -> list[str]:
    """Return everything that nftables and tc know, counted, without what is random."""
    listed = netns.as_json(host, "nft", "-j", "list", "ruleset")["nftables"]
    sizes = [
        f"{kind} {each[kind]['name']}: {len(each[kind].get('elem', []))}"
        for each in listed
        for kind in ("set", "map")
        if kind in each
    ]
    shaped = netns.run(host, "tc", "qdisc", "show")
    return [*sorted(sizes), f"tbf {shaped.count(' tbf ')}", f"ingress {shaped.count(' ingress ')}"]


def same(seen: Any) -> Any:
    """Return what was seen, with the second container's addresses as the first one's."""
    text = json.dumps(seen).replace("10.88.0.5", "10.88.0.4").replace("fd00:88::5", "fd00:88::4")
    return json.loads(text)


def test_a_template_attaches_as_plugins_do(
    node: cnidaemon.Daemon, namespaces: netns.Namespaces
) -> None:
    """Answer, container, node and rules are the same both ways; nothing is left after either."""
    node.start()
    warm_up(node, {name: namespaces.make(name) for name in WARM})
    before = cnidaemon.leftovers(node.host)
    pod = namespaces.make("pod")
    seen = []
    for way in ("template", "plugins"):
        args = "" if way == "template" else "IgnoreUnknown=1;MAC=02:11:22:33:44:66"  # not alike
        added = node.call("ADD", config(node), pod=pod, container="like-c", args=args)
        assert added.status == 0, added.stdout
        assert stamped(node) == 1
        seen.append(
            (
                same(cnisnapshot.outcome(added, pod)),
                same(cnisnapshot.pod(pod)),
                same(cnisnapshot.node(node.host)),
                rules(node.host),
            )
        )
        checked = {**config(node), "prevResult": added.document}
        assert node.call("CHECK", checked, pod=pod, container="like-c").status == 0
        assert node.call("DEL", config(node), pod=pod, container="like-c").status == 0
        assert cnidaemon.leftovers(node.host) == before
        assert len(node.addresses()) == 2 * len(WARM)
    assert seen[0] == seen[1]


def test_a_template_ends_when_the_bridge_is_another(
    node: cnidaemon.Daemon, namespaces: netns.Namespaces
) -> None:
    """What somebody does to the bridge, or to the rules, is put right as ever."""
    node.start()
    warm_up(node, {name: namespaces.make(name) for name in WARM})
    pod = namespaces.make("pod")
    for change in (
        ("ip", "address", "del", "10.88.0.1/24", "dev", "cni0"),
        ("nft", "delete", "table", "inet", "bitts_cni"),
        ("ip", "link", "del", "cni0"),
    ):
        netns.run(node.host, *change)
        added = node.call("ADD", config(node), pod=pod, container="like-c")
        assert added.status == 0, added.stdout
        shown = netns.run(node.host, "ip", "-4", "address", "show", "dev", "cni0")
        assert "10.88.0.1/24" in shown, change
        assert "masq4" in netns.run(node.host, "nft", "list", "ruleset"), change
        assert node.call("DEL", config(node), pod=pod, container="like-c").status == 0


def test_a_port_that_is_taken_is_refused_by_name_and_nothing_is_left(
    node: cnidaemon.Daemon, namespaces: netns.Namespaces
) -> None:
    """What fails by the template is taken back, and told as it is told without one."""
    node.start()
    warm_up(node, {name: namespaces.make(name) for name in WARM})
    before, held = cnidaemon.leftovers(node.host), node.addresses()
    pod = namespaces.make("pod")
    refused = node.call("ADD", config(node, 9001), pod=pod, container="like-c")
    assert "host port 9001/tcp is taken by another container" in refused.error
    assert cnidaemon.leftovers(node.host) == before
    assert node.addresses() == held
    assert "eth0" not in netns.links(pod)


@pytest.mark.slow
def test_killed_anywhere_in_an_add_by_template_nothing_is_left(
    node: cnidaemon.Daemon, namespaces: netns.Namespaces
) -> None:
    record, pod = node.folder / "instants", namespaces.make("pod")
    warm = {name: namespaces.make(name) for name in WARM}
    node.start()
    warm_up(node, warm)

    def warmed(fault: str) -> None:
        """Start anew, and make a template anew."""
        node.stop()
        node.start(f"--fault={fault}")
        for number, name in enumerate(WARM):
            about = {"pod": warm[name], "container": name}
            assert node.call("DEL", config(node, 9000 + number), **about).status == 0
        warm_up(node, warm)

    warmed(f"crash-at=0:{record}")
    base = len(record.read_text().splitlines())
    assert node.call("ADD", config(node), pod=pod, container="like-c").status == 0
    assert stamped(node) == 1
    passed = [each.partition(" ")[2] for each in record.read_text().splitlines()[base:]]
    assert node.call("DEL", config(node), pod=pod, container="like-c").status == 0
    assert passed[:2] == ["plan written", "addresses allocated"]
    assert len(passed) > 20, passed
    for number in (1, 2, 3, 4, len(passed) - 1):  # between, plugins are killed elsewhere
        warmed(f"crash-at={base + number}")
        before, held = cnidaemon.leftovers(node.host), node.addresses()
        call = node.begin("ADD", config(node), pod=pod, container="like-c")
        node.await_crash()
        call.kill()
        node.start()
        assert cnidaemon.leftovers(node.host) == before, passed[number - 1]
        assert node.addresses() == held, passed[number - 1]
        assert "eth0" not in netns.links(pod)
