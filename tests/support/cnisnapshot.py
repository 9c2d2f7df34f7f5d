"""What an attachment looks like from outside, with everything random taken out, to compare."""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from support import netns
from support.cnidaemon import Outcome

_VETH = re.compile(r"veth[0-9a-f]{8}")
_MAC = re.compile(r"(?:[0-9a-f]{2}:){5}[0-9a-f]{2}")
_SETTINGS = (
    "ipv4/conf/eth0/arp_notify",
    "ipv6/conf/eth0/accept_dad",
    "ipv6/conf/eth0/disable_ipv6",
    "ipv6/conf/eth0/keep_addr_on_down",
)


def outcome(found: Outcome, pod: str) -> Any:
    """Return what a plugin answered: status, and its document without what is random."""
    text = found.stdout.replace(pod, "POD")
    text = _VETH.sub("VETH", text)
    document = json.loads(text) if text.strip() else None
    if isinstance(document, dict):
        for interface in document.get("interfaces", []):
            if interface.get("mac") != "02:11:22:33:44:55":  # the one that a case asks for
                interface["mac"] = "MAC" if _MAC.fullmatch(interface.get("mac", "")) else "none"
        if found.status:
            document = {"code": document.get("code"), "words": _words(document)}
    return {"status": found.status, "document": document}


def _words(document: Mapping[str, Any]) -> str:
    """Return an error's text as far as both agree on: Go wraps the same cause differently."""
    text = f"{document.get('msg', '')} {document.get('details', '')}"
    return " ".join(text.split())


_LOOK = """
ip -d -j addr show; echo --
ip -4 -d -j route show table all; echo --
ip -6 -d -j route show table all; echo --
cat "$@" 2>/dev/null
true
"""
"""One program's start for four questions: starting programs is what takes the time."""


def _looked(path: str, *settings: str) -> tuple[list[Any], list[Any], list[str]]:
    """Return links with addresses, routes of both families, and values of settings."""
    files = [f"/proc/sys/net/{key}" for key in settings]
    output = netns.run(path, "sh", "-c", _LOOK, "sh", *files)
    links, four, six, values = output.split("--\n")
    routes = [*json.loads(four or "[]"), *json.loads(six or "[]")]
    return json.loads(links), routes, values.split()


def pod(path: str) -> Any:
    """Return links, addresses, routes and settings of a container's namespace."""
    links, routes, settings = _looked(path, *_SETTINGS)
    return {
        "links": {
            link["ifname"]: {
                "kind": link.get("linkinfo", {}).get("info_kind"),
                "mtu": link["mtu"],
                "up": "UP" in link["flags"],
                "addresses": _addresses(link),
            }
            for link in links
        },
        "routes": _routes(routes),
        "settings": settings,
    }


def node(path: str) -> Any:
    """Return links, addresses and routes of the node's namespace, pairs by what they are."""
    keys = ("ipv4/ip_forward", "ipv6/conf/all/forwarding")
    found, routes, forwarding = _looked(path, *keys)
    links: dict[str, Any] = {}
    for link in found:
        info = link.get("linkinfo", {})
        port = info.get("info_slave_data", {})
        links[_VETH.sub("VETH", link["ifname"])] = {
            "kind": info.get("info_kind"),
            "mtu": link["mtu"],
            "up": "UP" in link["flags"],
            "promiscuous": "PROMISC" in link["flags"],
            "master": link.get("master"),
            "port": {key: port.get(key) for key in ("hairpin", "isolated", "state")},
            "vlans": info.get("info_data", {}).get("vlan_filtering"),
            "addresses": _addresses(link),
        }
    return {"links": links, "routes": _routes(routes), "forwarding": forwarding}


def _addresses(link: Mapping[str, Any]) -> list[str]:
    return sorted(
        f"{each['local']}/{each['prefixlen']} {each['scope']}"
        for each in link.get("addr_info", [])
        if each["scope"] != "link"
    )


def _routes(routes: Iterable[Mapping[str, Any]]) -> list[str]:
    found = []
    for route in routes:
        if route.get("type") != "unicast" or route["dst"].startswith("fe80:"):
            continue
        keys = ("dst", "gateway", "dev", "scope", "metric", "table", "prefsrc")
        text = " ".join(f"{key}={route[key]}" for key in keys if key in route)
        found.append(_VETH.sub("VETH", text))
    return sorted(found)


def differences(mine: Any, theirs: Any, where: str = "") -> list[str]:
    """Return the places where two observations differ, each with both values."""
    if isinstance(mine, dict) and isinstance(theirs, dict):
        return [
            line
            for key in sorted({*mine, *theirs})
            for line in differences(mine.get(key), theirs.get(key), f"{where}/{key}")
        ]
    if isinstance(mine, list) and isinstance(theirs, list) and mine != theirs:
        only = [[each for each in a if each not in b] for a, b in ((mine, theirs), (theirs, mine))]
        return [f"{where}: only ours {only[0]!r}", f"{where}: only theirs {only[1]!r}"]
    return [] if mine == theirs else [f"{where}: ours {mine!r}, theirs {theirs!r}"]
