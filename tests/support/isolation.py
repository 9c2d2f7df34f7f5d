"""What keeps processes that run tests beside each other from meeting in the kernel.

Mounts are the one thing that names cannot keep apart: a namespace that somebody makes (a
node, a pod) copies every mount it sees, and holds the devices of other tests busy with it.
So every process that runs tests has a mount namespace of its own, and with it goes whatever
a killed one left mounted.
"""

import ctypes
import os
import pathlib
import re

from support import cluster

NEW_NAMESPACE = 0x00020000
RECURSIVE, PRIVATE = 0x4000, 0x40000
"""Constants of unshare(2) and mount(2)."""
NETWORK_NAMES = pathlib.Path("/run/netns")
"""Where ip(8) pins the network namespaces it makes."""
NETWORK_STATE = pathlib.Path("/var/lib/cni")
"""Where CNI's library and the reference plugins keep what they were told."""
SHORT_NAME = re.compile(r"b-([0-9a-f]+)-")


def own_mounts() -> None:
    """Give this thread, and all that it starts from now on, a mount namespace of their own.

    Raises OSError; for root only. Call it before the process has threads that run tests.
    """
    _checked(ctypes.CDLL(None, use_errno=True).unshare(NEW_NAMESPACE), "unshare")
    _mount("none", "/", None, RECURSIVE | PRIVATE)
    for folder in (NETWORK_NAMES, NETWORK_STATE):
        folder.mkdir(parents=True, exist_ok=True)
        _mount("tmpfs", str(folder), "tmpfs", 0)


def _mount(source: str, target: str, kind: str | None, flags: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    encoded = None if kind is None else kind.encode()
    _checked(libc.mount(source.encode(), target.encode(), encoded, flags, None), target)


def _checked(result: int, what: str) -> None:
    if result:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def sweep(temporary: pathlib.Path = pathlib.Path("/tmp")) -> None:
    """Remove the short directories of processes that ended without doing it."""
    for folder in temporary.glob("b-*"):
        match = SHORT_NAME.match(folder.name)
        if match and not pathlib.Path(f"/proc/{int(match[1], 16)}").exists():
            cluster.remove_tree(folder)
