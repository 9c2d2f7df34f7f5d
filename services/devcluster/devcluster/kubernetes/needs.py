"""What nodes need of the machine, looked for before anything starts. Blocking."""

import pathlib
import shutil
import subprocess
import tempfile

from devcluster.kubernetes import podnetwork

PROGRAMS = ("runc", "ip", "nsenter", "unshare", "setpriv", "nft", "iptables", "conntrack")
_COMPILERS = ("cc", "gcc", "clang")
_INSTALL_TIMEOUT = 120.0
"""Seconds for the daemon to compile its shim."""


def missing(network: str) -> list[str]:
    """Return what nodes with this pod network (``podnetwork.CHOICES``) would lack here."""
    lacking = [name for name in PROGRAMS if shutil.which(name) is None]
    return [*lacking, *filter(None, [missing_network(network)])]


def missing_network(choice: str) -> str:
    """Say what a pod network lacks on this machine, and nothing where it can work."""
    if choice == podnetwork.DAEMON:
        lacks = _daemon_lacks()
        return f"{lacks} (or --pod-network={podnetwork.REFERENCE})" if lacks else ""
    found = any((pathlib.Path(folder) / "ptp").exists() for folder in podnetwork.DISTRIBUTIONS)
    return "" if found else "the CNI plugins"


def _daemon_lacks() -> str:
    """Ask the daemon whether it has its shim or can compile it, unless that is plain to see."""
    if not podnetwork.program().exists():
        return "cni-daemon"
    if any(map(shutil.which, _COMPILERS)):
        return ""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            podnetwork.install(f"{folder}/bin", f"{folder}/cni.sock", f"{folder}/state"),
            capture_output=True,
            text=True,
            timeout=_INSTALL_TIMEOUT,
            check=False,
        )
    return f'the shim of cni-daemon, which says "{done.stderr.strip()}"' if done.returncode else ""
