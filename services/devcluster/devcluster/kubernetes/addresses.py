"""Names and addresses inside a cluster. Pure.

None of them is visible outside: the nodes' network is a namespace of its own, joined to the
machine by nothing but two forwarders in our process. So they are the same in every cluster.
"""

import ipaddress
from dataclasses import dataclass

NODES = ipaddress.ip_network("172.31.0.0/24")
PODS = ipaddress.ip_network("10.244.0.0/16")
SERVICES = ipaddress.ip_network("10.96.0.0/16")
GATEWAY = str(NODES[1])
"""The bridge, where the API server seems to listen as the nodes see it."""
API_SERVICE = str(SERVICES[1])
DNS_SERVICE = str(SERVICES[10])
"""Told to pods as their name server; nobody answers there unless a DNS server is installed."""
BRIDGE = "bitts0"
MOST_NODES = 32


@dataclass(frozen=True, slots=True)
class Node:
    """One node: ``number`` counts from 1, ``pods`` is the subnet of its pods."""

    number: int

    @property
    def name(self) -> str:
        """The Node object's name and the host name."""
        return f"node-{self.number}"

    @property
    def address(self) -> str:
        """The node's address on the bridge."""
        return str(NODES[10 + self.number])

    @property
    def pods(self) -> str:
        """The subnet of the node's pods."""
        return str(list(PODS.subnets(new_prefix=24))[self.number])

    @property
    def port(self) -> str:
        """The bridge's end of the node's link."""
        return f"port-{self.number}"


def nodes(count: int) -> list[Node]:
    """Return the nodes of a cluster. Raises ValueError for more than ``MOST_NODES``."""
    if count > MOST_NODES:
        raise ValueError(f"--nodes: at most {MOST_NODES}, not {count}")
    return [Node(number) for number in range(1, count + 1)]


def bridge_commands() -> list[str]:
    """Return what ``ip -batch`` makes the nodes' network from, in its empty namespace."""
    return [
        "link set lo up",
        f"link add {BRIDGE} type bridge forward_delay 0",
        f"addr add {GATEWAY}/{NODES.prefixlen} dev {BRIDGE}",
        f"link set {BRIDGE} up",
    ]


def plug_commands(node: Node, pid: int) -> list[str]:
    """Return what joins a node, whose process is ``pid``, to the bridge; run beside the bridge."""
    return [
        f"link add {node.port} type veth peer name eth0 netns {pid}",
        f"link set {node.port} master {BRIDGE}",
        f"link set {node.port} up",
        f"route replace {node.pods} via {node.address}",
    ]


def unplug_commands(node: Node) -> list[str]:
    """Return what takes the link of an earlier life of the node away, if it is still there."""
    return [f"link delete {node.port}"]


def node_commands(node: Node, others: list[Node]) -> list[str]:
    """Return what a node's own namespace needs: its address and the way to everybody's pods."""
    routes = [f"route add {other.pods} via {other.address}" for other in others if other != node]
    return [
        "link set lo up",
        f"addr add {node.address}/{NODES.prefixlen} dev eth0",
        "link set eth0 up",
        f"route add default via {GATEWAY}",
        *routes,
    ]
