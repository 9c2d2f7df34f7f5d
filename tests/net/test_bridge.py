"""bridge through the shim: what the container gets, what the node keeps, what goes again."""

import json
import socket

import pytest
from support import cnidaemon, netns

pytestmark = pytest.mark.root


def reachable(pod: str, address: str) -> bool:
    """Say whether a TCP connection from the pod reaches the kernel at an address."""

    def attempt() -> bool:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.settimeout(2)
            try:
                probe.connect((address, 9))
            except ConnectionRefusedError:
                return True
            except OSError:
                return False
            return True

    return netns.inside(pod, attempt)


def gateway(daemon: cnidaemon.Daemon, **keys: object) -> dict[str, object]:
    return daemon.config("bridge", isDefaultGateway=True, ipam="host-local", **keys)


def test_a_container_gets_an_address_and_a_way_out(
    daemon: cnidaemon.Daemon, namespaces: netns.Namespaces
) -> None:
    pod = namespaces.make("pod")
    config = gateway(daemon)
    added = daemon.call("ADD", config, pod=pod)
    assert added.status == 0, added.stdout
    document = added.document
    bridge, host, inner = document["interfaces"]
    assert (bridge["name"], inner["name"], inner["sandbox"]) == ("cni0", "eth0", pod)
    assert document["ips"] == [{"interface": 2, "address": "10.88.0.2/24", "gateway": "10.88.0.1"}]
    assert document["routes"] == [{"dst": "0.0.0.0/0", "gw": "10.88.0.1"}]
    seen = netns.links(daemon.host)
    assert seen["cni0"]["address"] == bridge["mac"]
    assert seen[host["name"]]["address"] == host["mac"]
    assert seen[host["name"]]["operstate"] == "UP"
    assert netns.links(pod)["eth0"]["address"] == inner["mac"]
    assert daemon.addresses() == {"10.88.0.2": "c1\neth0"}  # text mode: the file has CR LF
    assert (daemon.ipam / "tnet" / "10.88.0.2").read_bytes() == b"c1\r\neth0"
    assert reachable(pod, "10.88.0.1")
    assert daemon.call("CHECK", {**config, "prevResult": document}, pod=pod).status == 0
    removed = daemon.call("DEL", {**config, "prevResult": document}, pod=pod)
    assert (removed.status, removed.stdout) == (0, "")
    assert cnidaemon.leftovers(daemon.host) == []
    assert daemon.addresses() == {}
    assert "eth0" not in netns.links(pod)
    assert daemon.call("DEL", config, pod=pod).status == 0


def test_two_containers_reach_each_other(
    daemon: cnidaemon.Daemon, namespaces: netns.Namespaces
) -> None:
    first, second = namespaces.make("a"), namespaces.make("b")
    config = gateway(daemon, hairpinMode=True)
    one = daemon.call("ADD", config, pod=first, container="a").document
    daemon.call("ADD", config, pod=second, container="b")
    assert reachable(second, one["ips"][0]["address"].split("/")[0])
    port = netns.links(daemon.host)[one["interfaces"][1]["name"]]
    assert port["linkinfo"]["info_slave_data"]["hairpin"] is True
    assert port["ifalias"] == "bitts-cni tnet/a/eth0"


def test_both_families_are_usable_at_once(
    daemon: cnidaemon.Daemon, namespaces: netns.Namespaces
) -> None:
    pod = namespaces.make("pod")
    config = gateway(daemon)
    config["ipam"] = {
        "type": "host-local",
        "dataDir": str(daemon.ipam),
        "ranges": [[{"subnet": "10.88.0.0/24"}], [{"subnet": "fd00:88::/64"}]],
    }
    added = daemon.call("ADD", config, pod=pod)
    assert added.status == 0, added.stdout
    assert reachable(pod, "fd00:88::1")
    assert reachable(pod, "10.88.0.1")
    document = added.document
    assert daemon.call("CHECK", {**config, "prevResult": document}, pod=pod).status == 0


