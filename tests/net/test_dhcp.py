"""Leases of containers: from dnsmasq, kept through restarts, given back, lost in order."""

import pathlib
from collections.abc import Iterator
from typing import Any

import pytest
from cni_daemon.dhcp.packets import Kind, Option, Packet
from support import cnidaemon, daemoncalls, dhcpserver, netns, peers, processes, waiting

pytestmark = pytest.mark.root

QUICK = ("--dhcp-option=option:T1,3", "--dhcp-option=option:T2,100")
"""Lets leases be renewed every three seconds, which is the least that dnsmasq takes."""


@pytest.fixture
def node(
    namespaces: netns.Namespaces, spawner: processes.Processes, short_dir: pathlib.Path
) -> cnidaemon.Daemon:
    """A daemon on a node whose bridge has a network with a server."""
    made = cnidaemon.Daemon(spawner, namespaces.make("node"), short_dir)
    netns.run(made.host, "ip", "link", "add", "br0", "type", "bridge")
    netns.run(made.host, "ip", "addr", "add", "10.77.0.1/24", "dev", "br0")
    netns.run(made.host, "ip", "link", "set", "br0", "up")
    made.start("--dhcp-timeout=10s")
    return made


@pytest.fixture
def scripted(node: cnidaemon.Daemon) -> Iterator[dhcpserver.Scripted]:
    made = dhcpserver.Scripted(node.host, "br0", "10.77.0.1")
    yield made
    made.close()


def dnsmasq(
    node: cnidaemon.Daemon, spawner: processes.Processes, *flags: str
) -> dhcpserver.Dnsmasq:
    made = dhcpserver.Dnsmasq(spawner, node.host, "br0", node.folder, *flags)
    made.start()
    return made


def config(node: cnidaemon.Daemon, **ipam: Any) -> dict[str, Any]:
    return node.config("bridge", bridge="br0", ipam={"type": "dhcp", **ipam})


def addresses(pod: str) -> list[str]:
    shown = netns.as_json(pod, "ip", "-4", "-j", "addr", "show", "dev", "eth0")
    return [f"{each['local']}/{each['prefixlen']}" for each in shown[0]["addr_info"]]


def test_a_lease_is_had_renewed_kept_through_a_crash_and_given_back(
    node: cnidaemon.Daemon, namespaces: netns.Namespaces, spawner: processes.Processes
) -> None:
    routed = "10.5.0.0/16,10.77.0.9,0.0.0.0/0,10.77.0.1"
    server = dnsmasq(
        node, spawner, *QUICK, "--dhcp-option=option:router,10.77.0.1",
        f"--dhcp-option=option:classless-static-route,{routed}",
    )  # fmt: skip
    pod = namespaces.make("pod")
    outcome = node.call("ADD", config(node, priority=7, request=[{"option": "121"}]), pod=pod)
    assert outcome.status == 0, outcome.stdout
    given = outcome.document["ips"][0]
    assert given["gateway"] == "10.77.0.1"
    assert addresses(pod) == [given["address"]]
    assert server.leases == [given["address"].split("/")[0]]
    routes = netns.run(pod, "ip", "-4", "route", "show")
    assert "default via 10.77.0.1 dev eth0 metric 7" in routes
    assert "10.5.0.0/16 via 10.77.0.9 dev eth0 metric 7" in routes
    waiting.until_blocking(lambda: server.count("DHCPACK") >= 2, "renewal")
    node.kill()
    renewed = server.count("DHCPACK")
    node.start()
    waiting.until_blocking(lambda: server.count("DHCPACK") > renewed, "renewal by the next daemon")
    assert server.count("DHCPDISCOVER") == 1
    server.stop()
    server.forget()  # it comes back without its leases
    server.start()
    waiting.until_blocking(lambda: server.leases != [], "the lease in the new server's book")
    assert server.leases == [given["address"].split("/")[0]]
    assert addresses(pod) == [given["address"]]
    checked = {**config(node), "prevResult": outcome.document}
    assert node.call("CHECK", checked, pod=pod).status == 0
    assert node.call("DEL", config(node), pod=pod).status == 0
    waiting.until_blocking(lambda: server.count("DHCPRELEASE") == 1, "release")
    assert server.leases == []
    assert cnidaemon.leftovers(node.host) == []


def test_a_server_learns_what_is_configured(
    node: cnidaemon.Daemon, namespaces: netns.Namespaces, spawner: processes.Processes
) -> None:
    server = dnsmasq(node, spawner, "--dhcp-option=option:ntp-server,10.77.0.5")
    provided = [
        {"option": "host-name", "fromArg": "K8S_POD_NAME"},
        {"option": "60", "value": "bitts"},
    ]
    asked = config(node, provide=provided, request=[{"option": "42"}, {"skipDefault": True}])
    pod = namespaces.make("pod")
    outcome = node.call("ADD", asked, pod=pod, args="K8S_POD_NAME=web-1;IgnoreUnknown=1")
    assert outcome.status == 0, outcome.stdout
    log = server.log()
    assert "client provides name: web-1" in log
    assert "vendor class: bitts" in log
    requested = next(line for line in log.splitlines() if "requested options:" in line)
    assert "42:ntp-server" in requested
    assert "3:router" not in log.partition("sent size")[0]
    assert "gateway" not in outcome.document["ips"][0]


