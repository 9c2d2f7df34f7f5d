"""The daemon killed at every instant at which something is made, moved, changed or given back.

What addresses, routes and the journal itself pass through is killed in ``test_recovery``. In the
test machine, where everything takes ten times longer, only what is new there is looked at.
"""

from typing import Any

import pytest
from support import cnidaemon, cnilinks, kernelkinds, netns

pytestmark = [pytest.mark.root, pytest.mark.slow]

CONFIGS: dict[str, dict[str, Any]] = {
    "tap": {"owner": 1},
    "host-device": {"device": "hd0"},
    "macvlan": {"master": "up0"},
    "vrf": {"vrfname": "blue", "prevResult": {"cniVersion": "1.1.0"}},
    "vlan": {"master": "up0", "vlanId": 5},
    "sbr": {},
    "route-override": {"flushgateway": True, "addroutes": [{"dst": "203.0.113.0/24"}]},
    "bitts": {
        "plugins": [
            {"type": "ptp", "ipMasq": True},
            {"type": "loopback"},
            {"type": "tuning", "mtu": 1400, "mac": cnilinks.MAC, "promisc": True, "txQLen": 99,
             "sysctl": {"net.ipv4.conf.IFNAME.arp_notify": "1"}},
        ]
    },
}  # fmt: skip
"""By type; what cannot be carried out in one list with others stands alone. ``vlan`` stands for
``ipvlan`` and ``dummy`` too, whose links are made and removed by the same steps."""

STANDING = """
ip link add eth0 type veth peer name eth1
echo 0 > /proc/sys/net/ipv6/conf/eth0/accept_dad
ip link set eth1 up; ip link set eth0 addrgenmode none up
ip addr add 10.66.0.2/24 dev eth0; ip addr add fd66::2/64 dev eth0
ip route add default via 10.66.0.1
"""
"""What an earlier plugin made, for those that change it."""


def kinds(*names: str) -> list[Any]:
    return [
        pytest.param(
            name,
            marks=pytest.mark.kernel(kinds=[name] if name in kernelkinds.KINDS else []),
            id=name,
        )
        for name in names
    ]


def seen(daemon: cnidaemon.Daemon, pod: str) -> Any:
    """Return what must be as before: links of both sides, and all else in the container."""
    found = [
        {name: (link.get("ifalias"), link["address"], link.get("master"), link["mtu"],
                link["txqlen"], "UP" in link["flags"], "PROMISC" in link["flags"])
         for name, link in netns.links(each).items()}
        for each in (daemon.host, pod)
    ]  # fmt: skip
    return [found, netns.run(pod, "sh", "-c", LOOK).splitlines(), daemon.addresses()]


LOOK = """
for family in -4 -6; do
  ip $family -o addr show | sed 's/ valid_lft .*//' | grep -v ' fe80'
  ip $family route show table all | grep -v fe80 | sort
  ip $family rule show | grep -v l3mdev  # the kernel's own, from the first VRF on
done
cat /proc/sys/net/ipv4/conf/*/arp_notify
"""


def ready(daemon: cnidaemon.Daemon, pod: str, kind: str) -> dict[str, Any]:
    """Prepare node and container; return the configuration."""
    cnilinks.prepare(daemon.host, pod)
    keys = dict(CONFIGS[kind])
    if kind == "vrf":
        netns.run(pod, "ip", "link", "add", "eth0", "type", "veth", "peer", "name", "eth1")
    elif kind in {"sbr", "route-override"}:
        netns.run(pod, "sh", "-ec", STANDING)
        keys["prevResult"] = {
            "cniVersion": "1.1.0", "interfaces": [{"name": "eth0", "sandbox": pod}],
            "ips": [{"address": "10.66.0.2/24", "gateway": "10.66.0.1", "interface": 0}],
        }  # fmt: skip
    elif kind == "bitts":
        ipam = daemon.config("ptp", ipam="host-local")["ipam"]
        keys["plugins"] = [{**keys["plugins"][0], "ipam": ipam}, *keys["plugins"][1:]]
        # Forwarding, and what the kernel gives a loopback, stay from the first time on.
        for command in ("ADD", "DEL"):
            assert daemon.call(command, daemon.config(kind, **keys), pod=pod).status == 0
    return daemon.config(kind, **keys)


def instants(
    daemon: cnidaemon.Daemon, command: str, config: dict[str, Any], pod: str
) -> list[tuple[int, str]]:
    """Carry out a command and return the instants that were passed, with their numbers."""
    record = daemon.folder / "instants"
    daemon.stop()
    daemon.start(f"--fault=crash-at=0:{record}")
    record.write_text("")
    outcome = daemon.call(command, config, pod=pod)
    assert outcome.status == 0, outcome.stdout
    return list(enumerate(record.read_text().splitlines(), 1))


def in_guest() -> list[tuple[int, str]]:
    """Return the one instant that is tried in the test machine: the first link is there."""
    return [(2, "a link was made")] if kernelkinds.IN_GUEST else []


def recorded(daemon: cnidaemon.Daemon, config: dict[str, Any], pod: str) -> list[tuple[int, str]]:
    """Return all instants of an ADD but the last, when it is done."""
    before = seen(daemon, pod)
    passed = instants(daemon, "ADD", config, pod)
    assert seen(daemon, pod) != before
    assert daemon.call("DEL", config, pod=pod).status == 0
    assert len(passed) >= 4, passed
    return passed[:-1]


@pytest.mark.parametrize("kind", kinds(*CONFIGS))
def test_an_add_cut_off_anywhere_leaves_nothing(
    daemon: cnidaemon.Daemon, namespaces: netns.Namespaces, kind: str
) -> None:
    pod = namespaces.make("pod")
    config = ready(daemon, pod, kind)
    before = seen(daemon, pod)
    for number, name in in_guest() or recorded(daemon, config, pod):
        daemon.stop()
        daemon.start(f"--fault=crash-at={number}")
        call = daemon.begin("ADD", config, pod=pod)
        daemon.await_crash()
        call.kill()
        daemon.start()
        assert seen(daemon, pod) == before, name


@pytest.mark.parametrize(
    "kind", kinds("tap", "host-device", "macvlan", "sbr", "route-override", "bitts")
)
def test_a_del_cut_off_anywhere_is_finished(
    daemon: cnidaemon.Daemon, namespaces: netns.Namespaces, kind: str
) -> None:
    pod = namespaces.make("pod")
    config = ready(daemon, pod, kind)
    before = seen(daemon, pod)
    assert daemon.call("ADD", config, pod=pod).status == 0
    passed = instants(daemon, "DEL", config, pod)
    assert passed
    for number, name in passed:
        daemon.stop()
        daemon.start()
        assert daemon.call("ADD", config, pod=pod).status == 0
        daemon.stop()
        daemon.start(f"--fault=crash-at={number}")
        call = daemon.begin("DEL", config, pod=pod)
        daemon.await_crash()
        call.kill()
        daemon.start()
        assert seen(daemon, pod) == before, name


def test_gc_gives_devices_back(daemon: cnidaemon.Daemon, namespaces: netns.Namespaces) -> None:
    pod = namespaces.make("pod")
    for kind in ("tap", "host-device"):
        config = ready(daemon, pod, kind) if kind == "tap" else daemon.config(kind, device="hd0")
        before = seen(daemon, pod)
        assert daemon.call("ADD", config, pod=pod, ifname="net1").status == 0
        assert daemon.call("GC", {**config, "cni.dev/valid-attachments": []}).status == 0
        assert seen(daemon, pod) == before
