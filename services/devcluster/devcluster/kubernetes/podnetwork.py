"""Who gives pods their network on a node: ``cni-daemon``, or the CNI reference plugins. Pure.

Either way every pod is routed, without a bridge. With one, answers between pods of a node would
not pass the rules of Services, unless the kernel has br_netfilter.
"""

import pathlib
import sys
from collections.abc import Mapping, Sequence

DAEMON = "bitts"
REFERENCE = "reference"
CHOICES = (DAEMON, REFERENCE)

STATE = "/var/lib/bitts"
"""Folder of the daemon inside a node: on the node's own disk, so that it outlasts a reboot."""

SOCKET = "/run/bitts/cni.sock"
"""Where the daemon listens inside a node."""

CONFIGURATION = "10-pods.conflist"
_SHIMS = f"{STATE}/cni-bin"
DISTRIBUTIONS = ("/opt/cni/bin", "/usr/lib/cni", "/usr/libexec/cni")
_JOURNAL = f"{STATE}/cni-daemon"
_RUNTIME = "unix:///run/containerd/containerd.sock"
"""Where the daemon asks containerd for its sandboxes."""


def program() -> pathlib.Path:
    """Return where ``cni-daemon`` is, if it is installed: beside the running interpreter."""
    return pathlib.Path(sys.executable).parent / "cni-daemon"


def plugin_folders(choice: str) -> tuple[str, ...]:
    """Return where containerd is to look for plugins: what distributions install comes last."""
    return (_SHIMS, *DISTRIBUTIONS) if choice == DAEMON else DISTRIBUTIONS


def install(folder: str = _SHIMS, socket: str = SOCKET, journal: str = _JOURNAL) -> Sequence[str]:
    """Return the command that, run in a node, puts the shim where containerd looks first."""
    return (
        str(program()), "install",
        f"--plugin-dir={folder}", f"--socket={socket}", f"--state-dir={journal}",
    )  # fmt: skip


def serve() -> Sequence[str]:
    """Return the command line of the daemon in a node."""
    return (
        str(program()), f"--socket={SOCKET}", f"--state-dir={_JOURNAL}",
        f"--runtime-endpoint={_RUNTIME}",
    )  # fmt: skip


def configuration(choice: str, subnet: str) -> Mapping[str, object]:
    """Return the CNI configuration of a node whose pods have addresses in ``subnet``."""
    ranges = [[{"subnet": subnet}]]
    ipam = {"type": "host-local", "ranges": ranges, "routes": [{"dst": "0.0.0.0/0"}]}
    plugins: list[dict[str, object]] = [
        {"type": "ptp", "ipMasq": False, "ipam": ipam},
        {"type": "portmap", "capabilities": {"portMappings": True}},
        {"type": "bandwidth", "capabilities": {"bandwidth": True}},
    ]
    if choice == DAEMON:  # the whole list as one call
        abilities = {"portMappings": True, "bandwidth": True}
        plugins = [{"type": "bitts", "capabilities": abilities, "plugins": plugins}]
    return {"cniVersion": "1.0.0", "name": "pods", "plugins": plugins}
