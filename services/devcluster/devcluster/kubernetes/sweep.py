"""Removes what a cluster has left: after its end, however it came, nothing is there.

What its processes held (namespaces, mounts, links, sockets) went with them, since all of them
die with the one that started them. Left are the cgroups, which follow from the folder's name,
loop devices, and files.
"""

import contextlib
import fcntl
import os
import pathlib
import shutil
from collections.abc import Iterator

from devcluster import files
from devcluster.kubernetes import cgroups, loopdevices
from devcluster.kubernetes.layout import Layout


class InUseError(RuntimeError):
    """A cluster runs in the folder."""


@contextlib.contextmanager
def owned(layout: Layout) -> Iterator[None]:
    """Be the only one who runs, or clears, the cluster of a folder.

    The kernel lets go when the process ends, however it ends. Raises InUseError.
    """
    layout.directory.mkdir(parents=True, exist_ok=True)
    handle = os.open(layout.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InUseError(
                f"a cluster already runs in {layout.directory}: end it, or choose another --dir"
            ) from None
        yield
    finally:
        os.close(handle)


SPARED = frozenset({"plugins", "plugins_registry"})
"""Folders of a node that drivers may have made before the cluster starts."""


def sweep(layout: Layout, *, keep: bool, spared: frozenset[str] = frozenset()) -> list[str]:
    """Remove cgroups, loop devices and, unless objects are to last, files; say what there was.

    ``spared`` names folders of nodes that stay in any case. Blocking. Raises CgroupError where
    processes of the cluster are still alive.
    """
    removed = [f"cgroup {path}" for path in cgroups.remove(layout.identity)]
    for root in layout.nodes.glob("node-*"):
        removed += loopdevices.release(root)
    (layout.directory / files.READY).unlink(missing_ok=True)
    layout.tunnel.unlink(missing_ok=True)
    if not keep:
        layout.audit.unlink(missing_ok=True)
        folders = (layout.etcd, *layout.nodes.glob("node-*"))
        removed += [f"folder {folder}" for folder in folders if _delete(folder, spared)]
    return removed


def _delete(folder: pathlib.Path, spared: frozenset[str]) -> bool:
    """Delete a folder but for what is spared in it; say whether there was anything."""
    if not folder.exists():
        return False
    for path in list(folder.iterdir()):
        if path.name in spared:
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
    if not any(folder.iterdir()):
        folder.rmdir()
    return True
