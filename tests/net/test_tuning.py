"""tuning in real namespaces, beside the reference plugin."""

import json
import pathlib
from collections.abc import Iterator
from typing import Any

import pytest
from cni_daemon.plugins import tuning
from support import cnidaemon, netns, peers

pytestmark = pytest.mark.root

MAC = "02:11:22:33:44:55"
EVERY = {
    "sysctl": {"net.ipv4.conf.IFNAME.arp_filter": "1", "net.core.somaxconn": "500"},
    "mac": MAC, "mtu": 1400, "promisc": True, "allmulti": True, "txQLen": 77,
}  # fmt: skip
SEEN = ("flags", "mtu", "txqlen", "address")
SETTINGS = ("ipv4/conf/eth0/arp_filter", "core/somaxconn")


@pytest.fixture
def pods(namespaces: netns.Namespaces) -> list[str]:
    """Two containers with the same link each: one for ours, one for the reference."""
    made = [namespaces.make(each) for each in ("ours", "theirs")]
    for pod in made:
        netns.run(pod, "ip", "link", "add", "eth0", "address", "02:00:00:00:00:01", "type", "veth",
                  "peer", "name", "out")  # fmt: skip
    return made


def config(daemon: cnidaemon.Daemon, pod: str, folder: pathlib.Path, **keys: Any) -> dict[str, Any]:
    previous = {
        "cniVersion": "1.1.0",
        "interfaces": [{"name": "out", "mac": MAC}, {"name": "eth0", "mac": "x", "sandbox": pod}],
        "ips": [{"address": "10.9.0.2/24", "interface": 1}],
    }
    made = daemon.config("tuning", dataDir=str(folder), **keys)
    return {**made, "prevResult": previous}


def seen(pod: str) -> dict[str, Any]:
    link = netns.links(pod)["eth0"]
    values = netns.run(pod, "cat", *(f"/proc/sys/net/{key}" for key in SETTINGS)).split()
    return {**{key: link.get(key) for key in SEEN}, "settings": values}


@pytest.mark.parametrize(
    "keys",
    [
        EVERY, {"mtu": 1300}, {"txQLen": 0}, {"allmulti": False}, {"promisc": False}, {},
        {"args": {"cni": {"mac": MAC, "mtu": 1280}}, "mac": "02:00:00:00:00:09"},
        {"runtimeConfig": {"mac": MAC}, "mac": "02:00:00:00:00:09"},
    ],
    ids=str,
)  # fmt: skip
def test_both_do_the_same_and_put_it_back(
    daemon: cnidaemon.Daemon, namespaces: netns.Namespaces, pods: list[str], keys: dict[str, Any],
    tmp_path: pathlib.Path,
) -> None:  # fmt: skip
    node = namespaces.make("theirs")
    found: list[list[Any]] = []
    for pod in pods:
        is_ours = pod == pods[0]
        wanted = config(daemon, pod, tmp_path, **keys)
        steps: list[Any] = [seen(pod)]
        for verb in ("ADD", "CHECK", "DEL"):
            outcome = (
                daemon.call(verb, wanted, pod=pod) if is_ours
                else cnidaemon.execute(peers.plugin("tuning"), verb, wanted, host=node, pod=pod)
            )  # fmt: skip
            assert outcome.status == 0, outcome.stdout
            steps += [json.loads(outcome.stdout.replace(pod, "POD") or "0"), seen(pod)]
        found.append(steps)
    assert found[0] == found[1]
    ours = found[0]
    assert {**ours[0], "settings": None} == {**ours[-1], "settings": None}


def test_check_finds_each_difference(
    daemon: cnidaemon.Daemon, pods: list[str], tmp_path: pathlib.Path
) -> None:
    wanted = config(daemon, pods[0], tmp_path, **EVERY)
    assert daemon.call("ADD", wanted, pod=pods[0]).status == 0
    for command, expected in (
        ("txqueuelen 78", "Transmit Queue Length of eth0 is 77, current value is 78"),
        ("allmulticast off", "all-multicast mode of eth0 is True"),
        ("mtu 1399", "MTU of eth0 is 1400, current value is 1399"),
        ("promisc off", "promisc of eth0 is True"),
        ("address 02:00:00:00:00:02", f"Ethernet of eth0 is {MAC}"),
    ):
        netns.run(pods[0], "ip", "link", "set", "eth0", *command.split())
        error = daemon.call("CHECK", wanted, pod=pods[0]).error
        assert expected in error
    netns.run(pods[0], "sh", "-c", "echo 0 > /proc/sys/net/ipv4/conf/eth0/arp_filter")
    assert "arp_filter is 1, current value is 0" in daemon.call("CHECK", wanted, pod=pods[0]).error


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({"sysctl": {"kernel.hostname": "x"}}, "invalid net sysctl key"),
        ({"sysctl": {"net.ipv4.nosuch": "1"}}, "no such file or directory"),
        ({"mac": "zz"}, "invalid args zz for MAC addr"),
        ({"prevResult": None}, "Required prevResult missing"),
    ],
)
def test_mistakes_are_told_and_nothing_is_changed(
    daemon: cnidaemon.Daemon, namespaces: netns.Namespaces, pods: list[str],
    keys: dict[str, Any], expected: str, tmp_path: pathlib.Path,
) -> None:  # fmt: skip
    before = seen(pods[0])
    wanted = {**config(daemon, pods[0], tmp_path), "mtu": 1234, **keys}
    assert expected.lower() in daemon.call("ADD", wanted, pod=pods[0]).error.lower()
    assert seen(pods[0]) == before
    node = namespaces.make("node2")
    wanted = {**config(daemon, pods[1], tmp_path), "mtu": 1234, **keys}
    theirs = cnidaemon.execute(peers.plugin("tuning"), "ADD", wanted, host=node, pod=pods[1])
    assert expected.lower() in theirs.error.lower()


@pytest.fixture
def allow_list() -> Iterator[pathlib.Path]:
    """The list of allowed settings, put back afterwards."""
    path = pathlib.Path(tuning.ALLOW_LIST)
    former = path.read_bytes() if path.exists() else None
    path.parent.mkdir(parents=True, exist_ok=True)
    yield path
    path.unlink(missing_ok=True)
    if former is not None:
        path.write_bytes(former)


def test_only_allowed_settings_are_changed(
    daemon: cnidaemon.Daemon, namespaces: netns.Namespaces, pods: list[str],
    allow_list: pathlib.Path, tmp_path: pathlib.Path,
) -> None:  # fmt: skip
    allow_list.write_text("^net.core.somaxconn$\n\n^net.ipv4.conf.*.arp_notify$\n")
    node = namespaces.make("theirs")
    refused = []
    for number, pod in enumerate(pods):
        wanted = config(daemon, pod, tmp_path, **EVERY)
        outcome = (
            daemon.call("ADD", wanted, pod=pod) if number == 0
            else cnidaemon.execute(peers.plugin("tuning"), "ADD", wanted, host=node, pod=pod)
        )  # fmt: skip
        refused.append(outcome.error)
    assert "is not allowed. Only the following sysctls are allowed: [" in refused[0]
    assert refused[0] == refused[1]
