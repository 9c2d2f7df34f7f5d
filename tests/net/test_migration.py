"""A node moves from the reference plugins to ours and back as docs/cni-daemon.md tells it.

Pods stand all the while; each is detached by whoever is installed by then.
"""

import pathlib
import shutil
import subprocess
from typing import Any

import pytest
from cni_daemon import installing
from support import cnichains, cnidaemon, netns, peers, processes, waiting

pytestmark = [
    pytest.mark.root,
    pytest.mark.slow,
    pytest.mark.timeout(240),
    pytest.mark.builds("cni-plugins"),
]

NAMES = ("bridge", "portmap", "firewall", "bandwidth", "tuning", "loopback", "host-local")
STANDING = 20
FIRST_PORT = 8000
WORD = b"served"


class Node:
    """A node whose runtime executes whatever lies in its plugin folder."""

    def __init__(self, host: str, folder: pathlib.Path, namespaces: netns.Namespaces) -> None:
        self.host = host
        self.folder = folder
        self.plugins = folder / "bin"
        self.plugins.mkdir()
        for name in NAMES:
            shutil.copy(peers.plugin(name), self.plugins / name)
        self._namespaces = namespaces
        self.pods: dict[str, tuple[str, int, Any]] = {}
        """By container: namespace, published port, result of the last plugin."""

    def configs(self, port: int) -> list[dict[str, Any]]:
        ranges = [[{"subnet": "10.88.0.0/24"}], [{"subnet": "fd00:88::/64"}]]
        ipam = {"type": "host-local", "dataDir": str(self.folder / "ipam"), "ranges": ranges}
        mappings = [
            {"hostPort": port, "containerPort": 80, "protocol": protocol}
            for protocol in ("tcp", "udp")
        ]
        limit = {"ingressRate": 10**9, "ingressBurst": 10**7, "egressRate": 10**9,
                 "egressBurst": 10**7}  # fmt: skip
        plugins: list[dict[str, Any]] = [
            {"type": "bridge", "isDefaultGateway": True, "ipMasq": True, "ipam": ipam,
             "hairpinMode": True},
            {"type": "portmap", "runtimeConfig": {"portMappings": mappings}},
            {"type": "firewall"},
            {"type": "bandwidth", "runtimeConfig": {"bandwidth": limit}},
            {"type": "tuning", "mtu": 1400, "sysctl": {"net.ipv4.conf.all.log_martians": "1"}},
        ]  # fmt: skip
        return [{"cniVersion": "1.0.0", "name": "tnet", **each} for each in plugins]

    def attach(self, name: str, port: int) -> None:
        """Start a pod."""
        pod = self._namespaces.make("pod")
        result: Any = None
        for config in self.configs(port):
            given = config if result is None else {**config, "prevResult": result}
            outcome = self._run("ADD", given, name, pod)
            result = outcome.document
        self.pods[name] = (pod, port, result)

    def check(self, name: str) -> None:
        """Have every plugin look at a pod."""
        pod, port, result = self.pods[name]
        for config in self.configs(port):
            self._run("CHECK", {**config, "prevResult": result}, name, pod)

    def detach(self, name: str) -> None:
        """End a pod: its network goes before its namespace, as with every runtime."""
        pod, port, result = self.pods.pop(name)
        for config in reversed(self.configs(port)):
            self._run("DEL", {**config, "prevResult": result}, name, pod)
        self._namespaces.remove(pod)

    def _run(
        self, command: str, config: dict[str, Any], container: str, pod: str
    ) -> cnidaemon.Outcome:
        program = self.plugins / config["type"]
        outcome = cnidaemon.execute(
            program, command, config, host=self.host, container=container, pod=pod
        )
        assert outcome.status == 0, (command, container, config["type"], outcome.error)
        return outcome

    def is_served(self, name: str) -> bool:
        """Say whether a pod is reached by its published port."""
        pod, port, _ = self.pods[name]
        server = netns.inside(pod, lambda: cnichains.Answering(80, WORD))
        try:
            return netns.inside(self.host, lambda: cnichains.ask("127.0.0.1", port)) == WORD
        finally:
            server.close()

    def given(self) -> list[str]:
        """Return the addresses of all pods, as they were told."""
        return [
            ip["address"].split("/")[0] for *_, told in self.pods.values() for ip in told["ips"]
        ]

    def reserved(self) -> list[str]:
        """Return the addresses that are taken on disk."""
        folder = self.folder / "ipam" / "tnet"
        return [e.name for e in folder.iterdir() if e.name != "lock" and "last_" not in e.name]


