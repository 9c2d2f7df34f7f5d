"""VLANs of bridge ports, beside the reference: who is in which, and who reaches whom.

Only under Debian's kernel: the one outside may refuse to filter VLANs.
"""

import pathlib
from typing import Any

import pytest
from support import cnichains, cnidaemon, cnilinks, cnisnapshot, netns

pytestmark = [
    pytest.mark.root,
    pytest.mark.builds("cni-plugins"),
    pytest.mark.guest(reason="bridges that filter VLANs"),
]

PODS: dict[str, dict[str, Any]] = {
    "a": {"vlan": 100},
    "b": {"vlan": 100, "preserveDefaultVlan": False},
    "c": {"vlan": 200, "preserveDefaultVlan": False},
    "trunk": {"vlanTrunk": [{"minID": 99, "maxID": 101}, {"id": 300}],
              "preserveDefaultVlan": False},
    "both": {"vlan": 400, "vlanTrunk": [{"id": 401}], "preserveDefaultVlan": True},
}  # fmt: skip


def config(number: int, keys: dict[str, Any]) -> dict[str, Any]:
    addresses = [{"address": f"10.77.0.{number}/24"}]
    return {
        "cniVersion": "1.0.0", "name": "vnet", "type": "bridge", "bridge": "br0",
        "ipam": {"type": "static", "addresses": addresses}, **keys,
    }  # fmt: skip


def vlans(host: str, ports: dict[str, str]) -> dict[str, Any]:
    """Return the VLANs of each port and of the bridge, by the container that a port is of."""
    return {
        ports.get(each["ifname"], each["ifname"]): each["vlans"]
        for each in netns.as_json(host, "bridge", "-j", "vlan", "show")
    }


def reached(pods: dict[str, str]) -> dict[str, list[str]]:
    """Return whom each container with a VLAN of its own reaches, and the trunk within VLAN 100."""
    netns.run(pods["trunk"], "ip", "link", "add", "link", "eth0", "name", "tag", "type", "vlan",
              "id", "100")  # fmt: skip
    netns.run(pods["trunk"], "ip", "addr", "flush", "dev", "eth0")
    netns.run(pods["trunk"], "ip", "addr", "add", "10.77.0.4/24", "dev", "tag")
    netns.run(pods["trunk"], "ip", "link", "set", "tag", "up")
    found: dict[str, list[str]] = {}
    for name, others in (("a", "bc"), ("c", "a"), ("trunk", "bc")):
        numbers = {each: [*PODS].index(each) + 1 for each in others}
        found[name] = netns.inside(
            pods[name],
            lambda numbers=numbers: [  # type: ignore[misc]
                each for each, n in numbers.items() if cnichains.reaches(f"10.77.0.{n}")
            ],
        )
    return found


def observed(plugins: pathlib.Path, host: str, namespaces: netns.Namespaces) -> dict[str, Any]:
    """Attach all containers, look, and detach them."""
    pods = {name: namespaces.make(name) for name in PODS}
    ports: dict[str, str] = {}
    documents = {name: config(number, PODS[name]) for number, name in enumerate(PODS, 1)}

    def call(command: str, name: str, document: dict[str, Any]) -> cnidaemon.Outcome:
        return cnidaemon.execute(
            plugins / "bridge", command, document, host=host, pod=pods[name], container=name
        )

    found: dict[str, Any] = {}
    for name, document in documents.items():
        added = call("ADD", name, document)
        assert added.status == 0, added.stdout
        ports[added.document["interfaces"][1]["name"]] = name
        documents[name] = {**document, "prevResult": added.document}
    found["vlans"] = vlans(host, ports)
    found["filters"] = netns.links(host)["br0"]["linkinfo"]["info_data"]["vlan_filtering"]
    found["checks"] = [call("CHECK", name, document).status for name, document in documents.items()]
    found["reached"] = reached(pods)
    found["dels"] = [call("DEL", name, document).status for name, document in documents.items()]
    found["after"] = vlans(host, ports)
    return found


def test_vlans_and_who_reaches_whom_are_those_of_the_reference(
    daemon: cnidaemon.Daemon, namespaces: netns.Namespaces, tmp_path: pathlib.Path
) -> None:
    reference = cnilinks.reference(tmp_path / "reference", "bridge")
    theirs = observed(reference, namespaces.make("theirs"), namespaces)
    ours = observed(daemon.plugins, daemon.host, namespaces)
    # CHECK of the reference may fail for a bridge that more ports have joined since: ours must not.
    assert ours.pop("checks") == [0] * len(PODS)
    theirs.pop("checks")
    assert ours == theirs
    assert ours["reached"] == {"a": ["b"], "c": [], "trunk": ["b"]}
    own = {"vlan": 100, "flags": ["PVID", "Egress Untagged"]}
    assert ours["vlans"]["b"] == [own]


GATED = {"one": (100, "100"), "two": (100, "100"), "far": (200, "200"), "stranger": (100, "101")}
"""By container: its VLAN, and the third number of the subnet that it asks for there."""


