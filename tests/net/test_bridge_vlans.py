"""VLANs of bridge ports, beside the reference: who is in which, and who reaches whom.

Only under Debian's kernel: the one outside may refuse to filter VLANs.
"""

import pathlib
from typing import Any

import pytest
from support import cnichains, cnidaemon, cnilinks, netns

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
