"""Requests that are wrong in some place, for every type served: what the fuzz sends.

Most name a container that is not there, so that nothing can come of them. ``live`` ones name a
real one beside a real node: what is not refused is carried out, and must go again.
"""

import json
import random
from collections.abc import Mapping, Sequence
from typing import Any

from bitts.cni.environment import Command
from cni_daemon import protocol, requests
from cni_daemon.names import CHAIN_TYPE

VALUES = ["", "x", "../..", "a" * 300, "eth0", "/run/netns/none", "\u2028", "0", "-1", "{}", "null"]
NUMBERS = [-1, 1.5, 65536, 2**31, 2**32, 2**32 - 1, 2**63 - 1, 2**63, 2**64, -(2**31), -(2**63)]
PIECES: list[object] = [
    None, True, 0, -1, 1e300, 2**70, "", "bridge", "host-local", "1.0.0", "1.1.0", [], {}, [[]],
    [{}], {"type": "host-local"}, {"type": "static", "addresses": [{}]}, "10.0.0.0/8", "::1/0",
    [[{"subnet": "10.0.0.0/24", "rangeStart": "x"}]], {"ips": [{"address": "1"}]}, "\x00",
    [None], [1], ["\u2028"], {"x": {}}, *NUMBERS,
]  # fmt: skip
KEYS = [
    "cniVersion", "name", "type", "ipam", "prevResult", "args", "ranges", "subnet", "addresses",
    "plugins", "capabilities", "dns", "routes", "runtimeConfig", "cni.dev/valid-attachments",
    "NAME",
]  # fmt: skip

_MAC = ["02:11:22:33:44:55", "02:11", "02:11:22:33:44:5g", "0211.2233.4455", "ff:ff:ff:ff:ff:ff"]
_MTU = [0, 68, 1280, 1400, 9000, 65535, 65536]
_FLAG = [True, False]
_ROUTES = [[{"dst": "192.0.2.0/24"}], [{"dst": "::/0", "gw": "10.77.0.1"}], [{"dst": "x"}], [{}],
           [{"dst": "192.0.2.0/24", "gw": "10.77.0.1", "mtu": 2**33, "table": -1}]]  # fmt: skip
_IPAM: Sequence[Mapping[str, Any]] = [
    {"type": "host-local", "subnet": "10.77.0.0/24"}, {"type": "host-local", "subnet": "fd77::/64"},
    {"type": "host-local", "ranges": [[{"subnet": "10.77.0.0/30"}], [{"subnet": "fd77::/126"}]]},
    {"type": "static", "addresses": [{"address": "10.77.0.9/24", "gateway": "10.77.0.1"}]},
    {"type": "static", "addresses": [{"address": "fd77::9/64"}], "routes": [{"dst": "::/0"}]},
    {}, {"type": "none"},
]  # fmt: skip
_DNS = [{"nameservers": ["192.0.2.53"]}, {"nameservers": [1]}, {"domain": [], "search": "x"}]
_MADE: Mapping[str, Sequence[object]] = {"mtu": _MTU, "ipam": _IPAM, "dns": _DNS, "mac": _MAC}
_UPON: Mapping[str, Sequence[object]] = {
    "master": ["up0", "none", "lo", "a" * 16, "a/b"],
    "linkInContainer": _FLAG,
    **_MADE,
}
_PORTS = [[{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}],
          [{"HostPort": 70000, "ContainerPort": 80, "Protocol": "TCP", "HostIP": "x"}],
          [{"hostPort": 53, "containerPort": 53, "protocol": "udp", "hostIP": "127.0.0.1"}],
          [{"hostPort": 0, "containerPort": -1, "protocol": ""}], [{}], [1]]  # fmt: skip
_RATES = [0, 1, 8, 1000, 10**9, 2**64 - 1]