@pytest.mark.builds("cni-plugins")
def test_the_result_is_that_of_the_reference_plugin(
    node: cnidaemon.Daemon, namespaces: netns.Namespaces, spawner: processes.Processes
) -> None:
    """Both get a lease of one server, side by side: all but the address is the same."""
    routed = "10.5.0.0/16,10.77.0.9,10.6.0.0/16,0.0.0.0"
    dnsmasq(node, spawner, f"--dhcp-option=option:classless-static-route,{routed}")
    reference, socket = peers.plugin("dhcp"), node.folder / "ref.sock"
    command = ["/usr/bin/nsenter", f"--net={node.host}", "--", str(reference)]
    spawner.spawn([*command, "daemon", f"-socketpath={socket}"], name="reference dhcp")
    waiting.until_blocking(socket.exists, "socket of the reference's daemon")

    def told(found: cnidaemon.Outcome) -> tuple[Any, ...]:
        (ip,) = found.document["ips"]
        return ip["address"].split("/")[1], ip.get("gateway"), found.document.get("routes")

    def routes(pod: str, found: cnidaemon.Outcome) -> str:
        own = found.document["ips"][0]["address"].split("/")[0]
        return netns.run(pod, "ip", "route", "show").replace(own, "OWN")

    for number, requested in enumerate(([], [{"option": "121"}])):
        wanted = config(node, priority=3, request=requested, daemonSocketPath=str(socket))
        theirs, ours = namespaces.make("theirs"), namespaces.make("ours")
        about = {"host": node.host, "pod": theirs, "container": f"their{number}"}
        peer = cnidaemon.execute(peers.plugin("bridge"), "ADD", wanted, **about)
        assert peer.status == 0, peer.stdout
        outcome = node.call("ADD", wanted, pod=ours, container=f"our{number}")
        assert outcome.status == 0, outcome.stdout
        assert told(outcome) == told(peer)
        assert routes(ours, outcome) == routes(theirs, peer)
        assert ("10.6.0.0/16" in routes(ours, outcome)) is bool(requested)


def test_without_a_server_the_add_fails_and_leaves_nothing(
    node: cnidaemon.Daemon, namespaces: netns.Namespaces
) -> None:
    node.stop()
    node.start("--dhcp-timeout=300ms")
    pod = namespaces.make("pod")
    outcome = node.call("ADD", config(node), pod=pod)
    assert outcome.error == "11: dhcp: no server answered within 0.3 seconds"
    assert "eth0" not in netns.links(pod)
    assert cnidaemon.leftovers(node.host) == []


def test_an_add_cut_off_after_its_lease_leaves_no_link(
    node: cnidaemon.Daemon, namespaces: netns.Namespaces, scripted: dhcpserver.Scripted
) -> None:
    record = node.folder / "instants"
    node.stop()
    node.start(f"--fault=crash-at=0:{record}")
    pod = namespaces.make("pod")
    assert node.call("ADD", config(node), pod=pod).status == 0
    passed = record.read_text().splitlines()
    assert node.call("DEL", config(node), pod=pod).status == 0
    wanted = [at for at, line in enumerate(passed, 1) if "lease" in line or "link planned" in line]
    assert len(wanted) == 2, passed
    for number in wanted:
        node.stop()
        node.start(f"--fault=crash-at={number}")
        call = node.begin("ADD", config(node), pod=pod)
        node.await_crash()
        call.kill()
        node.start()
        assert "eth0" not in netns.links(pod), passed[number - 1]
        assert cnidaemon.leftovers(node.host) == []


def test_a_server_that_says_no_is_asked_again(
    node: cnidaemon.Daemon, namespaces: netns.Namespaces, scripted: dhcpserver.Scripted
) -> None:
    def refuse_once(asked: Packet) -> Packet | None:
        first = scripted.seen.count(Kind.REQUEST) == 1
        return dhcpserver.usual(asked, "10.77.0.1", refuses=first)

    scripted.answer = refuse_once
    pod = namespaces.make("pod")
    assert node.call("ADD", config(node), pod=pod).status == 0
    assert scripted.seen == [Kind.DISCOVER, Kind.REQUEST, Kind.DISCOVER, Kind.REQUEST]
    assert addresses(pod) == ["10.77.0.50/24"]


T1: dict[int, bytes] = {Option.RENEWAL_TIME: (1).to_bytes(4, "big")}


