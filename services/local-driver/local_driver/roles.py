"""The flags of a driver that serves several nodes: its role, its peers, its certificates.

Read without loading anything heavy, as all options are.
"""

import enum
from dataclasses import dataclass

from bitts.core.flags import FlagError, FlagSet, FlagValues
from bitts.rpc import addresses

NODE_PLACE = "{node}"
"""What a node's name is put in place of, in templates."""


class Role(enum.StrEnum):
    """What a process does of a driver's work."""

    ALL = "all"
    """Everything for its own node, on one socket."""
    CONTROLLER = "controller"
    """The controller's half for every node; it has no volumes itself."""
    NODE = "node"
    """The node's half, and its own volumes as the controller wants them."""


@dataclass(frozen=True, slots=True)
class LinkOptions:
    """The way between controller and nodes. Certificates are paths of PEM files.

    ``listen`` is where a node waits for the controller. ``node_name`` is the DNS name in a
    node's certificate, with ``{node}`` for the node; ``controller_name`` that of the controller.
    """

    listen: tuple[str, int]
    certificate: str
    key: str
    authority: str
    node_name: str
    controller_name: str

    def name_of(self, node: str) -> str:
        """Return the name that a node's certificate must carry."""
        return self.node_name.replace(NODE_PLACE, node)


@dataclass(frozen=True, slots=True)
class NodesOptions:
    """Which nodes the controller serves: a list, a file of them, how to find their addresses."""

    listed: str
    file: str
    address_template: str


@dataclass(frozen=True, slots=True)
class RoleOptions:
    """The role, and what belongs to it."""

    role: Role
    link: LinkOptions
    nodes: NodesOptions


class RoleFlags:
    """The flags about several nodes."""

    def __init__(self, flags: FlagSet) -> None:
        self._role = flags.choice(
            "role",
            tuple(Role),
            Role.ALL,
            "all: serve this node by itself; node: have a controller make its volumes; "
            "controller: serve one set of sidecars for all nodes",
        )
        self._listen = flags.string(
            "listen", "", "host:port at which a node waits for the controller, such as :9809"
        )
        self._certificate = flags.string("tls-cert", "", "own certificate, a PEM file")
        self._key = flags.string("tls-key", "", "its key, a PEM file")
        self._authority = flags.string(
            "tls-ca", "", "certificate of the authority that signs controller and nodes, a PEM file"
        )
        self._node_name = flags.string(
            "tls-node-name",
            "",
            "DNS name that a node's certificate must carry; empty: {node}.nodes.<driver's name>",
        )
        self._controller_name = flags.string(
            "tls-controller-name",
            "",
            "DNS name that the controller's certificate must carry; empty: "
            "controller.<driver's name>",
        )
        self._nodes = flags.string(
            "nodes", "", "nodes that the controller serves: name=host:port, separated by commas"
        )
        self._nodes_file = flags.string(
            "nodes-file", "", "file with such nodes, one a line; read again when it changes"
        )
        self._template = flags.string(
            "node-address-template",
            "",
            "address of nodes that are listed by name alone, such as {node}.example.net:9809",
        )

    def options(self, values: FlagValues, driver_name: str) -> RoleOptions:
        """Check and group the values; raises FlagError naming the flag."""
        role = Role(values[self._role])
        listed = bool(values[self._nodes] or values[self._nodes_file])
        given = {
            "listen": bool(values[self._listen]),
            "tls-cert": bool(values[self._certificate]),
            "tls-key": bool(values[self._key]),
            "tls-ca": bool(values[self._authority]),
            "nodes or --nodes-file": listed,
        }
        for flag, is_given in given.items():
            _check(role, flag, is_given=is_given)
        node_name = values[self._node_name] or f"{NODE_PLACE}.nodes.{driver_name}"
        template = values[self._template]
        for flag, text in (("tls-node-name", node_name), ("node-address-template", template)):
            if text and NODE_PLACE not in text:
                raise FlagError(f"--{flag} {text!r} needs {NODE_PLACE} for the node's name", 1)
        link = LinkOptions(
            listen=_address("listen", values[self._listen]),
            certificate=values[self._certificate],
            key=values[self._key],
            authority=values[self._authority],
            node_name=node_name,
            controller_name=values[self._controller_name] or f"controller.{driver_name}",
        )
        if template:
            _address("node-address-template", template.replace(NODE_PLACE, "node"))
        nodes = NodesOptions(values[self._nodes], values[self._nodes_file], template)
        return RoleOptions(role, link, nodes)


_NEEDED = {
    Role.ALL: frozenset[str](),
    Role.NODE: frozenset({"listen", "tls-cert", "tls-key", "tls-ca"}),
    Role.CONTROLLER: frozenset({"tls-cert", "tls-key", "tls-ca", "nodes or --nodes-file"}),
}


def _check(role: Role, flag: str, *, is_given: bool) -> None:
    """Refuse a flag that its role lacks, or has no use for."""
    if is_given and flag not in _NEEDED[role]:
        fitting = " or ".join(f"--role={other}" for other in Role if flag in _NEEDED[other])
        raise FlagError(f"--{flag} is not for --role={role}: it goes with {fitting}", 1)
    if not is_given and flag in _NEEDED[role]:
        raise FlagError(f"--role={role} needs --{flag}", 1)


def _address(flag: str, text: str) -> tuple[str, int]:
    if not text:
        return "", 0
    try:
        return addresses.split_host_port(text)
    except ValueError as error:
        raise FlagError(f"--{flag}: {error}", 1) from None