OWN: Mapping[str, Mapping[str, Sequence[object]]] = {
    "bridge": {
        "bridge": ["cni0", "br-\u00e9", "a" * 16, "a/b", "up0", ""], "isGateway": _FLAG,
        "isDefaultGateway": _FLAG, "forceAddress": _FLAG, "ipMasq": _FLAG,
        "ipMasqBackend": ["nftables", "iptables", "x"], "hairpinMode": _FLAG, "promiscMode": _FLAG,
        "vlan": [1, 4094, 4095], "vlanTrunk": [[{"id": 5}], [{"minID": 9, "maxID": 2}], [{}]],
        "preserveDefaultVlan": _FLAG, "macspoofchk": _FLAG, "enabledad": _FLAG,
        "disableContainerInterface": _FLAG, "portIsolation": _FLAG, **_MADE,
    },
    "ptp": {"ipMasq": _FLAG, "ipMasqBackend": ["nftables", "x"], **_MADE},
    "loopback": {},
    "dummy": _MADE,
    "macvlan": {"mode": ["", "bridge", "passthru", "x"], "bcqueuelen": [0, 1000], **_UPON},
    "ipvlan": {"mode": ["l2", "l3", "l3s", "x"], **_UPON},
    "vlan": {"vlanId": [0, 5, 4094, 4095], **_UPON},
    "tap": {
        "multiQueue": _FLAG, "owner": [0, 1, 65534], "group": [0, 2], "selinuxContext": ["a:b:c"],
        "bridge": ["none", "eth0"], **_MADE,
    },
    "host-device": {
        "device": ["hd0", "none", "lo", "a/b"], "hwaddr": _MAC, "kernelpath": ["/sys/devices/none"],
        "pciBusID": ["0000:ff:1f.7", "../.."], "useInterfaceNetwork": _FLAG, **_MADE,
    },
    "vrf": {"vrfname": ["blue", "a" * 16, "a/b", "eth0"], "table": [0, 7, 254, 2**32 - 1]},
    "portmap": {
        "snat": _FLAG, "masqAll": _FLAG, "markMasqBit": [0, 31, 32], "backend": ["nftables", "x"],
        "externalSetMarkChain": ["x"], "conditionsV4": [["-s", "10.0.0.0/8"], ["!"], ["a;b"]],
        "conditionsV6": [["ip6", "saddr", "fd00::/8"]], "runtimeConfig": [],
    },
    "firewall": {
        "backend": ["iptables", "firewalld", "x"], "iptablesAdminChainName": ["CNI-X", "a b", ""],
        "ingressPolicy": ["open", "same-bridge", "isolated", "x"], "firewalldZone": ["x"],
    },
    "bandwidth": dict.fromkeys(
        ("ingressRate", "ingressBurst", "egressRate", "egressBurst"), _RATES
    ),
    "sbr": {
        "table": [0, 100, 254, 2**32 - 1], "gateways": [["10.77.0.1"], ["x"], ["::1", "fd00::1"]],
        "addSourceHints": _FLAG,
    },
    "tuning": {
        "sysctl": [{"net.ipv4.conf.IFNAME.arp_notify": "1"}, {"kernel.x": "1"}, {"net/../x": "1"},
                   {"net.ipv4.conf.eth0.arp_notify": "x"}, {"net.none": "1"}, {"": ""}],
        "mac": _MAC, "mtu": _MTU, "promisc": _FLAG, "allmulti": _FLAG, "txQLen": [0, 1000],
    },
    "route-override": {
        "flushroutes": _FLAG, "flushgateway": _FLAG, "skipcheck": _FLAG, "delroutes": _ROUTES,
        "addroutes": _ROUTES, "addecmproutes": [[], [{}]],
    },
    "host-local": {"ipam": _IPAM}, "static": {"ipam": _IPAM}, "dhcp": {"ipam": [{"type": "dhcp"}]},
}  # fmt: skip
"""Each type's own keys with values of the right kind, some of them of no use."""

IPAM_KEYS: Mapping[str, Sequence[object]] = {
    "ranges": [[[{"subnet": "10.77.0.0/24", "rangeStart": "10.78.0.1"}]], [[]], [[{}]]],
    "subnet": ["10.77.0.0/33", "10.77.0.0/31", "::/0", "0.0.0.0/0"], "routes": _ROUTES,
    "rangeStart": ["10.77.0.9", "fd77::1"], "rangeEnd": ["10.77.0.2"], "gateway": ["::1", "x"],
    "resolvConf": ["/dev/zero", "/etc", "/none", "/etc/resolv.conf"],
    "addresses": [[{"address": "10.77.0.9"}], [{"address": "::1/129", "gateway": "x"}]],
    "request": [[{"option": "x"}], [{"skipDefault": True, "option": "300"}]],
    "provide": [[{"option": "host-name", "value": "x" * 300}], [{"option": "-1"}], [{}]],
    "daemonSocketPath": ["/none"], "priority": [1],
}  # fmt: skip
RUNTIME: Mapping[str, Sequence[object]] = {
    "portMappings": _PORTS, "mac": _MAC, "ips": [["10.77.0.9/24"], ["x"], [""]],
    "ipRanges": [[[{"subnet": "10.77.0.0/24"}]], [[{}]]], "dns": _DNS, "deviceID": ["none"],
    "bandwidth": [dict.fromkeys(OWN["bandwidth"], 1000), {"ingressRate": 2**64}],
}  # fmt: skip
CHAINED = frozenset(
    {"portmap", "firewall", "bandwidth", "sbr", "tuning", "vrf", "route-override"}
)  # fmt: skip


def _drawn(
    drawn: random.Random, keys: Mapping[str, Sequence[object]], wrong: float
) -> dict[str, Any]:
    """Return some keys with values of theirs, a share of them of any kind."""
    share = (1 + 5 * wrong) / (len(keys) + 1)
    chosen = [key for key in keys if drawn.random() < share]
    return {
        key: drawn.choice(PIECES if drawn.random() < wrong or not keys[key] else keys[key])
        for key in chosen
    }


