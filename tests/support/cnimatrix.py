"""Configurations to run through the reference plugins and through ours.

A few are written down because they once differed or are asked for by name; the rest is drawn
from all combinations with a fixed seed, so that a failure can be repeated.
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_VERSIONS = ("0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0")

_RANGES: Mapping[str, Sequence[Sequence[Mapping[str, str]]]] = {
    "v4": [[{"subnet": "10.77.0.0/24"}]],
    "v6": [[{"subnet": "fd77::/64"}]],
    "dual": [[{"subnet": "10.77.0.0/24"}], [{"subnet": "fd77::/64"}]],
    "pool": [
        [
            {"subnet": "10.77.0.0/29", "rangeStart": "10.77.0.5", "rangeEnd": "10.77.0.5"},
            {"subnet": "10.78.0.0/24", "gateway": "10.78.0.254"},
        ]
    ],
    "sets": [[{"subnet": "10.77.0.0/24"}], [{"subnet": "10.78.0.0/24"}], [{"subnet": "fd77::/64"}]],
    "part": [[{"subnet": "10.77.0.0/16", "rangeStart": "10.77.3.4", "gateway": "10.77.9.9"}]],
}
_ROUTES: Mapping[str, Sequence[Mapping[str, Any]]] = {
    "none": [],
    "plain": [{"dst": "192.0.2.0/24"}],
    "via": [{"dst": "198.51.100.0/24", "gw": "10.77.0.1"}],
    "metric": [{"dst": "203.0.113.0/24", "priority": 77}],
    "table": [{"dst": "203.0.113.0/24", "table": 99}],
    "scope": [{"dst": "203.0.113.0/24", "scope": 253}],
}
_STATIC = {
    "one": [{"address": "10.77.0.9/24", "gateway": "10.77.0.1"}],
    "bare": [{"address": "10.77.0.9/24"}],
    "dual": [
        {"address": "10.77.0.9/24", "gateway": "10.77.0.1"},
        {"address": "fd77::9/64", "gateway": "fd77::1"},
    ],
}
_BRIDGE_FLAGS: Sequence[Mapping[str, Any]] = (
    {}, {"isGateway": True}, {"isDefaultGateway": True}, {"isDefaultGateway": True, "mtu": 1400},
    {"hairpinMode": True}, {"promiscMode": True}, {"portIsolation": True},
    {"isGateway": True, "forceAddress": True}, {"mtu": 1300},
    {"isDefaultGateway": True, "hairpinMode": True, "portIsolation": True},
    {"dns": {"nameservers": ["192.0.2.53"], "search": ["x.example"]}},
    {"runtimeConfig": {"mac": "02:11:22:33:44:55"}}, {"macspoofchk": True},
    {"isDefaultGateway": True, "ipMasq": True}, {"isGateway": True, "macspoofchk": True},
)  # fmt: skip
_TUNED: Sequence[Mapping[str, Any]] = (
    {"mtu": 1380}, {"promisc": True}, {"allmulti": True}, {"txQLen": 77},
    {"mac": "02:11:22:33:44:55"},
    {"sysctl": {"net.ipv4.conf.IFNAME.arp_notify": "1"}, "mtu": 1300}, {"mtu": 99999999},
    {"sysctl": {"net.ipv6.conf.eth0.keep_addr_on_down": "1"}}, {"sysctl": {"kernel.x": "1"}},
)  # fmt: skip
HOST_PORT, CONTAINER_PORT = 8080, 80


def _host_local(drawn: random.Random) -> dict[str, Any]:
    ipam: dict[str, Any] = {"type": "host-local", "ranges": _RANGES[drawn.choice([*_RANGES])]}
    routes = _ROUTES[drawn.choice([*_ROUTES])]
    return {**ipam, "routes": routes} if routes else ipam


def _static(drawn: random.Random) -> dict[str, Any]:
    ipam: dict[str, Any] = {"type": "static", "addresses": _STATIC[drawn.choice([*_STATIC])]}
    routes = _ROUTES[drawn.choice([*_ROUTES])]
    return {**ipam, "routes": routes} if routes else ipam


def _bridge(drawn: random.Random) -> dict[str, Any]:
    config: dict[str, Any] = {"type": "bridge", **drawn.choice(_BRIDGE_FLAGS)}
    kind = drawn.choice(["host-local", "host-local", "static", "none"])
    if kind != "none":
        config["ipam"] = _host_local(drawn) if kind == "host-local" else _static(drawn)
    is_gateway = config.get("isGateway") or config.get("isDefaultGateway")
    if is_gateway and config.get("ipam", {}).get("ranges") == _RANGES["sets"]:
        # The reference takes its second gateway of a family for a stranger's, and refuses.
        config["ipam"]["ranges"] = _RANGES["dual"]
    return config


def _ptp(drawn: random.Random) -> dict[str, Any]:
    config: dict[str, Any] = {"type": "ptp", "ipam": _host_local(drawn)}
    if drawn.random() < 0.3:
        config["mtu"] = 1400
    if drawn.random() < 0.3:
        config["ipMasq"] = True
    if drawn.random() < 0.2:
        config["dns"] = {"nameservers": ["192.0.2.53"]}
    return config


def _tuned(drawn: random.Random) -> dict[str, Any]:
    tuning = {"type": "tuning", **drawn.choice(_TUNED)}
    return {**drawn.choice([_bridge, _ptp])(drawn), THEN: [tuning]}


def _published(drawn: random.Random) -> dict[str, Any]:
    ipam = {"type": "host-local", "ranges": _RANGES[drawn.choice(["v4", "dual"])]}
    flags = {"isDefaultGateway": True, "ipMasq": drawn.random() < 0.5}
    return {"type": "bridge", **flags, "ipam": ipam, THEN: [_PORTMAP]}


THEN = "then"
"""Key of a case for the plugins that a runtime calls next; taken out before anybody sees it."""

_PORTMAP = {
    "type": "portmap", "snat": True, "capabilities": {"portMappings": True},
    "runtimeConfig": {"portMappings": [
        {"hostPort": HOST_PORT, "containerPort": CONTAINER_PORT, "protocol": "tcp"}
    ]},
}  # fmt: skip

_WRITTEN: Sequence[Mapping[str, Any]] = (
    {"type": "loopback"},
    {"type": "bridge", "vlan": 4095},
    {"type": "bridge", "hairpinMode": True, "promiscMode": True},
    {"type": "bridge", "disableContainerInterface": True},
    {"type": "bridge", "disableContainerInterface": True, "ipam": {"type": "static"}},
    {"type": "bridge", "ipam": {"type": "static"}},
    {"type": "bridge", "ipam": {"type": "host-local"}},
    {"type": "bridge", "ipam": {"type": "host-local", "subnet": "10.77.0.0/31"}},
    {"type": "bridge", "ipam": {"type": "host-local", "subnet": "10.77.0.1/24"}},
    {"type": "bridge", "ISGATEWAY": True, "ipam": {"TYPE": "host-local", "Subnet": "10.77.0.0/24"}},
    {"type": "bridge", "ipMasqBackend": "none"},
    {"type": "bridge", "ipMasq": True, "ipMasqBackend": "none"},
    {"type": "bridge", "isGateway": True, "ipMasq": True, "ipMasqBackend": "nftables",
     "ipam": {"type": "host-local", "subnet": "10.77.0.0/24"}},
    {"type": "bridge", "enabledad": True, "ipam": {"type": "static", "addresses": _STATIC["one"]}},
    {"type": "ptp"},
    {"type": "ptp", "ipam": {"type": "static", "addresses": _STATIC["dual"]}},
    {"type": "host-local", "ipam": {"type": "host-local", "subnet": "10.77.0.0/24"}},
    {"type": "static", "ipam": {"type": "static", "addresses": _STATIC["dual"]}},
    {"type": "static", "ipam": {"type": "static", "addresses": [{"address": "10.0.0.1"}]}},
    {"type": "bridge", "isDefaultGateway": True, THEN: [_PORTMAP],
     "ipam": {"type": "host-local", "subnet": "10.77.0.0/24"}},
    {"type": "ptp", "ipMasq": True, THEN: [{"type": "tuning", "mtu": 1380}],
     "ipam": {"type": "host-local", "subnet": "10.77.0.0/24"}},
)  # fmt: skip

_MAC = "02:11:22:33:44:55"
_V6 = {"type": "static", "addresses": [{"address": "fd77::9/64"}]}
_CHAINED = {
    "cniVersion": "1.0.0", "interfaces": [{"name": "up0"}], "ips": _STATIC["one"],
    "routes": [{"dst": "192.0.2.0/24"}],
}  # fmt: skip

LINKS: Mapping[str, Sequence[Mapping[str, Any]]] = {
    "tap": (
        {}, {"multiQueue": True}, {"owner": 1, "group": 2}, {"owner": 7, "mac": _MAC},
        {"owner": 1, "group": 2, "multiQueue": True, "mtu": 1400}, {"mac": _MAC, "mtu": 1400},
        {"runtimeConfig": {"mac": _MAC}, "mac": "02:00:00:00:00:01", "ipam": "host-local"},
        {"selinuxContext": "system_u:object_r:t:s0", "group": 3, "multiQueue": True},
        {"bridge": "br0"}, {"bridge": "none"}, {"mac": "x"}, {"owner": -1}, {"ipam": _V6},
    ),
    "host-device": (
        {"device": "hd0"}, {"hwaddr": "02:00:00:00:00:78"}, {"device": "hd0", "hwaddr": "x"},
        {"device": "hd0", "ipam": "host-local", "dns": {"nameservers": ["192.0.2.53"]}},
        {"device": "hd0", "dns": {"nameservers": ["192.0.2.53"]}}, {"device": "hd0", "ipam": _V6},
        {}, {"device": "none"}, {"hwaddr": "x"}, {"hwaddr": "02:00:00:00:00:01"},
        {"kernelpath": "/tmp"}, {"kernelpath": "/sys/devices/none"}, {"pciBusID": "0000:ff:1f.7"},
        {"device": "hd0", "pciBusID": "0000:ff:1f.7"}, {"runtimeConfig": {"deviceID": "none"}},
        {"device": "hd0", "ipam": {"type": "static"}},
    ),
    "dummy": ({"ipam": "host-local"}, {"ipam": _V6}),
    "vlan": (
        {"master": "up0", "vlanId": 5}, {"master": "up0", "mtu": 1400, "ipam": "host-local"},
        {"master": "br0", "vlanId": 7, "linkInContainer": True},
    ),
    "ipvlan": (
        {"ipam": "host-local"}, {"master": "up0", "mode": "l3", "mtu": 1400, "ipam": _V6},
        {"mode": "l3s", "prevResult": _CHAINED},
        {"master": "br0", "linkInContainer": True, "ipam": "host-local"},
    ),
}  # fmt: skip
"""Configurations of plugins that make or move links, by type; see ``support.cnilinks``."""


def cases(count: int, seed: int = 6) -> Iterator[dict[str, Any]]:
    """Yield configurations: those written down, then ``count`` drawn ones."""
    drawn = random.Random(seed)
    for document in _WRITTEN:
        yield {"cniVersion": "1.0.0", "name": "dnet", **document}
    for _ in range(count):
        make = drawn.choice([_bridge] * 5 + [_ptp] * 3 + [_tuned] * 2 + [_published])
        yield {"cniVersion": drawn.choice(_VERSIONS), "name": "dnet", **make(drawn)}


def label(config: Mapping[str, Any]) -> str:
    """Return a short name for a test's report."""
    ipam = config.get("ipam", {}).get("type", config.get("ipam", {}).get("TYPE", ""))
    skipped = {"cniVersion", "name", "type", "ipam", THEN}
    flags = "+".join(key for key in config if key not in skipped)
    flags += "".join(f"+{each['type']}" for each in config.get(THEN, []))
    return "-".join(filter(None, (config["type"], config["cniVersion"], ipam, flags)))


_NEEDS_IPAM = "its CHECK of a bridge wants an IPAM plugin, be none configured"

NOT_IN_DEBIAN: Mapping[str, str] = {
    "bridge-1.0.0-disableContainerInterface": "the key came later, with release 1.3",
    "bridge-1.0.0-ipMasqBackend": _NEEDS_IPAM,
    "bridge-1.0.0-ipMasq+ipMasqBackend": _NEEDS_IPAM,
    "bridge-1.0.0-host-local-isDefaultGateway+portmap":
        "its CHECK of published ports looks for rules of IPv6, be there no address of it",
}  # fmt: skip
"""Cases in which release 1.1.1 differs from ours and from later ones, and why."""
