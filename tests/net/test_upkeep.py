"""What others break comes back: rules and elements that somebody flushed."""

import pathlib

import pytest
from support import cnichains, cnidaemon, netns, processes, waiting

pytestmark = pytest.mark.root

WORD = b"still here"


@pytest.fixture
def node(
    namespaces: netns.Namespaces, spawner: processes.Processes, short_dir: pathlib.Path
) -> cnidaemon.Daemon:
    """A daemon that looks at its rules every few milliseconds."""
    flags = ("--upkeep-interval=50ms",)
    made = cnidaemon.Daemon(spawner, namespaces.make("node"), short_dir, *flags)
    made.start()
    netns.run(made.host, "ip", "link", "set", "lo", "up")
    return made


def published(node: cnidaemon.Daemon) -> cnichains.Chain:
    mappings = [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]
    return cnichains.Chain(
        node,
        [
            cnichains.bridge(node, ipMasq=True, macspoofchk=True),
            {"type": "portmap", "runtimeConfig": {"portMappings": mappings}},
            {"type": "firewall"},
        ],
    )


def ruleset(host: str) -> str:
    """Return every rule and element, without what changes by itself."""
    lines = netns.run(host, "nft", "-s", "list", "ruleset").splitlines()
    return "\n".join(sorted(line.strip() for line in lines if line.strip()))


def test_a_flushed_rule_set_comes_back_for_standing_containers(
    node: cnidaemon.Daemon, namespaces: netns.Namespaces
) -> None:
    pod, quiet = namespaces.make("pod"), namespaces.make("quiet")
    chain = published(node)
    chain.add(pod)
    cnichains.Chain(node, [cnichains.bridge(node, ipMasq=True)]).add(quiet, container="c2")
    before = ruleset(node.host)
    server = netns.inside(pod, lambda: cnichains.Answering(80, WORD))

    def is_reached() -> bool:
        ask = lambda: cnichains.ask("127.0.0.1", 8080)  # noqa: E731
        return netns.inside(node.host, ask) == WORD

    try:
        assert is_reached()
        for restarts in (False, True):
            if restarts:
                node.kill()
            netns.run(node.host, "nft", "flush", "ruleset")
            assert not is_reached()
            if restarts:
                node.start()
            waiting.until_blocking(lambda: ruleset(node.host) == before, "rules as they were")
            assert is_reached()
    finally:
        server.close()
    assert chain.remove(pod) == []
    assert "Somebody has flushed our rules" in node.log()


def test_elements_that_are_missing_when_an_add_lays_the_rules_anew_come_back(
    node: cnidaemon.Daemon, namespaces: netns.Namespaces
) -> None:
    """The ADD finds the sets gone before upkeep does, so upkeep finds them there."""
    pod, second = namespaces.make("pod"), namespaces.make("second")
    masquerading = cnichains.Chain(node, [cnichains.bridge(node, ipMasq=True)])
    masquerading.add(pod)
    node.stop()
    node.start("--upkeep-interval=1h")
    netns.run(node.host, "nft", "flush", "ruleset")
    masquerading.add(second, container="c2")
    node.stop()
    node.start()
    elements = netns.run(node.host, "nft", "list", "map", "inet", "bitts_cni", "masq4")
    assert "10.88.0.2" in elements
    assert "10.88.0.3" in elements


def test_one_flushed_set_is_noticed_at_the_thorough_look(
    node: cnidaemon.Daemon, namespaces: netns.Namespaces
) -> None:
    pod = namespaces.make("pod")
    cnichains.Chain(node, [cnichains.bridge(node, ipMasq=True)]).add(pod)
    listed = ("nft", "list", "map", "inet", "bitts_cni", "masq4")
    netns.run(node.host, "nft", "flush", "map", "inet", "bitts_cni", "masq4")
    assert "10.88.0.2" not in netns.run(node.host, *listed)
    waiting.until_blocking(lambda: "10.88.0.2" in netns.run(node.host, *listed), "element put back")


def forwarded(node: cnidaemon.Daemon, namespaces: netns.Namespaces) -> str:
    """Have a neighbour that is reached only if iptables lets it; returns its namespace."""
    outside = namespaces.make("outside")
    netns.run(node.host, "ip", "link", "add", "uplink", "type", "veth", "peer", "name", "eth0",
              "netns", outside.rsplit("/", 1)[1])  # fmt: skip
    for place, name, number in ((node.host, "uplink", 1), (outside, "eth0", 2)):
        netns.run(place, "ip", "addr", "add", f"192.0.2.{number}/24", "dev", name)
        netns.run(place, "ip", "link", "set", name, "up")
    netns.run(node.host, "iptables", "-P", "FORWARD", "DROP")
    return outside