def test_masquerading_is_one_element_per_address(
    daemon: cnidaemon.Daemon, namespaces: netns.Namespaces
) -> None:
    config = gateway(daemon, ipMasq=True)
    pods = [namespaces.make(name) for name in "ab"]
    for number, pod in enumerate(pods):
        assert daemon.call("ADD", config, pod=pod, container=f"c{number}").status == 0
    listed = netns.run(daemon.host, "nft", "list", "map", "inet", "bitts_cni", "masq4")
    assert "10.88.0.2 : goto masq_10_88_0_0_24" in listed
    assert "10.88.0.3 : goto masq_10_88_0_0_24" in listed
    # Somebody flushes the rule set: the next attachment lays it anew.
    netns.run(daemon.host, "nft", "flush", "ruleset")
    third = namespaces.make("c")
    assert daemon.call("ADD", config, pod=third, container="c9").status == 0
    for number, pod in enumerate(pods):
        assert daemon.call("DEL", config, pod=pod, container=f"c{number}").status == 0
    assert daemon.call("DEL", config, pod=third, container="c9").status == 0
    assert cnidaemon.leftovers(daemon.host) == []


def test_frames_with_a_stranger_s_address_are_dropped(
    daemon: cnidaemon.Daemon, namespaces: netns.Namespaces
) -> None:
    pod = namespaces.make("pod")
    config = gateway(daemon, macspoofchk=True)
    added = daemon.call("ADD", config, pod=pod)
    assert added.status == 0, added.stdout
    assert reachable(pod, "10.88.0.1")
    netns.run(pod, "ip", "link", "set", "eth0", "address", "02:00:00:00:00:77")
    netns.run(pod, "ip", "route", "replace", "default", "via", "10.88.0.1")
    assert not reachable(pod, "10.88.0.1")
    assert daemon.call("DEL", config, pod=pod).status == 0
    assert cnidaemon.leftovers(daemon.host) == []


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({"hairpinMode": True, "promiscMode": True}, "999: cannot set hairpin mode and"),
        ({"disableContainerInterface": True}, "999: cannot use IPAM when"),
        ({"vlan": 4095}, "999: invalid VLAN ID 4095"),
        ({"ipMasq": True, "ipMasqBackend": "x"}, '999: unknown ipmasq backend "x"'),
        ({"ipam": {}}, None),
        ({"ipam": {"type": "host-local"}}, "999: no IP ranges specified"),
        ({"ipam": {"type": "none-such"}}, '999: failed to find plugin "none-such" in path'),
        ({"isGateway": "yes"}, "999: failed to load netconf: isGateway: cannot unmarshal string"),
        ({"cniVersion": "9.9.9"}, "1: incompatible CNI versions"),
        ({"name": "a/b"}, "7: invalid characters found in network name"),
    ],
)
def test_mistakes_are_told_and_nothing_is_left(
    daemon: cnidaemon.Daemon,
    namespaces: netns.Namespaces,
    keys: dict[str, object],
    expected: str | None,
) -> None:
    pod = namespaces.make("pod")
    config = {**gateway(daemon), **keys}
    outcome = daemon.call("ADD", config, pod=pod)
    if expected is None:
        assert outcome.status == 0
        assert daemon.call("DEL", config, pod=pod).status == 0
    else:
        assert outcome.status == 1
        assert outcome.error.startswith(expected)
    assert cnidaemon.leftovers(daemon.host) == []
    assert daemon.addresses() == {}


def test_an_interface_that_exists_is_an_error_and_stays(
    daemon: cnidaemon.Daemon, namespaces: netns.Namespaces
) -> None:
    pod = namespaces.make("pod")
    netns.run(pod, "ip", "link", "add", "eth0", "type", "veth", "peer", "name", "other")
    outcome = daemon.call("ADD", gateway(daemon), pod=pod)
    assert 'container veth name ("eth0") peer provided' in outcome.error
    assert daemon.addresses() == {}
    assert "eth0" in netns.links(pod)


