"""portmap in real namespaces: who reaches a published port, from where, and until when."""

import contextlib
import json
import pathlib
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from support import cnichains, cnidaemon, netns, peers, waiting

pytestmark = pytest.mark.root

WORD = b"hello from the container"


@pytest.fixture(autouse=True)
def loopback(daemon: cnidaemon.Daemon) -> None:
    """A node has a loopback that works; a new namespace's is down."""
    netns.run(daemon.host, "ip", "link", "set", "lo", "up")


def chain(daemon: cnidaemon.Daemon, *mappings: dict[str, Any], **keys: Any) -> cnichains.Chain:
    portmap = {"type": "portmap", **keys, "runtimeConfig": {"portMappings": list(mappings)}}
    return cnichains.Chain(daemon, [cnichains.bridge(daemon, dual=True, hairpinMode=True), portmap])


def mapping(host: int, container: int = 80, protocol: str = "tcp", **keys: Any) -> dict[str, Any]:
    return {"hostPort": host, "containerPort": container, "protocol": protocol, **keys}


@contextlib.contextmanager
def serving(pod: str, *, datagrams: bool = False) -> Iterator[None]:
    """Answer on port 80 of every address in a container."""
    server = netns.inside(pod, lambda: cnichains.Answering(80, WORD, datagrams=datagrams))
    try:
        yield
    finally:
        server.close()


def reached(where: str, address: str, port: int, **keys: Any) -> bytes:
    return netns.inside(where, lambda: cnichains.ask(address, port, **keys))


def test_a_published_port_is_reached_from_everywhere(
    daemon: cnidaemon.Daemon, namespaces: netns.Namespaces
) -> None:
    pod, neighbour, outside = (namespaces.make(each) for each in ("pod", "other", "outside"))
    netns.run(daemon.host, "ip", "link", "add", "uplink", "type", "veth", "peer", "name", "eth0",
              "netns", outside.rsplit("/", 1)[1])  # fmt: skip
    for place, name, number in ((daemon.host, "uplink", 1), (outside, "eth0", 2)):
        netns.run(place, "ip", "addr", "add", f"192.0.2.{number}/24", "dev", name)
        netns.run(place, "ip", "addr", "add", f"2001:db8::{number}/64", "dev", name, "nodad")
        netns.run(place, "ip", "link", "set", name, "up")
    published = chain(daemon, mapping(8080))
    first = published.add(pod)
    chain(daemon).add(neighbour, container="c2")
    tentative = ("ip", "-6", "-j", "addr", "show", "tentative")
    waiting.until_blocking(
        lambda: not any(netns.as_json(daemon.host, *tentative)), "new bridge's own address"
    )
    with serving(pod):
        for address in ("192.0.2.1", "2001:db8::1"):
            assert reached(outside, address, 8080) == WORD
        assert reached(daemon.host, "127.0.0.1", 8080) == WORD
        assert reached(daemon.host, "192.0.2.1", 8080) == WORD
        assert reached(pod, "10.88.0.1", 8080) == WORD, "the container itself"
        assert reached(pod, "fd00:88::1", 8080) == WORD
        assert reached(neighbour, "192.0.2.1", 8080) == WORD, "a neighbour on the bridge"
        assert reached(outside, "192.0.2.1", 8081) == b""
        published.check(pod, first)
        published.remove(pod)
        assert reached(outside, "192.0.2.1", 8080) == b""


def test_a_host_address_limits_who_is_served(
    daemon: cnidaemon.Daemon, namespaces: netns.Namespaces
) -> None:
    pod, other = namespaces.make("pod"), namespaces.make("other")
    netns.run(daemon.host, "ip", "addr", "add", "192.0.2.1/32", "dev", "lo")
    chain(daemon, mapping(8080, hostIP="192.0.2.1"), mapping(9090, hostIP="0.0.0.0")).add(pod)
    chain(daemon, mapping(8080, hostIP="127.0.0.1")).add(other, container="c2")
    with serving(pod):
        assert reached(daemon.host, "192.0.2.1", 8080) == WORD
        assert reached(daemon.host, "127.0.0.1", 8080) == b""  # the other one's, who is silent
        assert reached(daemon.host, "127.0.0.1", 9090) == WORD
        assert reached(daemon.host, "10.88.0.1", 8080) == b""


def test_a_port_goes_to_one_container_only(
    daemon: cnidaemon.Daemon, namespaces: netns.Namespaces
) -> None:
    pod, other = namespaces.make("pod"), namespaces.make("other")
    published = chain(daemon, mapping(8080))
    published.add(pod)
    refused = published.attempt("ADD", other, container="c2")
    assert "host port 8080/tcp is taken by another container" in refused.error
    assert published.remove(other, container="c2") == []
    with serving(pod):
        assert reached(daemon.host, "127.0.0.1", 8080) == WORD
    published.remove(pod)
    published.add(other, container="c2")
    published.remove(other, container="c2")
    assert cnidaemon.leftovers(daemon.host) == []


