"""Everything of the machine that a cluster could leave behind, read from the kernel and the disk.

Unlike ``leaks`` this does not look for what is marked as ours: a cluster must leave the machine
as it was, so every namespace, mount, link, rule and cgroup counts, whoever made it. Others who
use the machine meanwhile are told apart by waiting: what is theirs goes, what leaked stays.
"""

import asyncio
import os
import pathlib
import subprocess
import time

from support import leaks, processes

FOLDERS = ("/run", "/run/netns", "/var/lib", "/var/log", "/etc/cni", "/opt/cni", "/dev/shm")
"""Where kubelets, container runtimes and CNI plugins like to put things."""
OF_OTHERS = ("/tmp/b-", "/tmp/bitts-", "/tmp/pytest-")
"""Mounts of other tests that run on this machine at the same time."""


def snapshot() -> frozenset[str]:
    """Return one line for each thing that is there."""
    found = {f"mount {line}" for line in leaks.mounts() if not line.startswith(OF_OTHERS)}
    found |= {f"link {path.name}" for path in pathlib.Path("/sys/class/net").iterdir()}
    for pattern in ("bitts-*", "*/bitts-*"):
        paths = pathlib.Path("/sys/fs/cgroup").glob(pattern)
        found |= {f"cgroup {path}" for path in paths if not is_of_others(path)}
    for folder in FOLDERS:
        if os.path.isdir(folder):
            found |= {f"file {folder}/{name}" for name in os.listdir(folder)}
    found |= {f"sysctl ip_forward={pathlib.Path('/proc/sys/net/ipv4/ip_forward').read_text()}"}
    for command in (("nft", "list", "tables"), ("ip", "-4", "route"), ("ip", "-4", "addr")):
        done = subprocess.run(command, check=True, capture_output=True, timeout=20)
        found |= {f"{command[0]} {line.strip()}" for line in done.stdout.decode().splitlines()}
    return frozenset(found)


def is_of_others(cgroup: pathlib.Path) -> bool:
    """Whether a cgroup holds processes of another test run's cluster."""
    ours = f"{processes.MARK}={processes.RUN}".encode()
    for path in cgroup.rglob("cgroup.procs"):
        try:
            pids = path.read_text().split()
        except OSError:  # ended meanwhile, or a kind that has none
            continue
        for pid in pids:
            try:
                marks = pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            except OSError:
                continue
            if any(mark.startswith(processes.MARK.encode()) for mark in marks):
                return ours not in marks
    return False


async def until_as(before: frozenset[str], timeout: float = 20.0) -> None:
    """Wait until nothing is there that was not before; raise AssertionError naming what is."""
    deadline = time.monotonic() + timeout
    while left := await asyncio.to_thread(snapshot) - before:
        assert time.monotonic() < deadline, f"still there: {sorted(left)}"
        await asyncio.sleep(0.2)


def namespaces() -> frozenset[str]:
    """Return every namespace in which a process lives."""
    found = set()
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            for kind in ("net", "mnt", "pid", "uts", "ipc"):
                try:
                    found.add(os.readlink(entry / "ns" / kind))
                except OSError:  # ended meanwhile
                    continue
    return frozenset(found)


def namespaces_of(pids: list[int]) -> frozenset[str]:
    """Return the namespaces of some processes."""
    kinds = ("net", "mnt", "pid_for_children", "uts", "ipc")
    return frozenset(os.readlink(f"/proc/{pid}/ns/{kind}") for pid in pids for kind in kinds)
