"""The nodes that a controller serves, as its operator lists them, and as a file has them now."""

import os
import pathlib
import re
from collections.abc import Iterable, Mapping

from bitts.core import logs
from bitts.rpc import addresses

from local_driver import names, places, roles
from local_driver.roles import NodesOptions

Address = tuple[str, int]

_NODE = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_log = logs.get("nodes")


def parse(text: str, template: str) -> dict[str, Address]:
    """Return addresses by node: ``name=host:port``, or a name alone for a ``template``.

    Nodes are separated by commas and line ends; ``#`` begins a remark. Raises ValueError that
    quotes the entry. Pure.
    """
    found: dict[str, Address] = {}
    for line in text.splitlines():
        for entry in line.partition("#")[0].split(","):
            if not entry.strip():
                continue
            node, address = _entry(entry.strip(), template)
            if found.get(node, address) != address:
                raise ValueError(f"node {node!r} has two addresses: keep one")
            found[node] = address
    _check_digests(found)
    return found


def _check_digests(nodes: Iterable[str]) -> None:
    by_place: dict[str, str] = {}
    for node in nodes:
        other = by_place.setdefault(places.of_node(node), node)
        if other != node:
            raise ValueError(f"nodes {other!r} and {node!r} share their digest: rename one")


def _entry(entry: str, template: str) -> tuple[str, Address]:
    node, equals, address = entry.partition("=")
    if len(node) > names.SEGMENT_LIMIT or not _NODE.fullmatch(node):
        raise ValueError(f"{entry!r}: {node!r} is no node's name: write name=host:port")
    if not equals:
        if not template:
            raise ValueError(
                f"{entry!r} has no address: write name=host:port, or give --node-address-template"
            )
        address = template.replace(roles.NODE_PLACE, node)
    host, port = addresses.split_host_port(address)
    if not host or not port:
        raise ValueError(f"{entry!r}: the address needs both a host and a port")
    return node, (host, port)


class Roster:
    """The nodes by the flags; a file among them is read again when it changes."""

    def __init__(self, options: NodesOptions) -> None:
        """Read the list in the flags; raises ValueError that names the flag."""
        self._options = options
        try:
            self._listed = parse(options.listed, options.address_template)
        except ValueError as error:
            raise ValueError(f"--nodes: {error}") from None
        self._stamp: tuple[int, int, int] | None = None
        self._filed: dict[str, Address] = {}
        self._problem = ""

    def current(self) -> Mapping[str, Address]:
        """Return the nodes now. Blocks.

        While the file is away, or wrong, its nodes stay as they were; that is logged once.
        """
        if self._options.file:
            try:
                self._reread(pathlib.Path(self._options.file))
                self._problem = ""
            except (OSError, ValueError) as error:
                if str(error) != self._problem:
                    self._problem = str(error)
                    _log.error("The list of nodes stays as it was", flag="--nodes-file", err=error)
        return {**self._filed, **self._listed}

    def _reread(self, path: pathlib.Path) -> None:
        found = os.stat(path)
        stamp = (found.st_ino, found.st_mtime_ns, found.st_size)
        if stamp != self._stamp:
            nodes = parse(path.read_text(), self._options.address_template)
            _check_digests({**nodes, **self._listed})
            self._filed, self._stamp = nodes, stamp