@pytest.mark.parametrize("address", ["192.0.2.1", ""])
def test_flows_of_datagrams_follow_the_rules_of_today(
    daemon: cnidaemon.Daemon, namespaces: netns.Namespaces, address: str
) -> None:
    """A flow that began before the container came must reach it, and not outlive it."""
    pod = namespaces.make("pod")
    netns.run(daemon.host, "ip", "addr", "add", "192.0.2.1/32", "dev", "lo")
    warm = chain(daemon, mapping(9999))  # rules must be there for flows to be tracked
    warm.add(pod)
    warm.remove(pod)

    def client() -> socket.socket:
        made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        made.bind(("192.0.2.1", 0))
        made.settimeout(20)
        return made

    asking = netns.inside(daemon.host, client)
    with asking:
        asking.sendto(b"?", ("192.0.2.1", 5353))
        published = chain(daemon, mapping(5353, protocol="udp", hostIP=address))
        published.add(pod)
        with serving(pod, datagrams=True):
            asking.sendto(b"?", ("192.0.2.1", 5353))
            assert asking.recv(100) == WORD
            published.remove(pod)
            tracked = netns.run(daemon.host, "conntrack", "-L", "-p", "udp", "--dport", "5353")
            assert "10.88.0." not in tracked


def test_check_finds_a_port_that_is_published_no_longer(
    daemon: cnidaemon.Daemon, namespaces: netns.Namespaces
) -> None:
    pod = namespaces.make("pod")
    published = chain(daemon, mapping(8080), mapping(8081, hostIP="127.0.0.1"))
    result = published.add(pod)
    published.check(pod, result)
    table = ("inet", "bitts_cni", "hostports4")
    netns.run(daemon.host, "nft", "delete", "element", *table, "{ tcp . 8080 }")
    outcome = published.attempt("CHECK", pod, previous=result)
    assert "host port 8080/tcp is not published" in outcome.error


def test_conditions_hold_for_the_network_that_has_them(
    daemon: cnidaemon.Daemon, namespaces: netns.Namespaces
) -> None:
    pod, other = namespaces.make("pod"), namespaces.make("other")
    netns.run(daemon.host, "ip", "addr", "add", "192.0.2.1/32", "dev", "lo")
    chain(daemon, mapping(8080), conditionsV4=["!", "-d", "192.0.2.1"]).add(pod)
    chain(daemon, mapping(9090)).add(other, container="c2")
    with serving(pod), serving(other):
        assert reached(daemon.host, "127.0.0.1", 8080) == WORD
        assert reached(daemon.host, "192.0.2.1", 8080) == b""
        assert reached(daemon.host, "192.0.2.1", 9090) == WORD


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({"markMasqBit": 32}, "MasqMarkBit must be between 0 and 31"),
        ({"markMasqBit": 3, "externalSetMarkChain": "X"}, "Cannot specify externalSetMarkChain"),
        ({"backend": "x"}, 'unrecognized backend "x"'),
        ({"backend": "nftables", "conditionsV4": ["-s", "10.0.0.1"]}, "iptables-specific options"),
        ({"runtimeConfig": {"portMappings": [mapping(0)]}}, "Invalid host port number: 0"),
        ({"runtimeConfig": {"portMappings": [mapping(1, 0)]}}, "Invalid container port number: 0"),
    ],
)
def test_mistakes_are_told_as_the_reference_tells_them(
    daemon: cnidaemon.Daemon, namespaces: netns.Namespaces, keys: dict[str, Any], expected: str,
    tmp_path: pathlib.Path,
) -> None:  # fmt: skip
    pod = namespaces.make("pod")
    config = {
        **daemon.config("portmap", **keys),
        "prevResult": {"cniVersion": "1.1.0", "ips": [{"address": "10.0.0.2/24"}]},
    }
    assert expected in daemon.call("ADD", config, pod=pod).error
    theirs = cnidaemon.execute(peers.plugin("portmap"), "ADD", config, host=pod, pod=pod)
    assert expected in theirs.error


def test_a_result_goes_through_unchanged(
    daemon: cnidaemon.Daemon, namespaces: netns.Namespaces
) -> None:
    pod, node = namespaces.make("pod"), namespaces.make("theirs")
    previous = {
        "cniVersion": "1.0.0",
        "interfaces": [{"name": "eth0", "sandbox": pod}],
        "ips": [{"address": "10.9.0.2/24", "interface": 0}, {"address": "10.9.0.3/24"}],
        "dns": {"domain": "x.example"},
    }
    for mappings in ([], [mapping(80)]):
        config = {
            **daemon.config("portmap", runtimeConfig={"portMappings": mappings}),
            "cniVersion": "1.0.0",
            "prevResult": previous,
        }
        ours = daemon.call("ADD", config, pod=pod)
        theirs = cnidaemon.execute(peers.plugin("portmap"), "ADD", config, host=node, pod=pod)
        assert json.loads(ours.stdout) == json.loads(theirs.stdout)
        assert daemon.call("DEL", config, pod=pod).status == 0
