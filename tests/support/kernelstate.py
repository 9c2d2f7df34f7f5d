"""Everything of the machine that a cluster could leave behind, read from the kernel and the disk.

Unlike ``leaks`` this does not look for what is marked as ours: a cluster must leave the machine
as it was, so every namespace, mount, link, address, rule, setting and cgroup counts, whoever made
it, and so does what was there before and is not, or is another. Others who use the machine
meanwhile are told apart by waiting: what is theirs goes, what leaked stays.
"""

import asyncio
import os
import pathlib
import re
import shutil
import subprocess

from support import leaks, processes, waiting

FOLDERS = ("/run", "/run/netns", "/var/lib", "/var/log", "/etc/cni", "/opt/cni", "/dev/shm")
"""Where kubelets, container runtimes and CNI plugins like to put things."""
OF_OTHERS = ("/tmp/b-", "/tmp/bitts-", "/tmp/pytest-")
"""Mounts of other tests that run on this machine at the same time."""
SETTINGS = (
    "kernel/keys/root_maxbytes",
    "kernel/keys/root_maxkeys",
    "kernel/panic",
    "kernel/panic_on_oops",
    "net/bridge/bridge-nf-call-iptables",
    "net/ipv4/ip_forward",
    "net/ipv6/conf/all/forwarding",
    "net/netfilter/nf_conntrack_max",
    "vm/overcommit_memory",
    "vm/panic_on_oom",
)
"""Below /proc/sys: what kubelets, kube-proxy and CNI plugins like to set."""
COMMANDS = (
    ("nft", "--stateless", "list", "ruleset"),
    *(
        ("ip", family, *words)
        for family in ("-4", "-6")
        for words in (("-brief", "address"), ("route", "show", "table", "all"), ("rule",))
    ),
    ("iptables-legacy-save",),
    ("ip6tables-legacy-save",),
)
"""What tells of the network; iptables' old kind only where it is installed."""
PASSING = re.compile(r" expires \d+sec|\[\d+:\d+\]|^(?:#.*|\*.*|COMMIT|:\S+ ACCEPT .*)$")
"""What changes by itself in these answers: times to live, counters, the time of the answer, and
the empty tables that are there as soon as a module is loaded."""
MAY_GO = ("cgroup ", "file /dev/shm/")
"""What is only ever somebody's for a while: that it is gone is no harm."""


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
    for name in SETTINGS:
        setting = pathlib.Path("/proc/sys", name)
        if setting.exists():
            found.add(f"setting {name}={setting.read_text().strip()}")
    for command in COMMANDS:
        if shutil.which(command[0]):
            found |= told_by(command)
    return frozenset(found)


def told_by(command: tuple[str, ...]) -> set[str]:
    """Return what a command says, a line for each line that is not the same every time."""
    done = subprocess.run(command, check=True, capture_output=True, timeout=waiting.patient(20))
    lines = (" ".join(PASSING.sub("", one).split()) for one in done.stdout.decode().splitlines())
    return {f"{' '.join(command[:3])}: {line}" for line in lines if line}


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
    """Wait until the machine is as it was; raise AssertionError naming each difference.

    A leak is there each time one looks; what others have meanwhile need not all be gone at once.
    """
    left: set[str] | None = None

    async def as_before() -> bool:
        nonlocal left
        now = set(differences(before, await asyncio.to_thread(snapshot)))
        left = now if left is None else left & now
        return not left

    try:
        await waiting.until(as_before, "the machine as before", timeout)
    except waiting.DeadlineError as error:
        raise AssertionError(f"not as before: {sorted(left or ())}") from error


def differences(before: frozenset[str], now: frozenset[str]) -> list[str]:
    """Return what is there that was not, and what was there that is not. Pure.

    A setting that was not there is no difference: whoever loads a module brings it.
    """
    settings = {one.partition("=")[0] for one in before}
    more = (
        one
        for one in now - before
        if not one.startswith("setting ") or one.partition("=")[0] in settings
    )
    gone = (one for one in before - now if not one.startswith(MAY_GO))
    return [f"still there: {one}" for one in sorted(more)] + [
        f"gone: {one}" for one in sorted(gone)
    ]


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
