"""Where the programs of a cluster come from: ready ones that were handed in, else our cache.

``KUBEBUILDER_ASSETS`` is the convention of Go's test environments: a folder with etcd,
kube-apiserver and kubectl. Any other program that it holds is taken too. Whatever is missing
is built from source, once.
"""

import os
import pathlib
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from devcluster import gobuild, kubernetes

CONTROL_PLANE = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
CLIENTS = ("kubectl",)
NODE = ("kubelet", "kube-proxy", "containerd", "containerd-shim-runc-v2", "ctr")
EVERY = (*CONTROL_PLANE, *CLIENTS, *NODE)

HEARTBEAT = 20.0
"""Seconds between signs of life while one program is being built."""

Announce = Callable[[str], None]


class MissingError(RuntimeError):
    """Programs are missing and may not be built now; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a program is or will be; ``module`` is what builds it, None if it was handed in."""

    path: pathlib.Path
    module: pathlib.Path | None = None


def origins(names: Sequence[str], environ: Mapping[str, str]) -> dict[str, Origin]:
    """Say where each program comes from. Blocking, but quick."""
    assets = environ.get("KUBEBUILDER_ASSETS", "")
    modules = {
        name: module
        for module in (kubernetes.CONTROL_PLANE, kubernetes.RUNTIME)
        for name in gobuild.tools(module)
    }
    found = {}
    for name in names:
        given = pathlib.Path(assets) / name
        if assets and os.access(given, os.X_OK):
            found[name] = Origin(given)
        else:
            module = modules[name]
            found[name] = Origin(gobuild.place(module, name), module)
    return found


def ready(names: Sequence[str], environ: Mapping[str, str]) -> dict[str, pathlib.Path]:
    """Return the paths of programs that are all there already.

    Raises MissingError naming those that are not: building takes minutes, which nobody expects
    from the start of a cluster.
    """
    known = origins(names, environ)
    missing = [name for name, origin in known.items() if not os.access(origin.path, os.X_OK)]
    if missing:
        raise MissingError(
            f"not built yet: {', '.join(missing)}; run `make cluster` once (minutes), "
            "or name a folder that holds them in KUBEBUILDER_ASSETS"
        )
    return {name: origin.path for name, origin in known.items()}


def build(
    names: Sequence[str], environ: Mapping[str, str], announce: Announce
) -> dict[str, pathlib.Path]:
    """Build what is missing, one program after the other, telling how far it is. Blocking.

    What an interrupted call has finished is kept. Raises what ``gobuild.build`` raises.
    """
    known = origins(names, environ)
    wanted = [name for name, origin in known.items() if not origin.path.exists()]
    for number, name in enumerate(wanted, 1):
        module = known[name].module
        assert module is not None  # what was handed in exists
        label = f"[{number}/{len(wanted)}] {name}"
        announce(f"{label}: building from source")
        begin = time.monotonic()
        with _Heartbeat(label, announce):
            gobuild.build(module, name)
        announce(f"{label}: built in {time.monotonic() - begin:.0f} s")
    return {name: origin.path for name, origin in known.items()}


def explain(error: Exception) -> str:
    """Say in a sentence why a build failed; the compiler has spoken on stderr before."""
    if isinstance(error, subprocess.CalledProcessError):
        return f"the Go build failed with exit code {error.returncode}, see above"
    if isinstance(error, subprocess.TimeoutExpired):
        return f"the Go build did not end within {error.timeout:g} s; run it again to go on"
    return str(error)


class _Heartbeat:
    """Says now and then that the compiler still works."""

    def __init__(self, label: str, announce: Announce) -> None:
        self._label = label
        self._announce = announce
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="heartbeat", daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _beat(self) -> None:
        begin = time.monotonic()
        while not self._over.wait(HEARTBEAT):
            self._announce(f"{self._label}: still building, {time.monotonic() - begin:.0f} s")
