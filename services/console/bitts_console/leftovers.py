"""What a stack left behind, found from the kernel's own tables, and how to remove it.

After ``kill -9`` nobody remembers what was running. But every process of a stack carries the
stack's mark in its environment (or, a pod, mounts from its folders), and every mount and loop
device has its root in one of its folders, so the folders are enough to find all.
"""

import asyncio
import contextlib
import os
import pathlib
import re
import shutil
import signal
from collections.abc import Sequence
from dataclasses import dataclass

from bitts_console import state

TERM_TIMEOUT = 5.0
"""Seconds between SIGTERM and SIGKILL."""

ROUNDS = 5
"""How often processes are looked for anew."""

COMMAND_TIMEOUT = 20.0
"""Seconds for one umount or losetup."""


class LeftoverError(Exception):
    """Something could not be removed; the message names it."""


@dataclass(frozen=True, slots=True)
class Leftovers:
    """Processes (ID and command), mounts deepest first, loop devices, and folders."""

    processes: tuple[tuple[int, str], ...] = ()
    mounts: tuple[str, ...] = ()
    loop_devices: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.processes or self.mounts or self.loop_devices or self.folders)

    def lines(self) -> list[str]:
        """Return one readable line for each thing."""
        return [
            *(f"process {pid}: {command}" for pid, command in self.processes),
            *(f"mount {target}" for target in self.mounts),
            *(f"loop device {device}" for device in self.loop_devices),
            *(f"folder {folder}" for folder in self.folders),
        ]


def find(folders: Sequence[pathlib.Path]) -> Leftovers:
    """Read what belongs to a stack's folders; the first is its state. Blocking.

    The calling process and those it descends from never count.
    """
    names = [str(folder) for folder in folders]
    return Leftovers(
        processes=tuple(_processes(names, set(ancestors(os.getpid())))),
        mounts=tuple(mounts_below(pathlib.Path("/proc/self/mountinfo").read_text(), names)),
        loop_devices=tuple(_loop_devices(names)),
        folders=tuple(name for name in names if os.path.lexists(name)),
    )


def mounts_below(mountinfo: str, folders: Sequence[str]) -> list[str]:
    """Return the mount points in or on the folders, the last mounted first."""
    found = []
    for line in mountinfo.splitlines():
        target = unescape(line.split(" ")[4])
        if any(is_inside(target, folder) for folder in folders):
            found.append(target)
    return found[::-1]


def is_inside(path: str, folder: str) -> bool:
    """Whether a path is the folder or lies below it."""
    return path == folder or path.startswith(f"{folder}/")


