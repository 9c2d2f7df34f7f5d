"""What was seen is believed until the kernel announces a change, and not a moment longer."""

import pytest
from bitts.net import changes
from bitts.net import namespaces as netnamespaces
from support import cnidaemon, netns

pytestmark = pytest.mark.root

FLOOR = 1 << 20
FORWARDING = "/proc/sys/net/ipv4/ip_forward"


def listening(host: str) -> changes.Changes:
    with netnamespaces.opened(host) as descriptor, netnamespaces.entered(descriptor):
        return changes.Changes(FLOOR)


@pytest.mark.parametrize(
    "change",
    [
        ("ip", "link", "set", "b0", "promisc", "on"),
        ("ip", "link", "set", "b0", "address", "02:00:00:00:00:09"),
        ("ip", "address", "add", "10.1.0.1/24", "dev", "b0"),
        ("ip", "-6", "address", "add", "fd00::1/64", "dev", "b0", "nodad"),
        ("ip", "link", "del", "b0"),
        ("sysctl", "-w", "net.ipv4.ip_forward=1"),
        ("sysctl", "-w", "net.ipv6.conf.all.forwarding=1"),
    ],
)
def test_a_change_is_heard_of_once(namespaces: netns.Namespaces, change: tuple[str, ...]) -> None:
    host = namespaces.make("host")
    netns.run(host, "ip", "link", "add", "b0", "type", "bridge")
    heard = listening(host)
    assert not heard.happened()
    netns.run(host, *change)
    assert heard.happened()
    assert not heard.happened()
    heard.close()


def test_links_of_large_indexes_go_unheard(namespaces: netns.Namespaces) -> None:
    host = namespaces.make("host")
    netns.run(host, "ip", "link", "set", "lo", "up")
    heard = listening(host)
    index = str(FLOOR + 5)
    add = ("ip", "link", "add", "v0", "index", index, "type", "veth", "peer", "name", "v1")
    netns.run(host, *add, "index", str(FLOOR + 6))
    netns.run(host, "ip", "address", "add", "10.1.0.1/24", "dev", "v0")
    netns.run(host, "ip", "link", "del", "v0")
    assert not heard.happened()
    heard.close()


@pytest.mark.parametrize("count", [1, 2000])
def test_more_changes_than_are_kept_are_a_change(namespaces: netns.Namespaces, count: int) -> None:
    host = namespaces.make("host")
    netns.run(host, "ip", "link", "add", "b0", "type", "bridge")
    heard = listening(host)
    lines = "".join(f"link set b0 mtu {1400 + n % 2}\n" for n in range(count))
    netns.run(host, "ip", "-batch", "-", text=lines)
    assert heard.happened()
    assert not heard.happened()
    heard.close()


@pytest.mark.parametrize(
    "meddling",
    [
        ("ip", "address", "del", "10.88.0.1/24", "dev", "cni0"),
        ("ip", "link", "set", "cni0", "down"),
        ("sysctl", "-w", "net.ipv4.ip_forward=0"),
        ("ip", "link", "del", "cni0"),
    ],
)
def test_what_others_undo_is_put_right_by_the_next_add(
    daemon: cnidaemon.Daemon, namespaces: netns.Namespaces, meddling: tuple[str, ...]
) -> None:
    config = daemon.config("bridge", isGateway=True, ipam="host-local")
    for container in ("c1", "c2"):  # the second is planned from memory
        pod = namespaces.make(container)
        assert daemon.call("ADD", config, container=container, pod=pod).status == 0
    netns.run(daemon.host, *meddling)
    pod = namespaces.make("c3")
    assert daemon.call("ADD", config, container="c3", pod=pod).status == 0
    bridge = netns.as_json(daemon.host, "ip", "-j", "address", "show", "cni0")[0]
    assert "UP" in bridge["flags"]
    assert "10.88.0.1" in [each["local"] for each in bridge["addr_info"]]
    assert netns.run(daemon.host, "cat", FORWARDING).strip() == "1"
    for container in ("c1", "c2", "c3"):
        assert daemon.call("DEL", config, container=container).status == 0
    assert cnidaemon.leftovers(daemon.host) == []
