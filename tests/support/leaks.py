"""What the kernel still holds: mounts, loop devices, processes, files and sockets.

Take a snapshot before, another one after, and the difference must be empty. Everything is
read from ``/proc`` and ``/sys``, never from what our own code believes. Only what lies in
folders of this process's tests counts: other workers of the same run, and other runs, use the
machine at the same time.
"""

import os
import pathlib
from dataclasses import dataclass, field

from support import processes

SHORT_PREFIX = f"/tmp/b-{os.getpid():x}-"
"""How the short directories of this process begin; each worker of a run has its own."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Kernel objects at one moment, each as a readable line."""

    mounts: frozenset[str] = field(default_factory=frozenset)
    loop_devices: frozenset[str] = field(default_factory=frozenset)
    processes: frozenset[str] = field(default_factory=frozenset)
    files: frozenset[str] = field(default_factory=frozenset)

    def leaked_since(self, before: "Snapshot") -> list[str]:
        """Return what is here now and was not before, one line each, sorted."""
        kinds = ("mounts", "loop_devices", "processes", "files")
        return sorted(
            f"{kind}: {line}"
            for kind in kinds
            for line in getattr(self, kind) - getattr(before, kind)
        )


def snapshot(
    *folders: pathlib.Path, mark: str = processes.RUN, prefix: str = SHORT_PREFIX
) -> Snapshot:
    """Read the present state; ``folders`` are state directories that should end up empty.

    Mounts and loop devices count in the folders and where paths begin with ``prefix``;
    processes when they carry its mark in their environment, or name one of the folders on
    their command line.
    """
    within = (*map(str, folders), prefix)
    return Snapshot(
        mounts=frozenset(line for line in mounts() if line.startswith(within)),
        loop_devices=frozenset(
            line for line in loop_devices() if line.partition(" ")[2].startswith(within)
        ),
        processes=frozenset(marked_processes(mark, folders)),
        files=frozenset(str(path) for folder in folders for path in files(folder)),
    )


def mounts() -> list[str]:
    """Return ``target (source)`` of every mount in this mount namespace."""
    found = []
    for line in pathlib.Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        found.append(f"{before.split()[4]} ({after.split()[1]})")
    return found


def loop_devices() -> list[str]:
    """Return ``device backing-file`` of every loop device in use."""
    found = []
    for entry in sorted(pathlib.Path("/sys/block").glob("loop*")):
        try:
            found.append(f"{entry.name} {(entry / 'loop/backing_file').read_text().strip()}")
        except OSError:  # free devices have no such file, and one may be freed right now
            continue
    return found


def marked_processes(mark: str, folders: tuple[pathlib.Path, ...] = ()) -> list[str]:
    """Return ``pid command`` of other processes that belong to this test run."""
    wanted = f"{processes.MARK}={mark}".encode()
    needles = [str(folder).encode() for folder in folders]
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            command = (entry / "cmdline").read_bytes()
            ours = wanted in (entry / "environ").read_bytes().split(b"\0")
        except OSError:  # ended meanwhile, or not ours to read
            continue
        if command and (ours or any(needle in command for needle in needles)):
            found.append(f"{entry.name} {command.replace(bytes(1), b' ').decode().strip()}")
    return found


def marked_pids(mark: str) -> set[int]:
    """Return the processes of this test run, among them those of clusters that tests share."""
    return {int(line.split()[0]) for line in marked_processes(mark)}


def files(folder: pathlib.Path) -> list[pathlib.Path]:
    """Return everything below a folder that is not itself a folder."""
    return [path for path in folder.rglob("*") if not path.is_dir()] if folder.exists() else []