RELOAD = "*filter\n:FORWARD DROP [0:0]\nCOMMIT\n"


@pytest.mark.parametrize(
    ("program", "text"),
    [
        (("iptables", "-F"), None),
        (("iptables", "-D", "FORWARD", "1"), None),
        (("iptables-restore",), RELOAD),
        (("nft", "flush", "chain", "inet", "bitts_cni", "forward"), None),
        (("nft", "flush", "table", "inet", "bitts_cni"), None),
        (("nft", "-f", "-"), "flush ruleset\ntable ip filter { chain FORWARD { "
                             "type filter hook forward priority 0; policy drop; }\n}\n"),
    ],
    ids=["flush", "one rule", "restore", "our chain", "our table", "new rule set"],
)  # fmt: skip
def test_what_a_reload_of_the_firewall_takes_comes_back(
    node: cnidaemon.Daemon, namespaces: netns.Namespaces, program: tuple[str, ...], text: str | None
) -> None:
    pod, next_one = namespaces.make("pod"), namespaces.make("next")
    forwarded(node, namespaces)
    chain = cnichains.Chain(node, [cnichains.bridge(node, ipMasq=True), {"type": "firewall"}])
    chain.add(pod)

    def reaches() -> bool:
        return netns.inside(pod, lambda: cnichains.reaches("192.0.2.2"))

    assert reaches()
    netns.run(node.host, *program, text=text)
    waiting.until_blocking(reaches, "the way that was open")
    node.stop()
    netns.run(node.host, *program, text=text)
    node.start()
    waiting.until_blocking(reaches, "the way that was open before the restart")
    chain.add(next_one, container="c2")
    for container in ("c1", "c2"):
        assert chain.remove("", container=container) == []
    assert cnidaemon.leftovers(node.host) == []


def test_rules_that_stay_are_not_laid_again(
    node: cnidaemon.Daemon, namespaces: netns.Namespaces
) -> None:
    pod = namespaces.make("pod")
    published(node).add(pod)
    handles = netns.run(node.host, "nft", "-a", "list", "ruleset")
    node.stop()
    node.start()
    netns.run(node.host, "nft", "flush", "map", "inet", "bitts_cni", "masq4")  # two looks later
    listed = ("nft", "list", "map", "inet", "bitts_cni", "masq4")
    waiting.until_blocking(lambda: "10.88.0.2" in netns.run(node.host, *listed), "thorough look")
    assert netns.run(node.host, "nft", "-a", "list", "ruleset") == handles
    assert "Somebody has flushed" not in node.log()


@pytest.mark.parametrize("comes", ["late", "never"])
def test_what_no_container_has_any_more_is_released_and_a_late_del_harms_nobody(
    node: cnidaemon.Daemon, namespaces: netns.Namespaces, comes: str
) -> None:
    """The next one has the same address and port: what the DEL names is no more its own."""
    chain, pod = published(node), namespaces.make("pod")
    chain.plugins[0]["ipam"]["ranges"] = [[{"subnet": "10.88.0.0/30"}]]
    result = chain.add(pod)
    namespaces.remove(pod)
    waiting.until_blocking(lambda: cnidaemon.leftovers(node.host) == [], "nothing left")
    assert node.addresses() == {}
    assert "Releasing what no container has" in node.log()
    following = namespaces.make("next")
    other = chain.add(following, container="c2")
    assert other["ips"] == result["ips"]
    before = ruleset(node.host)
    if comes == "late":
        assert chain.remove(pod, result) == []
    chain.check(following, other, container="c2")
    assert ruleset(node.host) == before
    assert chain.remove(following, other, container="c2") == []
    assert cnidaemon.leftovers(node.host) == []


def test_a_namespace_that_only_lost_its_name_is_not_taken_for_gone(
    node: cnidaemon.Daemon, namespaces: netns.Namespaces
) -> None:
    pod, other = namespaces.make("pod"), namespaces.make("other")
    chain = published(node)
    chain.add(pod)
    with open(pod, "rb"):
        namespaces.remove(pod)
        second = cnichains.Chain(node, [cnichains.bridge(node)])
        second.add(other, container="c2")
        namespaces.remove(other)  # when this one has been released, the first was looked at, too
        waiting.until_blocking(lambda: "10.88.0.3" not in node.addresses(), "the other's release")
        assert "10.88.0.2" in node.addresses()
    waiting.until_blocking(lambda: node.addresses() == {}, "release when it is gone")
