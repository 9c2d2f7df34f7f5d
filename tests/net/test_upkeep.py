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
