"""vrf in real namespaces, beside the reference plugin: what the link had, it has in the VRF."""

import pathlib
from typing import Any

import pytest
from support import cnidaemon, cnilinks, cnisnapshot, netns

pytestmark = [
    pytest.mark.root,
    pytest.mark.builds("cni-plugins"),
    pytest.mark.kernel(kinds=["vrf"]),
]

PREVIOUS = {
    "cniVersion": "1.0.0",
    "interfaces": [{"name": "eth0", "sandbox": "here"}],
    "ips": [{"address": "10.9.0.2/24", "interface": 0}, {"address": "fd09::2/64", "interface": 0}],
}
"""What an earlier plugin is supposed to have done; ``prepare`` does it."""

_LINK = (
    "link add {0} type veth peer name {0}p", "link set {0}p up", "addr add 10.9.{1}.2/24 dev {0}",
    "link set {0} up", "addr add fd0{1}::2/64 dev {0} nodad",
    "route add default via 10.9.{1}.1 dev {0} metric {1}",
    "route add 192.0.2.0/24 via 10.9.{1}.1 dev {0} metric {1}",
    "route add fd7{1}::/64 via fd0{1}::1 dev {0}", "route add 198.51.{1}.0/24 dev {0} table 77",
)  # fmt: skip


def prepare(pod: str, ifname: str, number: int, *, keeps: bool) -> None:
    """Make a link with addresses and routes; ``keeps``: IPv6 addresses stay when it goes down."""
    lines = [each.format(ifname, number) for each in _LINK]
    netns.run(pod, "ip", "-batch", "-", text="\n".join(lines))
    setting = f"echo {int(keeps)} > /proc/sys/net/ipv6/conf/{ifname}/keep_addr_on_down"
    netns.run(pod, "sh", "-c", setting)


def walk(program: pathlib.Path, host: str, pod: str) -> list[Any]:
    """Attach two links to one VRF and detach them; return all that can be seen on the way."""
    found: list[Any] = []

    def call(command: str, ifname: str, **keys: Any) -> None:
        config = {"cniVersion": "1.0.0", "name": "n", "type": "vrf", "vrfname": "blue",
                  "prevResult": PREVIOUS, **keys}  # fmt: skip
        done = cnidaemon.execute(program, command, config, host=host, pod=pod, ifname=ifname)
        document = done.document["code"] if done.status else done.document
        vrfs = {
            name: (link.get("master"), link["linkinfo"].get("info_data"))
            for name, link in netns.links(pod).items()
            if "linkinfo" in link and not name.endswith("p")
        }
        found.append([command, ifname, done.status, document, vrfs, cnisnapshot.pod(pod)])

    call("ADD", "eth0")
    call("CHECK", "eth0")
    call("CHECK", "net1")
    call("ADD", "net1", table=7)  # it has another table
    call("ADD", "net1")
    call("ADD", "net1")  # it has a master
    call("DEL", "eth0")
    call("DEL", "net1")
    call("DEL", "net1")
    call("ADD", "net1", table=1001)
    call("DEL", "net1")
    return found


FIRST_DEL = 6
"""The number of the first step that removes something."""


def test_both_do_the_same(
    daemon: cnidaemon.Daemon, namespaces: netns.Namespaces, tmp_path: pathlib.Path
) -> None:
    theirs = cnilinks.reference(tmp_path / "theirs", "vrf")
    seen = []
    for folder, host in ((daemon.plugins, daemon.host), (theirs, namespaces.make("theirs"))):
        pod = namespaces.make("pod")
        prepare(pod, "eth0", 1, keeps=False)
        prepare(pod, "net1", 2, keeps=True)
        seen.append(walk(folder / "vrf", host, pod))
    for number, (mine, their) in enumerate(zip(*seen, strict=True)):
        assert mine[:5] == their[:5]
        if number < FIRST_DEL:  # ours puts routes back into the table where they were
            assert cnisnapshot.differences(mine[5], their[5], " ".join(mine[:2])) == []
    assert [each[2] for each in seen[0]] == [0, 0, 1, 1, 0, 1, 0, 0, 0, 0, 0]


def test_a_link_that_is_gone_does_not_block_its_del(
    daemon: cnidaemon.Daemon, namespaces: netns.Namespaces
) -> None:
    pod = namespaces.make("pod")
    prepare(pod, "eth0", 1, keeps=True)
    netns.run(pod, "ip", "route", "flush", "table", "77")  # what is not in main gets lost
    config = daemon.config("vrf", vrfname="blue", prevResult=PREVIOUS)
    before = cnisnapshot.pod(pod)
    assert daemon.call("ADD", config, pod=pod).status == 0
    assert daemon.call("DEL", config, pod=pod).status == 0
    after = cnisnapshot.pod(pod)
    assert cnisnapshot.differences(after, before) == []
    assert daemon.call("ADD", config, pod=pod).status == 0
    netns.run(pod, "ip", "link", "del", "eth0")
    assert daemon.call("DEL", config, pod=pod).status == 0
    assert list(netns.links(pod)) == ["lo"]