class Gated:
    """A node on which containers of two VLANs have gateways."""

    def __init__(
        self, plugins: pathlib.Path, host: str, namespaces: netns.Namespaces, folder: pathlib.Path
    ) -> None:
        self.host = host
        self._plugins, self._folder = plugins, folder
        self.pods = {name: namespaces.make(name) for name in GATED}
        self.ports: dict[str, str] = {}

    def config(self, name: str, **keys: Any) -> dict[str, Any]:
        vlan, number = GATED[name]
        ranges = [[{"subnet": f"10.{number}.0.0/24"}], [{"subnet": f"fd00:{number}::/64"}]]
        return {
            "cniVersion": "1.0.0", "name": f"v{number}", "type": "bridge", "bridge": "br0",
            "vlan": vlan, "isDefaultGateway": True, "mtu": 1400, **keys,
            "ipam": {"type": "host-local", "dataDir": str(self._folder), "ranges": ranges},
        }  # fmt: skip

    def begin(self, command: str, name: str, **keys: Any) -> cnidaemon.Running:
        return cnidaemon.begin(
            self._plugins / "bridge", command, self.config(name, **keys),
            host=self.host, pod=self.pods[name], container=name,
        )  # fmt: skip

    def call(self, command: str, name: str, **keys: Any) -> cnidaemon.Outcome:
        return self.begin(command, name, **keys)()

    def reaches(self, name: str, address: str) -> bool:
        return netns.inside(self.pods[name], lambda: cnichains.reaches(address))

    def gateways(self) -> list[str]:
        """Return the links that carry addresses of gateways."""
        return sorted(each for each in netns.links(self.host) if each.startswith("br0."))


def gated(node: Gated) -> dict[str, Any]:
    """Attach one container after the other, look, and detach them."""
    found: dict[str, Any] = {}
    for name in ("one", "two", "far"):
        added = node.call("ADD", name)
        assert added.status == 0, added.stdout
        node.ports[added.document["interfaces"][1]["name"]] = name
        found[f"add {name}"] = cnisnapshot.outcome(added, node.pods[name])
        found[f"check {name}"] = node.call("CHECK", name, prevResult=added.document).status
    found["refused"] = cnisnapshot.outcome(node.call("ADD", "stranger"), node.pods["stranger"])
    found["dels"] = [node.call("DEL", "stranger").status]  # the reference leaves a link till then
    found["node"] = cnisnapshot.node(node.host)
    for name, link in netns.links(node.host).items():
        if name not in node.ports and link.get("link") in node.gateways():
            node.ports[name] = f"of {link['link']}"
    found["vlans"] = vlans(node.host, node.ports)
    found["reached"] = {
        (name, to): node.reaches(name, to)
        for name in ("one", "far")
        for to in ("10.100.0.1", "10.100.0.3", "fd00:100::1", "10.200.0.1")
    }
    found["dels"].append(node.call("DEL", "one").status)
    found["after one"] = (node.gateways(), node.reaches("two", "10.100.0.1"))
    found["dels"] += [node.call("DEL", name).status for name in ("two", "far")]
    return found


def test_gateways_of_vlans_are_those_of_the_reference_and_go_with_the_last_container(
    daemon: cnidaemon.Daemon, namespaces: netns.Namespaces, tmp_path: pathlib.Path
) -> None:
    reference = cnilinks.reference(tmp_path / "reference", "bridge")
    host = namespaces.make("theirs")
    theirs = Gated(reference, host, namespaces, tmp_path / "theirs")
    ours = Gated(daemon.plugins, daemon.host, namespaces, daemon.ipam)
    expected, found = gated(theirs), gated(ours)
    assert cnisnapshot.differences(found, expected) == []
    assert all(found["reached"].values())
    assert found["after one"] == (["br0.100", "br0.200"], True)
    assert theirs.gateways() == ["br0.100", "br0.200"], "what the reference leaves"
    assert ours.gateways() == []
    assert cnidaemon.leftovers(daemon.host) == []


def test_others_going_takes_no_gateway_and_killed_after_making_one_nothing_is_left(
    daemon: cnidaemon.Daemon, namespaces: netns.Namespaces
) -> None:
    record = daemon.folder / "instants"
    node = Gated(daemon.plugins, daemon.host, namespaces, daemon.ipam)
    assert node.call("ADD", "one").status == 0
    for coming, going in [("two", "one"), ("one", "two")] * 3:
        beside = [node.begin("ADD", coming), node.begin("DEL", going)]
        assert [each().status for each in beside] == [0, 0]
        assert node.reaches(coming, "10.100.0.1")
    assert node.call("DEL", "one").status == 0
    assert cnidaemon.leftovers(daemon.host) == []
    daemon.stop()
    daemon.start(f"--fault=crash-at=0:{record}")
    record.write_text("")
    assert [node.call(each, "one").status for each in ("ADD", "DEL")] == [0, 0]
    passed = record.read_text().splitlines()
    number = next(i for i, each in enumerate(passed, 1) if "VLAN gateway br0.100" in each)
    daemon.stop()
    daemon.start(f"--fault=crash-at={number}")
    cut_off = node.begin("ADD", "one")
    daemon.await_crash()
    cut_off.kill()
    assert node.gateways() == ["br0.100"]
    daemon.start()
    assert node.gateways() == []
    assert cnidaemon.leftovers(daemon.host) == []
