"""The cgroups of nodes: made before a kubelet starts, removed when its node is gone.

Both hierarchies are served: one tree for each controller (version 1), and the unified one.
"""

import contextlib
import os
import pathlib
import time
from collections.abc import Iterator

ROOT = pathlib.Path("/sys/fs/cgroup")
UNIFIED_CONTROLLERS = ("cpu", "cpuset", "io", "memory", "pids")
REMOVAL_TIMEOUT = 10.0
"""Seconds until the kernel has let go of the last process."""


class CgroupError(RuntimeError):
    """A cgroup cannot be made or removed; the message names it."""


def hierarchies(root: pathlib.Path = ROOT) -> list[pathlib.Path]:
    """Return the tops of all hierarchies: the one of version 2, or one for each controller."""
    if (root / "cgroup.controllers").exists():
        return [root]
    return sorted(path for path in root.iterdir() if path.is_dir() and not path.is_symlink())


def create(identity: str, node: str, root: pathlib.Path = ROOT) -> None:
    """Make a node's cgroup in every hierarchy. Blocking; raises CgroupError."""
    try:
        for top in hierarchies(root):
            _enable(top)
            for path in (top / identity, top / identity / node):
                path.mkdir(exist_ok=True)
                _inherit_cpus(path)
                if path.name == identity:
                    _enable(path)
    except OSError as error:
        raise CgroupError(f"cannot make a cgroup: {error}") from error


def _enable(path: pathlib.Path) -> None:
    """Hand the controllers of version 2 down to the children."""
    control = path / "cgroup.subtree_control"
    if not control.exists():
        return
    offered = (path / "cgroup.controllers").read_text().split()
    for name in UNIFIED_CONTROLLERS:
        if name in offered:
            with contextlib.suppress(OSError):  # a controller that is in use elsewhere
                control.write_text(f"+{name}")


def _inherit_cpus(path: pathlib.Path) -> None:
    """In version 1 a new cpuset is empty, and nothing can run in it."""
    for name in ("cpuset.cpus", "cpuset.mems"):
        own, parent = path / name, path.parent / name
        if own.exists() and not (path / "cgroup.controllers").exists() and not own.read_text()[:-1]:
            own.write_text(parent.read_text())


def present(identity: str, node: str = "", root: pathlib.Path = ROOT) -> list[pathlib.Path]:
    """Return the tops of what a cluster (or one node) has, in every hierarchy. Blocking."""
    if not root.exists():
        return []
    tops = [top / identity / node for top in hierarchies(root)]
    return [top for top in tops if top.exists()]


def remove(identity: str, node: str = "", root: pathlib.Path = ROOT) -> list[str]:
    """Remove the cgroups of a cluster, or of one node, and return what was there. Blocking.

    Raises CgroupError naming one in which processes stay.
    """
    removed = []
    for top in present(identity, node, root):
        deadline = time.monotonic() + REMOVAL_TIMEOUT
        for path in _deepest_first(top):
            _remove(path, deadline)
        removed.append(str(top))
    return removed


def _deepest_first(top: pathlib.Path) -> Iterator[pathlib.Path]:
    for folder, _, _ in os.walk(top, topdown=False):
        yield pathlib.Path(folder)


def _remove(path: pathlib.Path, deadline: float) -> None:
    while True:
        try:
            path.rmdir()
        except FileNotFoundError:
            return
        except OSError as error:
            if time.monotonic() > deadline:
                processes = (path / "cgroup.procs").read_text().split()
                raise CgroupError(f"{path}: {error.strerror}, processes {processes}") from error
            time.sleep(0.02)
        else:
            return