def _previous(pod: str) -> dict[str, Any]:
    return {
        "cniVersion": "1.0.0", "interfaces": [{"name": "cni0"}, {"name": "eth0", "sandbox": pod}],
        "ips": [{"address": "10.66.0.2/24", "gateway": "10.66.0.1", "interface": 1}],
        "routes": [{"dst": "0.0.0.0/0"}],
    }  # fmt: skip


def document(drawn: random.Random, kind: str, pod: str, *, wrong: float = 0.3) -> dict[str, Any]:
    """Return a configuration of one type; ``wrong`` is the share of values of a wrong kind."""
    made: dict[str, Any] = {
        "cniVersion": drawn.choice(["1.0.0", "1.1.0"]),
        "name": "fuzz",
        "type": kind,
    }
    made |= _drawn(drawn, OWN.get(kind, {}), wrong)
    if "ipam" not in made and "ipam" in OWN.get(kind, {}):
        made["ipam"] = drawn.choice(_IPAM)
    if isinstance(made.get("ipam"), dict) and drawn.random() < wrong:
        made["ipam"] = {**made["ipam"], **_drawn(drawn, IPAM_KEYS, wrong)}
    if drawn.random() < 2 * wrong:
        made["runtimeConfig"] = _drawn(drawn, RUNTIME, wrong)
    if kind in CHAINED and drawn.random() < 0.9:
        made["prevResult"] = _previous(pod)
    if drawn.random() < wrong:
        made[drawn.choice(KEYS)] = drawn.choice(PIECES)
    if kind == CHAIN_TYPE:
        inner = drawn.sample([*OWN], drawn.randrange(1, 4))
        made["plugins"] = [document(drawn, each, pod, wrong=wrong) for each in inner]
    return made


def text(drawn: random.Random, kind: str) -> bytes:
    """Return a configuration as bytes, some of which are no JSON."""
    found = json.dumps(document(drawn, kind, "/run/netns/none")).encode()
    if drawn.random() < 0.2:
        cut = drawn.randrange(len(found))
        found = found[:cut] + drawn.randbytes(drawn.randrange(4)) + found[cut + 1 :]
    return found


def request(drawn: random.Random) -> bytes:
    """Return a request that must be refused, or carried out without touching anything."""
    if drawn.random() < 0.1:
        return drawn.randbytes(drawn.randrange(24, 200))
    environ = {
        "CNI_COMMAND": drawn.choice([*Command, "x", ""]),
        "CNI_CONTAINERID": drawn.choice(["c1", *VALUES]),
        "CNI_NETNS": drawn.choice(["/run/netns/none", "/etc/passwd", "", "\udcff", "/"]),
        "CNI_IFNAME": drawn.choice(["eth0", *VALUES]),
        "CNI_PATH": drawn.choice(["/none", "", ":::"]),
        "CNI_ARGS": drawn.choice(["", "IP=1", "a=b;c", "IgnoreUnknown=1;X=\u00e9", ";;"]),
    }
    kind = drawn.choice([*requests.served_types(), "x", "../y"])
    return _framed(drawn, kind, environ, text(drawn, kind))


def _framed(drawn: random.Random, kind: str, environ: Mapping[str, str], stdin: bytes) -> bytes:
    frame = protocol.encode(protocol.Frame("00" * 16, kind, environ, stdin))
    if drawn.random() < 0.1:
        at = drawn.randrange(protocol.HEADER.size, len(frame))
        frame = frame[:at] + bytes([drawn.randrange(256)]) + frame[at + 1 :]
    return frame


def live(drawn: random.Random, pod: str, folder: str) -> dict[str, Any]:
    """Return a configuration that has a good chance of being carried out in a real container.

    Addresses are kept in ``folder``. No DHCP: nobody there would answer; and no IPAM plugin that
    is missing: what it may have given cannot be given back.
    """
    kind = drawn.choice([*OWN, CHAIN_TYPE])
    made = document(drawn, kind, pod, wrong=0.1)
    inner = made.get("plugins")
    for each in [made, *(inner if isinstance(inner, list) else [])]:
        if isinstance(each, dict):
            _settle(each, kind if each is made else each.get("type"), folder)
    return made


def _settle(config: dict[str, Any], kind: object, folder: str) -> None:
    config["type"] = kind
    ipam = config.get("ipam")
    if isinstance(ipam, dict):
        config["ipam"] = {**ipam, "dataDir": folder}
    told = ipam.get("type") if isinstance(ipam, dict) else ""
    if kind == "dhcp" or told not in ("host-local", "static", "", None):
        config["ipam"] = {"type": "static"}
