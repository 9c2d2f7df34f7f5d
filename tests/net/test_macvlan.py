"""macvlan in real namespaces, beside the reference plugin."""

import pathlib
import re
from typing import Any

import pytest
from support import cnichains, cnidaemon, cnisnapshot, netns, peers

pytestmark = pytest.mark.root

MAC = "02:11:22:33:44:55"


def prepare(host: str) -> None:
    """Give a node the link to share, and a default route over it."""
    netns.run(host, "ip", "link", "add", "up0", "address", "02:00:00:00:00:77", "mtu", "1450",
              "type", "veth", "peer", "name", "up1")  # fmt: skip
    for name in ("up0", "up1"):
        netns.run(host, "ip", "link", "set", name, "up")
    netns.run(host, "ip", "addr", "add", "10.55.0.1/24", "dev", "up0")
    netns.run(host, "ip", "route", "add", "default", "via", "10.55.0.9")


def ipam(folder: pathlib.Path) -> dict[str, Any]:
    return {"type": "host-local", "dataDir": str(folder), "routes": [{"dst": "192.0.2.0/24"}],
            "ranges": [[{"subnet": "10.55.0.0/24", "gateway": "10.55.0.254"}]]}  # fmt: skip


CASES: list[dict[str, Any]] = [
    {}, {"master": "up0", "mode": "private", "mtu": 1400}, {"master": "up0", "mode": "vepa"},
    {"master": "up0", "mode": "passthru"}, {"master": "up0", "ipam": True},
    {"master": "up0", "ipam": True, "runtimeConfig": {"mac": MAC}, "mac": "02:00:00:00:00:01"},
    {"master": "up0", "mac": MAC, "bcqueuelen": 2000}, {"master": "up0", "mtu": 1451},
    {"master": "none"}, {"master": "up0", "mode": "x"},
]  # fmt: skip


@pytest.mark.parametrize("keys", CASES, ids=str)
def test_both_do_the_same(
    daemon: cnidaemon.Daemon, namespaces: netns.Namespaces, keys: dict[str, Any],
    tmp_path: pathlib.Path,
) -> None:  # fmt: skip
    theirs = tmp_path / "bin"
    theirs.mkdir()
    for name in ("macvlan", "host-local"):
        (theirs / name).symlink_to(peers.plugin(name))
    found = []
    for number, (plugins, host) in enumerate(
        ((daemon.plugins, daemon.host), (theirs, namespaces.make("theirs")))
    ):
        prepare(host)
        pod = namespaces.make("pod")
        config = daemon.config("macvlan", **keys)
        if "ipam" in keys:
            config["ipam"] = ipam(tmp_path / str(number))
        found.append(observed(plugins / "macvlan", host, pod, config))
    assert cnisnapshot.differences(found[0], found[1]) == []
    if "add" in found[0] and not found[0]["add"]["status"]:
        assert "eth0" not in found[0]["after"]["links"]


def observed(program: pathlib.Path, host: str, pod: str, config: dict[str, Any]) -> dict[str, Any]:
    """Run ADD, CHECK and DEL, and return what can be seen of them."""

    def call(command: str, document: dict[str, Any]) -> cnidaemon.Outcome:
        return cnidaemon.execute(program, command, document, host=host, pod=pod)

    added = call("ADD", config)
    if added.status:
        return {"refused": added.document["code"], "after": cnisnapshot.pod(pod)}
    link = netns.links(pod)["eth0"]
    settings = ("ipv4/conf/eth0/arp_notify", "ipv6/conf/eth0/ndisc_notify")
    later = {**config, "prevResult": added.document}
    return {
        "add": cnisnapshot.outcome(added, pod),
        "pod": cnisnapshot.pod(pod),
        "kind": link["linkinfo"],
        "mac": link["address"] if "passthru" in str(config) or MAC in str(config) else "random",
        "told": added.document["interfaces"][0]["mac"] == link["address"],
        "notify": netns.run(pod, "cat", *(f"/proc/sys/net/{key}" for key in settings)),
        "check": call("CHECK", later).status,
        "del": [call("DEL", later).status for _ in range(2)],
        "after": cnisnapshot.pod(pod),
    }


def test_containers_reach_each_other_and_a_name_that_is_taken_stays(
    daemon: cnidaemon.Daemon, namespaces: netns.Namespaces
) -> None:
    prepare(daemon.host)
    pods = [namespaces.make(each) for each in "ab"]
    config = daemon.config("macvlan", master="up0", ipam=ipam(daemon.ipam))
    results = [
        daemon.call("ADD", config, pod=pod, container=f"c{number}").document
        for number, pod in enumerate(pods)
    ]
    address = results[1]["ips"][0]["address"].split("/")[0]
    assert netns.inside(pods[0], lambda: cnichains.reaches(address))
    refused = daemon.call("ADD", config, pod=pods[0], container="c9")
    assert re.search('failed to rename macvlan to "eth0"', refused.error)
    assert "eth0" in netns.links(pods[0])
    assert len(daemon.addresses()) == 2
    netns.run(daemon.host, "ip", "link", "del", "up0")  # DEL needs no master
    for number, pod in enumerate(pods):
        assert daemon.call("DEL", config, pod=pod, container=f"c{number}").status == 0
    assert daemon.addresses() == {}


def test_a_link_inside_the_container_may_be_shared(
    daemon: cnidaemon.Daemon, namespaces: netns.Namespaces
) -> None:
    pod = namespaces.make("pod")
    prepare(pod)
    config = daemon.config("macvlan", master="up0", linkInContainer=True)
    added = daemon.call("ADD", config, pod=pod, ifname="net1")
    assert added.status == 0, added.stdout
    assert netns.links(pod)["net1"]["link"] == "up0"
    assert daemon.call("DEL", config, pod=pod, ifname="net1").status == 0
    assert "net1" not in netns.links(pod)
