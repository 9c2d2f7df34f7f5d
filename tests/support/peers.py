"""Upstream's own programs, built from the Go module proxy, as judges and rivals.

Each folder of ``tests/peers`` is a Go module with one ``tool`` line and no code of ours.
kubectl comes with the cluster's own programs.
"""

import pathlib
from collections.abc import Callable

from devcluster import gobuild, kubernetes

MODULES = pathlib.Path(__file__).parent.parent / "peers"


def tool(name: str, announce: Callable[[str], None] = print) -> pathlib.Path:
    """Return the path of a ready program, building it first where needed.

    A test marks with ``builds(name)`` what it needs, so that its time limit is not spent here.
    Raises ``gobuild.ToolchainError`` where there is no Go to be had.
    """
    module = kubernetes.CONTROL_PLANE if name == "kubectl" else MODULES / name
    return gobuild.build(module, name, announce=announce)


def plugin(name: str) -> pathlib.Path:
    """Return the path of a reference CNI plugin or of cnitool, building it first where needed."""
    return gobuild.build(MODULES / "cni-plugins", name, announce=print)
