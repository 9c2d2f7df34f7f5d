"""Messages packed by hand, against the kernel and what iproute2 and nft make of it."""

import ipaddress
import pathlib
import socket
import threading

import pytest
from bitts.net import (
    addresses,
    departures,
    links,
    neighbours,
    nftables,
    routes,
    sockets,
    sysctls,
)
from bitts.net import namespaces as netnamespaces
from bitts.net.errors import NamespaceError, NamespaceGone, NetlinkError
from bitts.net.links import Change, End
from support import netns

pytestmark = pytest.mark.root

HOST_MAC, POD_MAC, BRIDGE_MAC = "02:00:00:00:00:01", "02:00:00:00:00:02", "02:00:00:00:00:03"
PORT = Change(alias="ours: net/c1/eth0", hairpin=True, isolated=True)
V4 = ipaddress.ip_interface("10.9.0.2/24")
V6 = ipaddress.ip_interface("fd00:9::2/64")


def wire_pair(host: str, pod: str) -> None:
    """Make a bridge with one port, and the pod's end with addresses and a default route."""

    def on_host() -> None:
        with sockets.Socket() as channel, netnamespaces.opened(pod) as descriptor:
            channel.perform([links.bridge("br0", mac=BRIDGE_MAC)])
            bridge = links.decode(channel.query(links.get(name="br0")))
            channel.perform(
                [
                    links.veth(
                        End("vh0", 70001, HOST_MAC),
                        End("eth0", 70002, POD_MAC),
                        netns_fd=descriptor,
                        mtu=1400,
                        master=bridge.index,
                    ),
                    links.change(70001, PORT),
                ]
            )

    def in_pod() -> None:
        with sockets.Socket() as channel:
            channel.perform(
                [
                    links.change(70002, Change(flags=links.UP)),
                    addresses.add(70002, V4),
                    addresses.add(70002, V6, skips_dad=True),
                    routes.add(
                        routes.Route(
                            ipaddress.ip_network("0.0.0.0/0"),
                            ipaddress.ip_address("10.9.0.1"),
                            mtu=1300,
                        )
                    ),
                    routes.add(
                        routes.Route(
                            ipaddress.ip_network("10.77.0.0/16"),
                            index=70002,
                            scope=routes.LINK,
                            table=1000,
                            priority=5,
                        )
                    ),
                    neighbours.add(70002, ipaddress.ip_address("10.9.0.1"), BRIDGE_MAC),
                ]
            )

    netns.inside(host, on_host)
    netns.inside(pod, in_pod)


def test_a_pair_comes_out_as_asked_for(namespaces: netns.Namespaces) -> None:
    host, pod = namespaces.make("host"), namespaces.make("pod")
    wire_pair(host, pod)
    seen = netns.links(host)["vh0"]
    assert (seen["ifindex"], seen["address"], seen["mtu"]) == (70001, HOST_MAC, 1400)
    assert seen["master"] == "br0"
    assert seen["ifalias"] == "ours: net/c1/eth0"
    port = seen["linkinfo"]["info_slave_data"]
    assert (port["hairpin"], port["isolated"]) == (True, True)
    inner = netns.links(pod)["eth0"]
    assert (inner["ifindex"], inner["address"]) == (70002, POD_MAC)
    found = netns.as_json(pod, "ip", "-j", "addr", "show", "dev", "eth0")[0]["addr_info"]
    assert {(each["local"], each.get("tentative")) for each in found} >= {
        ("10.9.0.2", None),
        ("fd00:9::2", None),
    }
    default = netns.as_json(pod, "ip", "-j", "route", "show", "default")[0]
    assert (default["gateway"], default["metrics"][0]["mtu"]) == ("10.9.0.1", 1300)
    other = netns.as_json(pod, "ip", "-j", "route", "show", "table", "1000")[0]
    assert (other["dst"], other["metric"], other["scope"]) == ("10.77.0.0/16", 5, "link")
    neighbour = netns.as_json(pod, "ip", "-j", "neigh", "show")[0]
    assert (neighbour["dst"], neighbour["lladdr"]) == ("10.9.0.1", BRIDGE_MAC)


