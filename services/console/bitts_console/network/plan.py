"""What the network demo asks for, and whether what it sees is right. Pure."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bitts_console.verify import Verdict

NETWORK = "bitts-demo"
SUBNET = "10.88.7.0/24"
PORT, HOST_PORT = 80, 8080
RATE = 100_000_000
"""Bits per second that the container with a limit may receive."""

BURST = 8_000_000
"""Bits that may come at once."""

SIZE = 6_000_000
"""Bytes of a measured transfer."""

SLACK = 1.5
"""By how much a measured rate may be above the limit: a burst comes first, and clocks differ."""

TRY_AGAIN_LATER = 11
"""CNI's error code of the same name (specification, section 5)."""


@dataclass(frozen=True, slots=True)
class Fetched:
    """Who answered, with how many bytes, in how many seconds."""

    server: str
    size: int
    seconds: float

    @property
    def rate(self) -> float:
        """Bits per second."""
        return self.size * 8 / self.seconds


def configuration(addresses: str, runtime: Mapping[str, object]) -> dict[str, object]:
    """Return the network configuration of one call; ``addresses`` is host-local's folder."""
    abilities = dict.fromkeys(runtime, True)
    ipam = {"type": "host-local", "dataDir": addresses, "ranges": [[{"subnet": SUBNET}]]}
    return {
        "cniVersion": "1.1.0",
        "name": NETWORK,
        "type": "bitts",
        "capabilities": abilities,
        "plugins": [
            {"type": "bridge", "bridge": "bitts-demo0", "isDefaultGateway": True, "ipam": ipam},
            {"type": "portmap", "capabilities": {"portMappings": True}},
            {"type": "bandwidth", "capabilities": {"bandwidth": True}},
            {"type": "loopback"},
        ],
        "runtimeConfig": dict(runtime),
    }


def published() -> dict[str, object]:
    """Return what the runtime asks for the container that publishes a port and has a limit."""
    mapping = {"hostPort": HOST_PORT, "containerPort": PORT, "protocol": "tcp"}
    limit = {"ingressRate": RATE, "ingressBurst": BURST, "egressRate": 0, "egressBurst": 0}
    return {"portMappings": [mapping], "bandwidth": limit}


def address(result: Mapping[str, Any]) -> str:
    """Return the first address of a result, without its prefix length."""
    return str(result["ips"][0]["address"]).partition("/")[0]


def port_mapping(found: Fetched, expected: str) -> Verdict:
    """Judge who answered on the published port."""
    text = f"the node's port {HOST_PORT} was answered by {found.server!r}"
    return Verdict("port mapping", text, ok=found.server == expected)


def bandwidth(limited: Fetched, free: Fetched) -> Verdict:
    """Judge the rate into the container with a limit, beside the other direction."""
    limit = RATE / 1e6
    text = (
        f"{limited.rate / 1e6:.0f} Mbit/s into the container with a limit of {limit:.0f}, "
        f"{free.rate / 1e6:.0f} out of it"
    )
    whole = limited.size == free.size == SIZE
    return Verdict("bandwidth", text, ok=whole and limited.rate < RATE * SLACK < free.rate)


def refused(code: object) -> Verdict:
    """Judge the answer to an ADD while there is no daemon."""
    text = f"without the daemon an ADD is answered with code {code}"
    return Verdict("daemon away", text, ok=code == TRY_AGAIN_LATER)


def traces(
    links: Sequence[Mapping[str, Any]], ruleset: Mapping[str, Any], files: Sequence[str]
) -> Verdict:
    """Judge what ``ip -j link``, ``nft -j list ruleset`` and the state folders still show.

    The bridge and the rules that lead to the (empty) maps serve the node and stay.
    """
    found = [f"link {one['ifname']}" for one in links if _is_ours(one)]
    for entry in ruleset.get("nftables", []):
        for kind in ("set", "map"):
            found += [f"{kind} element {e}" for e in entry.get(kind, {}).get("elem", [])]
    found += [f"file {name}" for name in files]
    text = "; ".join(found) or "no link, no set element, no address, no open request"
    return Verdict("left over", text, ok=not found)


def _is_ours(link: Mapping[str, Any]) -> bool:
    return bool(link.get("ifalias")) or re.match("veth", str(link["ifname"])) is not None
