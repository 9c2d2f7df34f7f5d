"""Where a cluster keeps its files, and the name by which the kernel's objects show whose they are.

Everything lies below the cluster's folder, but for the nodes' folders: these hold unix sockets,
whose paths may have 107 bytes, so they may be put into a shorter place.
"""

import hashlib
import pathlib
from dataclasses import dataclass

SOCKET_PATH_LIMIT = 107
DEEPEST_SOCKET = 60
"""Bytes that the longest socket of a node adds to its folder: a plugin's registration."""


@dataclass(frozen=True, slots=True)
class NodeLayout:
    """The folder of one node; ``root`` is also the kubelet's, as a driver's author expects it."""

    root: pathlib.Path

    @property
    def containerd(self) -> pathlib.Path:
        """Images, snapshots and containers."""
        return self.root / "containerd"

    @property
    def files(self) -> pathlib.Path:
        """Configuration and credentials of the node's programs."""
        return self.root / "node"

    @property
    def cni(self) -> pathlib.Path:
        """CNI configurations; whoever puts another one there replaces the pod network."""
        return self.root / "cni"

    @property
    def bitts(self) -> pathlib.Path:
        """Journal and shim of the node's CNI daemon."""
        return self.root / "bitts"

    @property
    def plugins_registry(self) -> pathlib.Path:
        """Where the kubelet looks for registration sockets."""
        return self.root / "plugins_registry"


@dataclass(frozen=True, slots=True)
class Layout:
    """The folders of one cluster. ``nodes`` should be short."""

    directory: pathlib.Path
    nodes: pathlib.Path

    @property
    def identity(self) -> str:
        """Name of what the kernel holds for this cluster (cgroups), known from the folder alone."""
        return f"bitts-{hashlib.sha256(str(self.directory).encode()).hexdigest()[:8]}"

    @property
    def pki(self) -> pathlib.Path:
        """Certificates, keys and tokens."""
        return self.directory / "pki"

    @property
    def etcd(self) -> pathlib.Path:
        """Etcd's data."""
        return self.directory / "etcd"

    @property
    def logs(self) -> pathlib.Path:
        """One file for each program."""
        return self.directory / "logs"

    @property
    def images(self) -> pathlib.Path:
        """Archives that every node loads when it starts; put more of them there before."""
        return self.directory / "images"

    @property
    def audit(self) -> pathlib.Path:
        """The audit log: one JSON object for every request that writes."""
        return self.directory / "audit.log"

    @property
    def lock(self) -> pathlib.Path:
        """Held by the process that runs the cluster."""
        return self.directory / "lock"

    @property
    def tunnel(self) -> pathlib.Path:
        """Socket by which the API server reaches into the nodes' network."""
        return self.nodes / "egress.sock"

    def node(self, name: str) -> NodeLayout:
        """Return the folder of a node."""
        return NodeLayout(self.nodes / name)


def layout(directory: pathlib.Path, nodes: pathlib.Path | None) -> Layout:
    """Return the folders for ``--dir`` and ``--nodes-dir`` (default: a folder of the former)."""
    return Layout(directory.resolve(), (nodes or directory / "n").resolve())


def check(found: Layout) -> None:
    """Raise ValueError where sockets in the nodes' folders would have too long paths."""
    room = SOCKET_PATH_LIMIT - DEEPEST_SOCKET - len("/node-99")
    if len(str(found.nodes).encode()) > room:
        raise ValueError(
            f"--nodes-dir: {found.nodes} is too long for unix sockets (at most {room} bytes): "
            "name a shorter folder"
        )