def unescape(field: str) -> str:
    """Undo the kernel's octal escapes for blanks and backslashes in mountinfo."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), field)


def ancestors(pid: int) -> list[int]:
    """Return a process ID and those of all its parents."""
    found = []
    while pid > 0:
        found.append(pid)
        try:
            status = pathlib.Path(f"/proc/{pid}/stat").read_text()
        except OSError:
            break
        pid = int(status.rpartition(")")[2].split()[1])
    return found


def _processes(folders: Sequence[str], spared: set[int]) -> list[tuple[int, str]]:
    wanted = f"{state.MARK}={folders[0]}".encode()
    own_namespace = os.readlink("/proc/self/ns/mnt")
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) in spared:
            continue
        try:
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").strip()
            marked = wanted in (entry / "environ").read_bytes().split(b"\0")
            if command and (marked or _is_pod_of(entry, folders, own_namespace)):
                found.append((int(entry.name), command.decode(errors="replace")))
        except OSError:  # ended meanwhile, or somebody else's
            continue
    return found


def _is_pod_of(entry: pathlib.Path, folders: Sequence[str], own_namespace: str) -> bool:
    """Whether a process in a mount namespace of its own was started from, or sees, our folders.

    Only such processes may be recognised by their command line: an editor or a shell that
    merely names a folder is none of ours.
    """
    if os.readlink(entry / "ns/mnt") == own_namespace:
        return False
    arguments = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
    table = (entry / "mountinfo").read_text().splitlines()
    paths = [*arguments, *(unescape(field) for line in table for field in line.split(" ")[3:5])]
    return any(is_inside(path, folder) for path in paths for folder in folders)


def _loop_devices(folders: Sequence[str]) -> list[str]:
    found = []
    for entry in pathlib.Path("/sys/block").glob("loop*/loop/backing_file"):
        try:
            backing = entry.read_text().strip().removesuffix(" (deleted)")
        except OSError:  # freed meanwhile
            continue
        if any(is_inside(backing, folder) for folder in folders):
            found.append(f"/dev/{entry.parent.parent.name}")
    return found


async def end(folders: Sequence[pathlib.Path]) -> Leftovers:
    """End a stack's processes, then unmount, then detach; return all that had to be removed.

    What is there is read anew before each step, since a process that ends in order, or a
    mount that goes, takes other things along. Raises LeftoverError naming what does not go.
    """
    ended: dict[int, str] = {}
    for _ in range(ROUNDS):  # a process that is ended may have started another just before
        processes = (await asyncio.to_thread(find, folders)).processes
        if not processes:
            break
        await _end([pid for pid, _ in processes])
        ended.update(processes)
    mounts = (await asyncio.to_thread(find, folders)).mounts
    for target in mounts:
        await run("umount", target)
    devices = (await asyncio.to_thread(find, folders)).loop_devices
    for device in devices:
        await run("losetup", "--detach", device)
    return Leftovers(tuple(ended.items()), mounts, devices)


async def delete(path: pathlib.Path) -> None:
    """Delete a file or a folder with all that is in it; fine if it is not there.

    Raises LeftoverError naming what cannot be deleted.
    """
    try:
        await asyncio.to_thread(_delete, path)
    except OSError as error:
        raise LeftoverError(f"{error.filename}: {error.strerror}; remove it by hand") from error


def _delete(path: pathlib.Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


async def _end(pids: Sequence[int]) -> None:
    """SIGTERM, wait on process descriptors, SIGKILL what stays."""
    watched = {pid: handle for pid in pids if (handle := _open(pid)) is not None}
    try:
        for number in (signal.SIGTERM, signal.SIGKILL):
            for pid, handle in list(watched.items()):
                try:
                    signal.pidfd_send_signal(handle, number)
                except ProcessLookupError:
                    continue
                except PermissionError as error:
                    raise LeftoverError(
                        f"process {pid} is somebody else's: {error.strerror}"
                    ) from error
            late = await _wait_all(list(watched.values()), TERM_TIMEOUT)
            if not late:
                return
        raise LeftoverError(f"processes do not end: {', '.join(map(str, watched))}")
    finally:
        for handle in watched.values():
            os.close(handle)


def _open(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        return None


async def _wait_all(handles: Sequence[int], timeout: float) -> list[int]:
    """Wait until the processes behind the descriptors have ended; return those that have not."""
    loop = asyncio.get_running_loop()
    ends = {handle: loop.create_future() for handle in handles}
    for handle, end in ends.items():
        loop.add_reader(handle, _resolve, end)
    try:
        if ends:
            await asyncio.wait(ends.values(), timeout=timeout)
        return [handle for handle, end in ends.items() if not end.done()]
    finally:
        for handle in handles:
            loop.remove_reader(handle)


def _resolve(end: asyncio.Future[None]) -> None:
    if not end.done():
        end.set_result(None)


async def run(*command: str) -> None:
    """Run a command that removes something. Raises LeftoverError with what it said."""
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(COMMAND_TIMEOUT):
            _, stderr = await process.communicate()
    except TimeoutError:
        process.kill()
        await process.wait()
        raise LeftoverError(f"{' '.join(command)} hangs") from None
    if process.returncode:
        raise LeftoverError(f"{' '.join(command)}: {stderr.decode(errors='replace').strip()}")