def test_what_was_made_is_read_back(namespaces: netns.Namespaces) -> None:
    host, pod = namespaces.make("host"), namespaces.make("pod")
    wire_pair(host, pod)

    def on_host() -> tuple[links.Link, links.Link]:
        with sockets.Socket() as channel:
            port = links.decode(channel.query(links.get(name="vh0")))
            return port, links.decode(channel.query(links.get(index=port.master)))

    port, bridge = netns.inside(host, on_host)
    assert (port.index, port.mac, port.kind, port.mtu) == (70001, HOST_MAC, "veth", 1400)
    assert (port.is_hairpin, port.is_isolated, port.peer_index) == (True, True, 70002)
    assert port.alias == "ours: net/c1/eth0"
    assert (bridge.name, bridge.mac, bridge.filters_vlans) == ("br0", BRIDGE_MAC, False)
    assert bridge.is_up

    def in_pod() -> tuple[list[addresses.Address | None], list[routes.Route | None]]:
        with sockets.Socket() as channel:
            return (
                [addresses.decode(each) for each in channel.dump(addresses.of_link(70002))],
                [routes.decode(each) for each in channel.dump(routes.every(4))],
            )

    found, listed = netns.inside(pod, in_pod)
    assert {each.interface for each in found if each} >= {V4, V6}
    assert {(str(each.destination), each.table, each.mtu) for each in listed if each} == {
        ("0.0.0.0/0", 254, 1300),
        ("10.9.0.0/24", 254, 0),
        ("10.77.0.0/16", 1000, 0),
    }


def test_failures_carry_the_code_and_the_kernel_s_words(namespaces: netns.Namespaces) -> None:
    def work() -> tuple[NetlinkError, NetlinkError, list[int]]:
        with sockets.Socket() as channel:
            with pytest.raises(NetlinkError) as missing:
                channel.query(links.get(name="none"))
            channel.perform([links.bridge("br0", mac=BRIDGE_MAC)])
            with pytest.raises(NetlinkError) as present:
                channel.perform([links.bridge("br0", mac=BRIDGE_MAC)], "making br0")
            batch = [links.delete(name="none"), links.delete(name="br0")]
            return missing.value, present.value, [each.error for each in channel.attempt(batch)]

    missing, present, codes = netns.inside(namespaces.make(), work)
    assert missing.is_missing
    assert present.is_present
    assert str(present) == "making br0: file exists"
    assert codes == [19, 0]  # a batch goes on after a failure


def test_elements_of_sets_and_maps_come_and_go(namespaces: netns.Namespaces) -> None:
    path = namespaces.make()
    script = """
        table inet t {
          set s { type ipv4_addr; }
          map m { type inet_proto . inet_service : ipv4_addr . inet_service; }
          map v { type ipv4_addr : verdict; }
          chain c { ip daddr 10.0.0.0/8 return; masquerade; }
        }
    """
    address = socket.inet_aton("10.9.0.2")
    key = nftables.concatenated(b"\x06", nftables.service(8080))
    value = nftables.concatenated(address, nftables.service(80))
    in_set, in_map, in_verdicts = (nftables.Container("t", name) for name in "smv")

    def work() -> tuple[str, list[int], str]:
        nftables.apply(script)
        with sockets.Socket(sockets.NETFILTER) as channel:
            added = [
                nftables.add(in_set, [nftables.Element(address)]),
                nftables.add(in_map, [nftables.Element(key, value)]),
                nftables.add(in_verdicts, [nftables.Element(address, nftables.Goto("c"))]),
            ]
            assert channel.transact(added) == []
            assert channel.transact(added) == []  # again: no error
            listed = netns.run(path, "nft", "list", "ruleset")
            failed = channel.transact(
                [
                    nftables.remove(in_set, [nftables.Element(address)]),
                    nftables.remove(in_map, [nftables.Element(key[:4] + b"\0\1\0\0")]),
                ]
            )
            kept = netns.run(path, "nft", "list", "set", "inet", "t", "s")
            assert channel.transact([nftables.remove(in_set, [nftables.Element(address)])]) == []
            return listed, [each.error for each in failed], kept

    listed, failed, kept = netns.inside(path, work)
    assert "tcp . 8080 : 10.9.0.2 . 80" in listed
    assert "10.9.0.2 : goto c" in listed
    assert failed == [2]
    assert "10.9.0.2" in kept  # the transaction that failed removed nothing


def test_nft_s_own_words_are_told(namespaces: netns.Namespaces) -> None:
    with pytest.raises(NetlinkError, match="syntax error"):
        netns.inside(namespaces.make(), lambda: nftables.apply("table inet {"))


