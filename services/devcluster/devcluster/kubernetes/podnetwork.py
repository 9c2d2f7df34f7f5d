"""Who gives pods their network on a node: ``cni-daemon``, or the CNI reference plugins.

Pure, but for ``missing``, which looks at the machine.

Either way every pod is routed, without a bridge. With one, answers between pods of a node would
not pass the rules of Services, unless the kernel has br_netfilter.
"""

import pathlib
import shutil
import subprocess
import sys
import tempfile
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
_DISTRIBUTIONS = ("/opt/cni/bin", "/usr/lib/cni", "/usr/libexec/cni")
_JOURNAL = f"{STATE}/cni-daemon"
_COMPILERS = ("cc", "gcc", "clang")
_INSTALL_TIMEOUT = 120.0
_RUNTIME = "unix:///run/containerd/containerd.sock"
"""Where the daemon asks containerd for its sandboxes."""


def program() -> pathlib.Path:
    """Return where ``cni-daemon`` is, if it is installed: beside the running interpreter."""
    return pathlib.Path(sys.executable).parent / "cni-daemon"


def plugin_folders(choice: str) -> tuple[str, ...]:
    """Return where containerd is to look for plugins: what distributions install comes last."""
    return (_SHIMS, *_DISTRIBUTIONS) if choice == DAEMON else _DISTRIBUTIONS


def missing(choice: str) -> str:
    """Say what a choice lacks on this machine, and nothing where it can work. Blocking."""
    if choice == DAEMON:
        lacks = _daemon_lacks()
        return f"{lacks} (or --pod-network={REFERENCE})" if lacks else ""
    found = any((pathlib.Path(folder) / "ptp").exists() for folder in _DISTRIBUTIONS)
    return "" if found else "the CNI plugins"


def _daemon_lacks() -> str:
    """Ask the daemon whether it has its shim or can compile it, unless that is plain to see."""
    if not program().exists():
        return "cni-daemon"
    if any(map(shutil.which, _COMPILERS)):
        return ""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            _install(f"{folder}/bin", f"{folder}/cni.sock", f"{folder}/state"),
            capture_output=True,
            text=True,
            timeout=_INSTALL_TIMEOUT,
            check=False,
        )
    return f'the shim of cni-daemon, which says "{done.stderr.strip()}"' if done.returncode else ""


def _install(plugins: str, socket: str, state: str) -> Sequence[str]:
    return (
        str(program()), "install",
        f"--plugin-dir={plugins}", f"--socket={socket}", f"--state-dir={state}",
    )  # fmt: skip


def install() -> Sequence[str]:
    """Return the command that, run in a node, puts the shim where containerd looks first."""
    return _install(_SHIMS, SOCKET, _JOURNAL)


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
