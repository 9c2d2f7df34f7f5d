"""Which processes make up a local stack, and with which command lines. Pure.

The parts are only named here, never imported: each is a program of its own, started from
beside the running interpreter, exactly as in a cluster where each is a container.
"""

import pathlib
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from bitts_console import state
from bitts_console.state import Folders

DRIVER_NAME = "local.csi.bitts.dev"
FIRST_NODE = "node-1"

BTRFS_SIZE = "16Gi"
"""Size of the btrfs that the driver makes in a sparse file where the state folder is on none."""


_LOSS = "the cluster was in memory and is gone: start anew; --store sqlite outlives such an end"


@dataclass(frozen=True, slots=True)
class Options:
    """What the user chose. ``backends`` are those the driver offers, the default one first.

    ``capacity`` is a quantity that bounds the sum of all volumes; empty: what the disk has.
    """

    nodes: int = 1
    backends: tuple[str, ...] = ("directory",)
    store: str = "memory"
    kind: str = "embedded"
    verbosity: int = 2
    capacity: str = ""

    @property
    def is_kubernetes(self) -> bool:
        """Whether the cluster brings its own nodes (none without root)."""
        return self.kind == "kubernetes"


@dataclass(frozen=True, slots=True)
class FileReady:
    """The process is ready when this file is there; it is removed before a start."""

    path: pathlib.Path


@dataclass(frozen=True, slots=True)
class SocketReady:
    """The process is ready when somebody accepts on this unix socket."""

    path: pathlib.Path


Readiness = FileReady | SocketReady


@dataclass(frozen=True, slots=True)
class Spec:
    """One process: its program (a console script of ours), arguments and what it waits for.

    ``loss`` says what no restart of it brings back.
    """

    name: str
    program: str
    arguments: tuple[str, ...]
    ready: Readiness
    after: tuple[str, ...] = ()
    environ: Mapping[str, str] = field(default_factory=dict)
    loss: str = ""


def driver_socket(folders: Folders) -> pathlib.Path:
    """Return the CSI socket, where the kubelet expects a plugin's to be."""
    return folders.node_root(FIRST_NODE) / "plugins" / DRIVER_NAME / "csi.sock"


def introspection_socket(folders: Folders, program: str) -> pathlib.Path:
    """Return where a process answers what it is doing (beside the CSI socket, by default)."""
    return driver_socket(folders).with_name(f"bitts-{program}.sock")


def node_names(count: int) -> list[str]:
    """Return the names of the stack's nodes."""
    return [f"node-{number}" for number in range(1, count + 1)]


def specs(options: Options, folders: Folders) -> list[Spec]:
    """Return every process of the stack, in the order in which they are best started."""
    agents = [] if options.is_kubernetes else node_names(options.nodes)
    every = [
        _cluster(options, folders),
        _driver(options, folders),
        *(_node(name, folders) for name in agents),
        _provisioner(options, folders),
    ]
    mark = {state.MARK: str(folders.state)}
    return [replace(spec, environ={**spec.environ, **mark}) for spec in every]


def runtime_folders(options: Options, folders: Folders) -> list[pathlib.Path]:
    """Return the folders that must be there before anything starts."""
    registries = [
        folders.node_root(name) / "plugins_registry" for name in node_names(options.nodes)
    ]
    return [driver_socket(folders).parent, *registries]


def csi_driver() -> dict[str, Any]:
    """Return the CSIDriver object, which an installation of the driver brings along.

    Volumes of a node need no attaching. The driver is on one node only, and pods that need its
    volumes are not to be placed elsewhere.
    """
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSIDriver",
        "metadata": {"name": DRIVER_NAME},
        "spec": {
            "attachRequired": False,
            "podInfoOnMount": False,
            "fsGroupPolicy": "File",
            "storageCapacity": False,
            "preventPodSchedulingIfMissing": True,
            "volumeLifecycleModes": ["Persistent"],
        },
    }


def _cluster(options: Options, folders: Folders) -> Spec:
    own_nodes = (f"--nodes={options.nodes}", f"--nodes-dir={folders.runtime}")
    return Spec(
        name="devcluster",
        program="devcluster",
        arguments=(
            f"--dir={folders.cluster}",
            f"--kind={options.kind}",
            f"--store={options.store}",
            *(own_nodes if options.is_kubernetes else ()),
        ),
        ready=FileReady(folders.cluster / "ready.json"),
        loss="" if options.store != "memory" else _LOSS,
    )


def clear_cluster(folders: Folders) -> tuple[str, ...]:
    """Return the command that removes what a killed Kubernetes left in the kernel."""
    where = (f"--dir={folders.cluster}", f"--nodes-dir={folders.runtime}")
    program = str(supervised("devcluster"))
    return (program, "--kind=kubernetes", *where, "--store=sqlite", "--clear")


def _driver(options: Options, folders: Folders) -> Spec:
    root = folders.node_root(FIRST_NODE)
    path = driver_socket(folders)
    own_btrfs = (f"--btrfs-size={BTRFS_SIZE}",) if "btrfs" in options.backends else ()
    arguments = (
        f"--endpoint=unix://{path}",
        f"--driver-name={DRIVER_NAME}",
        f"--node-id={FIRST_NODE}",
        f"--state-dir={folders.volumes}",
        f"--backends={','.join(options.backends)}",
        f"--default-backend={options.backends[0]}",
        *own_btrfs,
        f"--registration-dir={root / 'plugins_registry'}",
        f"--kubelet-registration-path={path}",
        f"--capacity={options.capacity}",
        f"--v={options.verbosity}",
    )
    spec = Spec("local-driver", "local-driver", arguments, SocketReady(path))
    return _inside(spec, folders) if options.is_kubernetes and options.nodes else spec


def _inside(spec: Spec, folders: Folders) -> Spec:
    """Run a program inside the first node, as a DaemonSet's pod would be, once there is one."""
    entrance = (f"--dir={folders.cluster}", f"--node={FIRST_NODE}", "--")
    return replace(
        spec,
        program="devcluster-enter",
        arguments=(*entrance, str(supervised(spec.program)), *spec.arguments),
        after=("devcluster",),
    )


def supervised(program: str) -> pathlib.Path:
    """Return where one of our programs is: beside the running interpreter."""
    return pathlib.Path(sys.executable).parent / program


def _node(name: str, folders: Folders) -> Spec:
    root = folders.node_root(name)
    return Spec(
        name=name,
        program="devcluster-node",
        arguments=(
            f"--name={name}",
            f"--kubeconfig={folders.kubeconfig}",
            f"--root-dir={root}",
            f"--ready-file={root / 'ready'}",
        ),
        ready=FileReady(root / "ready"),
        after=("devcluster", "local-driver"),
    )


def _provisioner(options: Options, folders: Folders) -> Spec:
    return Spec(
        name="csi-provisioner",
        program="csi-provisioner",
        arguments=(
            f"--csi-address={driver_socket(folders)}",
            f"--kubeconfig={folders.kubeconfig}",
            "--extra-create-metadata",
            "--feature-gates=Topology=true",
            f"--v={options.verbosity}",
        ),
        ready=SocketReady(introspection_socket(folders, "csi-provisioner")),
        after=("devcluster",),  # it waits for the driver by itself
    )
