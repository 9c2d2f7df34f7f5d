"""Plugins that make or move links, run beside the reference: the node, and what is looked at."""

import pathlib
from collections.abc import Mapping
from typing import Any

from support import cnidaemon, cnisnapshot, netns, peers

MAC = "02:11:22:33:44:55"
"""The address that cases ask for: it is compared as it is."""

_NODE = (
    "link add up0 address 02:00:00:00:00:77 mtu 1450 type veth peer name up1",
    "link add hd0 address 02:00:00:00:00:78 type veth peer name hd1",
    "link set up0 up",
    "link set up1 up",
    "link set hd0 alias before",
    "addr add 10.55.0.1/24 dev up0",
    "route add default via 10.55.0.9",
)
_POD = ("link add br0 address 02:00:00:00:00:79 type bridge", "link set br0 up")


def prepare(node: str, *pods: str) -> None:
    """Give a node a link to share, one to hand over and a default route, pods a bridge."""
    netns.run(node, "ip", "-batch", "-", text="\n".join(_NODE))
    for pod in pods:
        netns.run(pod, "ip", "-batch", "-", text="\n".join(_POD))


def reference(folder: pathlib.Path, *names: str) -> pathlib.Path:
    """Return a folder with reference plugins."""
    folder.mkdir(exist_ok=True)
    for name in (*names, "host-local", "static"):
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to(peers.plugin(name))
    return folder


def addressed(config: Mapping[str, Any], folder: pathlib.Path) -> dict[str, Any]:
    """Return a configuration with an IPAM plugin of the test's own, where it asks for one."""
    if config.get("ipam") != "host-local":
        return dict(config)
    ipam = {
        "type": "host-local", "dataDir": str(folder), "routes": [{"dst": "192.0.2.0/24"}],
        "ranges": [[{"subnet": "10.55.0.0/24", "gateway": "10.55.0.254"}]],
    }  # fmt: skip
    return {**config, "ipam": ipam}


def observed(program: pathlib.Path, host: str, pod: str, config: dict[str, Any]) -> dict[str, Any]:
    """Run ADD, CHECK and DEL twice, and return what can be seen of them."""

    def call(command: str, document: dict[str, Any]) -> cnidaemon.Outcome:
        return cnidaemon.execute(program, command, document, host=host, pod=pod)

    added = call("ADD", config)
    if added.status:
        return {"refused": added.document["code"], "after": cnisnapshot.pod(pod)}
    link = netns.links(pod)["eth0"]
    later = {**config, "prevResult": added.document}
    found = {
        "add": cnisnapshot.outcome(added, pod),
        "pod": cnisnapshot.pod(pod),
        "kind": [link.get("linkinfo", {}).get(key) for key in ("info_kind", "info_data")],
        "mac": link["address"] if link["address"].startswith("02:") else "random",
        "told": added.document["interfaces"][0]["mac"] == link["address"],
        "alias": link.get("ifalias", ""),
        "master": link.get("master", ""),
        "check": call("CHECK", later).status,
        "del": call("DEL", later).status,
    }
    found["again"] = call("DEL", later).status
    links = netns.links(host)
    found["given back on"] = "UP" in links["hd0"]["flags"]
    return found | {"after": cnisnapshot.pod(pod), "node after": devices(host, links)}


def devices(host: str, links: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return what a node's own links (seen already, if given) are called and known by."""
    return {
        name: (link.get("ifalias", ""), link["address"])
        for name, link in (links or netns.links(host)).items()
        if name not in {"lo", "up1", "hd1"}
    }
