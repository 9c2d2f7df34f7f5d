"""The kubelet of a node of a full Kubernetes as a process, and what it wrote into its log."""

import asyncio
import os
import pathlib
import signal
from collections.abc import Awaitable, Callable

from support import servers, waiting


def pids(machine: servers.Machine) -> list[int]:
    """Return the processes of the node's kubelet (usually one). Blocking."""
    try:
        space = os.readlink(f"/proc/{machine.pid}/ns/pid_for_children")
    except OSError:
        return []
    return [int(entry.name) for entry in pathlib.Path("/proc").iterdir() if _is(entry, space)]


def _is(entry: pathlib.Path, space: str) -> bool:
    if not entry.name.isdigit():
        return False
    try:
        words = (entry / "cmdline").read_bytes().split(b"\0")
        inside = os.readlink(entry / "ns/pid") == space
    except OSError:  # ended meanwhile
        return False
    return inside and words[0].endswith(b"/kubelet")


def parent(pid: int) -> int:
    """Return the process that started another. Blocking."""
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("PPid:")[2].split()[0])


async def restart(machine: servers.Machine, meanwhile: Callable[[], Awaitable[None]]) -> None:
    """Have the kubelet stand still, do something, kill it, and wait for the next.

    The cluster starts that one, as an init system does.
    """
    before = await asyncio.to_thread(pids, machine)
    parents = [await asyncio.to_thread(parent, pid) for pid in before]
    for pid in before:
        os.kill(pid, signal.SIGSTOP)
    await meanwhile()
    for pid, above in zip(before, parents, strict=True):
        os.kill(pid, signal.SIGKILL)
        os.kill(above, signal.SIGCONT)  # nsenter stops itself with its child

    async def another() -> bool:
        now = await asyncio.to_thread(pids, machine)
        return bool(now) and not set(now) & set(before)

    await waiting.until(another, f"another kubelet on {machine.name}")