def rules(host: str) -> list[str]:
    """Return what iptables has, without numbers of packets."""
    saved = netns.run(host, "iptables-save") + netns.run(host, "ip6tables-save")
    lines = (line.split(" [")[0] for line in saved.splitlines())
    return sorted(line for line in lines if not line.startswith("#"))


def attachments(host: str) -> list[str]:
    """Return links that some container has, or that slow one down."""
    return [name for name in netns.links(host) if name.startswith(("veth", "bwp"))]


def install(verb: str, node: Node, daemon: cnidaemon.Daemon) -> None:
    command = [processes.script("cni-daemon"), verb, f"--plugin-dir={node.plugins}",
               f"--socket={daemon.socket}", f"--state-dir={daemon.state}"]  # fmt: skip
    subprocess.run(command, check=True, timeout=60)


def move_here(node: Node, daemon: cnidaemon.Daemon) -> None:
    """Half of the pods end through ours, and others come on their ports."""
    daemon.start()
    install("install", node, daemon)
    assert all(installing.is_shim(node.plugins / name) for name in NAMES)
    assert node.is_served("r0")
    for number in range(10):
        node.detach(f"r{number}")
    assert len(attachments(node.host)) == 2 * (STANDING - 10)
    for number in range(10):
        node.attach(f"o{number}", FIRST_PORT + number)
    for name in ("r10", "r19", "o0", "o9"):
        assert node.is_served(name), name
    node.check("o0")
    for name in [f"r{n}" for n in range(10, 15)] + [f"o{n}" for n in range(5)]:
        node.detach(name)


def move_back(node: Node, daemon: cnidaemon.Daemon) -> None:
    """The reference detaches pods of ours, whose ports are published anew at once."""
    install("uninstall", node, daemon)
    for name in ("r19", "o9"):
        assert node.is_served(name), name
    for number in range(5, 8):
        node.detach(f"o{number}")
        node.attach(f"b{number}", FIRST_PORT + number)
    waiting.until_blocking(lambda: "8005" not in ours(node.host), "what the reference has detached")
    for name in ("b5", "b7", "o8", "r15"):
        assert node.is_served(name), name
    daemon.stop()
    for name in ("o9", "b6", "r15"):
        assert node.is_served(name), name


def ours(host: str) -> str:
    """Return the tables of the daemon."""
    return netns.run(host, "nft", "list", "table", "inet", "bitts_cni")


def test_a_node_moves_here_and_back_with_its_pods_standing(
    namespaces: netns.Namespaces, spawner: processes.Processes, short_dir: pathlib.Path
) -> None:
    node = Node(namespaces.make("node"), short_dir, namespaces)
    netns.run(node.host, "ip", "link", "set", "lo", "up")
    netns.run(node.host, "iptables", "-P", "FORWARD", "DROP")
    node.attach("first", FIRST_PORT - 1)
    node.detach("first")
    bare = rules(node.host)
    for number in range(STANDING):
        node.attach(f"r{number}", FIRST_PORT + number)
    originals = {name: (node.plugins / name).read_bytes() for name in NAMES}
    daemon = cnidaemon.Daemon(spawner, node.host, short_dir, "--upkeep-interval=200ms")
    for move in (move_here, move_back):
        move(node, daemon)
        assert sorted(node.given()) == sorted(node.reserved())
        assert len(set(node.given())) == len(node.given())
    assert {name: (node.plugins / name).read_bytes() for name in NAMES} == originals
    for name in list(node.pods):
        node.detach(name)
    assert node.reserved() == []
    assert attachments(node.host) == []
    clear(node.host)
    assert rules(node.host) == bare
    assert "bitts" not in netns.run(node.host, "nft", "list", "ruleset")


def clear(host: str) -> None:
    """Remove what the daemon leaves behind, by the commands of the page."""
    page = pathlib.Path(__file__).parents[2] / "docs" / "cni-daemon.md"
    _, _, rest = page.read_text().partition("<!-- what is left -->\n   ```\n")
    commands, _, _ = rest.partition("   ```")
    assert "bitts_cni" in commands
    netns.run(host, "sh", "-ec", commands)
