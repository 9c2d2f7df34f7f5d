"""Pods that the reference plugins attached end through ours, and nothing of them stays."""

import pathlib
from typing import Any

import pytest
from support import cnidaemon, netns, peers

pytestmark = [pytest.mark.root, pytest.mark.builds("cni-plugins")]

TYPES = ("bridge", "portmap", "firewall")


class Reference:
    """Attaches pods as the reference plugins do, one plugin after the other."""

    def __init__(self, daemon: cnidaemon.Daemon, folder: pathlib.Path) -> None:
        self.daemon = daemon
        self.folder = folder
        folder.mkdir()
        for name in (*TYPES, "host-local"):
            (folder / name).symlink_to(peers.plugin(name))

    def configs(self, port: int) -> list[dict[str, Any]]:
        ranges = [[{"subnet": "10.88.0.0/24"}], [{"subnet": "fd00:88::/64"}]]
        ipam = {"type": "host-local", "dataDir": str(self.daemon.ipam), "ranges": ranges}
        mappings = [
            {"hostPort": port, "containerPort": 80, "protocol": protocol}
            for protocol in ("tcp", "udp")
        ]
        return [
            self.daemon.config("bridge", isDefaultGateway=True, ipMasq=True, ipam=ipam),
            self.daemon.config(
                "portmap", snat=True, backend="iptables", conditionsV4=["-m", "comment"],
                runtimeConfig={"portMappings": mappings},
            ),
            self.daemon.config("firewall", backend="iptables"),
        ]  # fmt: skip

    def attach(self, pod: str, container: str, port: int) -> dict[str, Any]:
        """Attach; returns the result."""
        result: dict[str, Any] = {}
        for config in self.configs(port):
            config.pop("conditionsV4", None)  # which ours refuse, though not for DEL
            given = {**config, **({"prevResult": result} if result else {})}
            outcome = cnidaemon.execute(
                self.folder / config["type"], "ADD", given,
                host=self.daemon.host, pod=pod, container=container,
            )  # fmt: skip
            assert outcome.status == 0, outcome.error
            result = outcome.document
        return result


def rules(host: str) -> str:
    return netns.run(host, "iptables-save") + netns.run(host, "ip6tables-save")


def detach(reference: Reference, pod: str, container: str, port: int, result: Any) -> None:
    for config in reversed(reference.configs(port)):
        given = {**config, "prevResult": result}
        removed = reference.daemon.call("DEL", given, pod=pod, container=container)
        assert removed.status == 0, removed.error


def test_rules_of_a_pod_go_with_it_and_those_of_others_stay(
    daemon: cnidaemon.Daemon, namespaces: netns.Namespaces, tmp_path: pathlib.Path
) -> None:
    reference = Reference(daemon, tmp_path / "reference")
    netns.run(daemon.host, "ip", "link", "set", "lo", "up")
    pods = [namespaces.make("pod") for _ in range(2)]
    own = ["iptables", "-A", "FORWARD", "-s", "10.88.0.3/32", "-j", "ACCEPT"]
    netns.run(daemon.host, *own)
    stays = reference.attach(pods[0], "stays", 8080)
    before = rules(daemon.host)
    goes = reference.attach(pods[1], "goes", 8081)
    assert "10.88.0.3" in str(goes)
    assert rules(daemon.host).count("8081") == before.count("8080") > 0
    detach(reference, pods[1], "goes", 8081, goes)
    assert counted(rules(daemon.host)) == counted(before)
    assert "Removed rules of another plugin" in daemon.log()
    detach(reference, pods[1], "goes", 8081, goes)
    assert counted(rules(daemon.host)) == counted(before)
    detach(reference, pods[0], "stays", 8080, stays)
    left = counted(rules(daemon.host))
    assert not [line for line in left if "8080" in line or "10.88.0.2" in line or "::2" in line]
    assert daemon.addresses() == {}
    assert "-A FORWARD -s 10.88.0.3/32 -j ACCEPT" in left


def counted(saved: str) -> list[str]:
    """Return rules and chains without comments of the program and numbers of packets."""
    lines = (line.split(" [")[0] for line in saved.splitlines())
    return sorted(line for line in lines if not line.startswith("#"))