def test_settings_are_those_of_the_namespace(namespaces: netns.Namespaces) -> None:
    first, second = namespaces.make("a"), namespaces.make("b")
    for path, value in ((first, "1"), (second, "0")):
        netns.inside(path, lambda value=value: sysctls.write("ipv4/ip_forward", value))  # type: ignore[misc]
    assert netns.inside(first, lambda: sysctls.read("ipv4/ip_forward")) == "1"
    assert netns.inside(second, lambda: sysctls.read("ipv4/ip_forward")) == "0"
    assert sysctls.read("ipv4/conf/none0/arp_notify") is None
    for key in ("../kernel/panic", "ipv4/../../kernel/panic", "a\0b"):
        with pytest.raises(ValueError, match="no setting"):
            sysctls.path(key)


@pytest.mark.parametrize("path", ["", "/run/netns/none-here", "/etc/passwd/x"])
def test_a_missing_namespace_is_gone(path: str) -> None:
    with pytest.raises(NamespaceGone), netnamespaces.opened(path):
        pass


def test_what_is_no_network_namespace_is_refused(tmp_path: pathlib.Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file", tmp_path, pathlib.Path("/proc/self/ns/mnt"), "/dev/null"):
        with pytest.raises(NamespaceError), netnamespaces.opened(str(path)):
            pass


def test_a_namespace_is_told_from_one_s_own(namespaces: netns.Namespaces) -> None:
    with netnamespaces.opened(namespaces.make()) as descriptor:
        assert not netnamespaces.is_own(descriptor)
    with netnamespaces.opened("/proc/thread-self/ns/net") as descriptor:
        assert netnamespaces.is_own(descriptor)


def test_a_link_has_departed_long_before_the_kernel_has_cleared_up(
    namespaces: netns.Namespaces,
) -> None:
    host, pod = namespaces.make("host"), namespaces.make("pod")
    wire_pair(host, pod)
    going = departures.Departures()
    with netnamespaces.opened(host) as descriptor, netnamespaces.entered(descriptor):
        leaving = going.begin({70001: "vh0"})
        missing = departures.Departure({70009: "nobody"})
    assert leaving.wait() == {}
    assert "vh0" not in netns.links(host)
    missing.ask()
    assert missing.wait()[70009].is_missing
    going.close()


def test_links_depart_together_whoever_of_them_is_not_there(
    namespaces: netns.Namespaces,
) -> None:
    host, pod = namespaces.make("host"), namespaces.make("pod")
    wire_pair(host, pod)
    netns.run(host, "ip", "link", "add", "b0", "type", "bridge")
    netns.run(host, "ip", "link", "add", "b1", "type", "bridge")
    index = netns.links(host)["b0"]["ifindex"]
    with netnamespaces.opened(host) as descriptor, netnamespaces.entered(descriptor):
        leaving = departures.Departure({70009: "nobody", 70001: "vh0", index: "b0"})
        missing = departures.Departure({70009: "nobody", 70010: "none"})
    asking = threading.Thread(target=leaving.ask)
    asking.start()
    failed = leaving.wait()
    assert [(each, error.is_missing) for each, error in failed.items()] == [(70009, True)]
    assert {"vh0", "b0"}.isdisjoint(netns.links(host))
    assert "b1" in netns.links(host)
    asking.join(120)
    missing.ask()
    assert [error.is_missing for error in missing.wait().values()] == [True, True]


def test_one_link_s_departure_is_not_taken_for_another_s(namespaces: netns.Namespaces) -> None:
    host, pod = namespaces.make("host"), namespaces.make("pod")
    wire_pair(host, pod)
    netns.run(host, "ip", "link", "add", "b0", "type", "bridge")
    netns.run(host, "ip", "link", "set", "vh0", "master", "b0")
    with netnamespaces.opened(host) as descriptor, netnamespaces.entered(descriptor):
        other = departures.Departure({netns.links(host)["b0"]["ifindex"]: "b0"})
    netns.run(host, "ip", "link", "set", "vh0", "nomaster")
    netns.run(host, "ip", "link", "del", "vh0")
    asking = threading.Thread(target=other.ask)
    asking.start()
    other.wait()
    asking.join(120)
    assert "b0" not in netns.links(host)
