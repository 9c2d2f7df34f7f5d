"""Removes what a cluster has left: after its end, however it came, nothing is there.

What its processes held (namespaces, mounts, links, sockets) went with them, since all of them
die with the one that started them. Left are the cgroups, which follow from the folder's name,
and files.
"""

import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterator

from devcluster import files
from devcluster.kubernetes import cgroups
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


def sweep(layout: Layout, *, keep: bool) -> list[str]:
    """Remove cgroups and, unless objects and volumes are to last, files; say what there was.

    Blocking. Raises CgroupError where processes of the cluster are still alive.
    """
    removed = [f"cgroup {path}" for path in cgroups.remove(layout.identity)]
    (layout.directory / files.READY).unlink(missing_ok=True)
    layout.tunnel.unlink(missing_ok=True)
    if not keep:
        layout.audit.unlink(missing_ok=True)
        for folder in (layout.etcd, *layout.nodes.glob("node-*")):
            if folder.exists():
                shutil.rmtree(folder, ignore_errors=True)
                removed.append(f"folder {folder}")
    return removed