def test_a_bridge_with_another_address_is_refused_unless_forced(
    daemon: cnidaemon.Daemon, namespaces: netns.Namespaces
) -> None:
    pod = namespaces.make("pod")
    netns.run(daemon.host, "ip", "link", "add", "cni0", "type", "bridge")
    netns.run(daemon.host, "ip", "addr", "add", "10.99.0.1/24", "dev", "cni0")
    outcome = daemon.call("ADD", gateway(daemon), pod=pod)
    assert "already has an IP address different from 10.88.0.1/24" in outcome.error
    assert daemon.addresses() == {}
    added = daemon.call("ADD", gateway(daemon, forceAddress=True), pod=pod)
    assert added.status == 0, added.stdout
    assert reachable(pod, "10.88.0.1")
    # The address that the bridge had by chance is now its own for good.
    mac = added.document["interfaces"][0]["mac"]
    other = namespaces.make("other")
    assert daemon.call("ADD", gateway(daemon), pod=other, container="c2").status == 0
    assert netns.links(daemon.host)["cni0"]["address"] == mac


def test_the_node_s_own_namespace_is_refused_before_anything_is_done(
    daemon: cnidaemon.Daemon,
) -> None:
    outcome = daemon.call("ADD", gateway(daemon), pod=daemon.host)
    assert outcome.error.startswith("8: ")
    assert "cni0" not in netns.links(daemon.host)
    assert daemon.addresses() == {}


def test_results_come_in_the_version_asked_for(
    daemon: cnidaemon.Daemon, namespaces: netns.Namespaces
) -> None:
    pod = namespaces.make("pod")
    for version in ("0.1.0", "0.3.1", "1.0.0"):
        config = gateway(daemon, cniVersion=version)
        document = daemon.call("ADD", config, pod=pod).document
        assert document["cniVersion"] == version
        assert ("ip4" in document) == (version == "0.1.0")
        assert daemon.call("DEL", config, pod=pod).status == 0
    plain = daemon.config("bridge", cniVersion="0.2.0")
    refused = daemon.call("ADD", plain, pod=pod)
    assert "cannot convert: no valid IP addresses" in refused.error
    assert cnidaemon.leftovers(daemon.host) == []


def test_check_finds_what_is_missing(
    daemon: cnidaemon.Daemon, namespaces: netns.Namespaces
) -> None:
    pod = namespaces.make("pod")
    config = gateway(daemon)
    previous = daemon.call("ADD", config, pod=pod).document
    checked = {**config, "prevResult": previous}
    netns.run(pod, "ip", "route", "del", "default")
    assert "not found in routing table" in daemon.call("CHECK", checked, pod=pod).error
    netns.run(pod, "ip", "addr", "flush", "dev", "eth0")
    assert "Failed to match addr" in daemon.call("CHECK", checked, pod=pod).error
    netns.run(pod, "ip", "link", "del", "eth0")
    assert "Interface eth0 is missing" in daemon.call("CHECK", checked, pod=pod).error
    assert "prevResult missing" in daemon.call("CHECK", config, pod=pod).error


def test_a_chain_in_one_call_is_one_attachment(
    daemon: cnidaemon.Daemon, namespaces: netns.Namespaces
) -> None:
    pod = namespaces.make("pod")
    inner = [
        {key: value for key, value in gateway(daemon).items() if key not in {"name", "cniVersion"}},
        {"type": "loopback"},
    ]
    config = daemon.config("bitts", plugins=inner)
    added = daemon.call("ADD", config, pod=pod)
    assert added.status == 0, added.stdout
    assert len(added.document["interfaces"]) == 3
    assert "UP" in netns.links(pod)["lo"]["flags"]
    journal = (daemon.state / "journal").read_text().splitlines()
    assert sum('"r":"plan"' in line for line in journal) == 1
    checked = {**config, "prevResult": json.loads(added.stdout)}
    assert daemon.call("CHECK", checked, pod=pod).status == 0
    assert daemon.call("DEL", config, pod=pod).status == 0
    assert cnidaemon.leftovers(daemon.host) == []
    assert "UP" not in netns.links(pod)["lo"]["flags"]


def test_names_may_be_as_long_as_file_names(
    daemon: cnidaemon.Daemon, namespaces: netns.Namespaces
) -> None:
    pod = namespaces.make("pod")
    config = gateway(daemon, name="n" * 250)
    assert daemon.call("ADD", config, pod=pod, container="c" * 250).status == 0
    assert daemon.call("DEL", config, pod=pod, container="c" * 250).status == 0
    assert cnidaemon.leftovers(daemon.host) == []