def test_an_address_given_away_meanwhile_switches_the_link_off(
    node: cnidaemon.Daemon, namespaces: netns.Namespaces, scripted: dhcpserver.Scripted
) -> None:
    scripted.answer = lambda asked: dhcpserver.usual(asked, "10.77.0.1", options=T1)
    pod = namespaces.make("pod")
    assert node.call("ADD", config(node), pod=pod).status == 0

    def give_another(asked: Packet) -> Packet | None:
        is_renewal = int(asked.client) != 0
        return dhcpserver.usual(asked, "10.77.0.1", gives="10.77.0.60", refuses=is_renewal)

    scripted.answer = give_another
    waiting.until_blocking(lambda: "UP" not in netns.links(pod)["eth0"]["flags"], "link off")
    assert "the server has given the address away" in node.log()
    with daemoncalls.Caller(node.folder / "bitts-cni-daemon.sock") as caller:
        told = {each.loop: each.decision for each in caller.known("tnet/c1").objects}
    assert told["leases"] == "link off: lease of 10.77.0.50 has ended"
    assert node.call("DEL", config(node), pod=pod).status == 0


def test_an_address_had_anew_after_a_refusal_is_kept(
    node: cnidaemon.Daemon, namespaces: netns.Namespaces, scripted: dhcpserver.Scripted
) -> None:
    """As from a server that has lost its leases."""
    scripted.answer = lambda asked: dhcpserver.usual(
        asked, "10.77.0.1", options=T1,
        refuses=int(asked.client) != 0 and scripted.seen.count(Kind.DISCOVER) < 2,
    )  # fmt: skip
    pod = namespaces.make("pod")
    assert node.call("ADD", config(node), pod=pod).status == 0
    waiting.until_blocking(lambda: scripted.seen.count(Kind.DISCOVER) == 2, "a second lease")
    waiting.until_blocking(lambda: scripted.seen.count(Kind.REQUEST) >= 4, "its renewal")
    assert "UP" in netns.links(pod)["eth0"]["flags"]
    assert addresses(pod) == ["10.77.0.50/24"]


def test_a_lease_that_nobody_renews_ends_with_its_link_off(
    node: cnidaemon.Daemon, namespaces: netns.Namespaces, scripted: dhcpserver.Scripted
) -> None:
    scripted.answer = lambda asked: dhcpserver.usual(asked, "10.77.0.1", seconds=2)
    pod = namespaces.make("pod")
    assert node.call("ADD", config(node), pod=pod).status == 0
    scripted.answer = lambda asked: None
    waiting.until_blocking(lambda: "UP" not in netns.links(pod)["eth0"]["flags"], "link off")
    assert "nobody has renewed it" in node.log()
    assert Kind.REQUEST in scripted.seen[2:], "it was tried"


def test_macvlan_and_a_namespace_that_goes(
    node: cnidaemon.Daemon, namespaces: netns.Namespaces, scripted: dhcpserver.Scripted
) -> None:
    scripted.answer = lambda asked: dhcpserver.usual(asked, "10.77.0.1", options=T1)
    netns.run(node.host, "ip", "link", "add", "up0", "type", "veth", "peer", "name", "up1")
    netns.run(node.host, "ip", "link", "set", "up1", "master", "br0", "up")
    netns.run(node.host, "ip", "link", "set", "up0", "up")
    wanted = node.config("macvlan", master="up0", ipam={"type": "dhcp"})
    pod = namespaces.make("pod")
    outcome = node.call("ADD", wanted, pod=pod)
    assert outcome.status == 0, outcome.stdout
    assert addresses(pod) == ["10.77.0.50/24"]
    waiting.until_blocking(lambda: scripted.seen.count(Kind.REQUEST) >= 2, "renewal")
    namespaces.remove(pod)
    assert node.call("DEL", wanted, pod=pod).status == 0
    assert cnidaemon.leftovers(node.host) == []


def test_a_list_carried_out_as_one_begins_with_a_lease(
    node: cnidaemon.Daemon, namespaces: netns.Namespaces, scripted: dhcpserver.Scripted
) -> None:
    bridge = {"type": "bridge", "bridge": "br0", "ipMasq": True, "ipam": {"type": "dhcp"}}
    wanted = node.config("bitts", plugins=[bridge, {"type": "firewall"}])
    pod = namespaces.make("pod")
    outcome = node.call("ADD", wanted, pod=pod)
    assert outcome.status == 0, outcome.stdout
    elements = cnidaemon.leftovers(node.host)
    assert any("masq4" in each and "10.77.0.50" in each for each in elements), elements
    assert any("allowed4" in each and "10.77.0.50" in each for each in elements), elements
    assert node.call("DEL", wanted, pod=pod).status == 0
    assert cnidaemon.leftovers(node.host) == []


def test_the_plugin_called_by_itself_uses_the_link_that_is_there(
    node: cnidaemon.Daemon, namespaces: netns.Namespaces, scripted: dhcpserver.Scripted
) -> None:
    """As a main plugin that is not ours calls it."""
    pod = namespaces.make("pod")
    plain = node.config("bridge", bridge="br0")
    assert node.call("ADD", plain, pod=pod).status == 0
    alone = node.config("dhcp", ipam={"type": "dhcp"})
    outcome = node.call("ADD", alone, pod=pod)
    assert outcome.status == 0, outcome.stdout
    assert outcome.document["ips"][0]["address"] == "10.77.0.50/24"
    assert node.call("DEL", alone, pod=pod).status == 0
    waiting.until_blocking(lambda: Kind.RELEASE in scripted.seen, "release")
