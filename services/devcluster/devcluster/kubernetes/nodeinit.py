"""Process 1 of a node: makes the node's view of the file system, then only reaps.

Run as a script by the bare interpreter (``-I -S``), inside new mount, network, process,
host name and IPC namespaces: ``nodeinit.py NAME FOLDER CLUSTER``. Says ``ready`` on stdout.

A node is nothing but these namespaces. When this process ends, the kernel kills every other
one in them, and with the last go all mounts, links and sockets: nothing can be left over.
"""

import contextlib
import ctypes
import os
import pathlib
import signal
import socket
import sys

BIND, REC, SHARED = 4096, 16384, 1 << 20
OWN_STATE = ("kubelet", "containerd", "bitts", "cni", "docker", "calico")
"""Names in /var/lib that mean a runtime's state: the machine's own must not be seen here."""

OVERLAID = ("etc", "opt")
"""Folders of the machine that a node sees, and may write into without the machine seeing that:
installers of CNI plugins write there, and operators put a node's certificates there."""

KERNEL_WIDE = (
    "kernel/keys/root_maxbytes",
    "kernel/keys/root_maxkeys",
    "kernel/panic",
    "kernel/panic_on_oops",
    "vm/overcommit_memory",
    "vm/panic_on_oom",
)
"""Settings below /proc/sys that a kubelet adjusts, and that no namespace keeps from the machine."""

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mount.argtypes = [ctypes.c_char_p] * 3 + [ctypes.c_ulong, ctypes.c_char_p]


def mount(source: str, target: str, kind: str = "", flags: int = 0, data: str = "") -> None:
    """mount(2); raises OSError."""
    texts = [text.encode() for text in (source, target, kind)]
    if _libc.mount(*texts, flags, data.encode() or None):
        number = ctypes.get_errno()
        raise OSError(number, f"mount {source} on {target}: {os.strerror(number)}")


def main(name: str, folder: str, cluster: str) -> int:
    """Prepare the node, reap until SIGTERM."""
    handled = {signal.SIGCHLD, signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, handled)
    socket.sethostname(name)
    mount("proc", "/proc", "proc")
    shown = {path: os.open(path, os.O_PATH) for path in (folder, cluster)}
    for one in OVERLAID:
        overlay(pathlib.Path("/", one), folder)
    prepare_files(pathlib.Path(folder))
    show_again(shown)
    keep_settings()
    mount("", "/", flags=SHARED | REC)  # among the node's own containers, not with the machine
    pathlib.Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
    os.write(1, b"ready\n")
    while signal.sigwait(handled) != signal.SIGTERM:
        reap()
    return 0


def overlay(target: pathlib.Path, folder: str) -> None:
    """Keep what is written below a folder of the machine on the node's own disk."""
    if target.is_symlink() or not target.is_dir():
        return
    name = target.name
    for path in (name, f"{name}.work"):
        os.makedirs(f"{folder}/{path}", exist_ok=True)
    inner = {path: os.open(path, os.O_PATH) for path in mounted_below(target)}
    os.chdir(folder)  # its path may have what separates options
    mount(
        "overlay",
        str(target),
        "overlay",
        data=f"lowerdir={target},upperdir={name},workdir={name}.work",
    )
    os.chdir("/")
    for path, handle in inner.items():
        mount(f"/proc/self/fd/{handle}", path, flags=BIND | REC)
        os.close(handle)


def mounted_below(folder: pathlib.Path) -> list[str]:
    """Return where something is mounted below a folder, without what is below that again."""
    lines = pathlib.Path("/proc/self/mountinfo").read_text().splitlines()
    points = {line.split()[4].encode().decode("unicode_escape") for line in lines}
    found: list[str] = []
    for point in sorted(points):
        if point.startswith(f"{folder}/") and not any(point.startswith(f"{one}/") for one in found):
            found.append(point)
    return found


def prepare_files(folder: pathlib.Path) -> None:
    """Give the node its own /run, /var/log and /var/lib."""
    own = {name: folder / name for name in ("containerd", "bitts", "log")}
    sources = {"kubelet": folder, **own}
    handles = {name: os.open(path, os.O_PATH) for name, path in sources.items()}
    mount(f"/proc/self/fd/{handles['log']}", "/var/log", flags=BIND)
    cover_state()
    for name in ("kubelet", "containerd", "bitts"):
        target = pathlib.Path("/var/lib") / name
        target.mkdir()
        mount(f"/proc/self/fd/{handles[name]}", str(target), flags=BIND)
    for handle in handles.values():
        os.close(handle)
    mount("tmpfs", "/run", "tmpfs", data="mode=755")
    pathlib.Path("/run/lock").mkdir()


def cover_state() -> None:
    """Put a new /var/lib over the machine's, through which all but runtimes' state shows."""
    below = os.open("/var/lib", os.O_PATH)
    names = [entry.name for entry in os.scandir("/var/lib") if entry.is_dir(follow_symlinks=False)]
    mount("tmpfs", "/var/lib", "tmpfs", data="mode=755")
    for name in names:
        if name not in OWN_STATE:
            target = pathlib.Path("/var/lib") / name
            target.mkdir()
            mount(f"/proc/self/fd/{below}/{name}", str(target), flags=BIND | REC)
    os.close(below)


def show_again(shown: dict[str, int]) -> None:
    """Where a folder that is needed was covered by one of the node's own, put it there again."""
    for path, handle in shown.items():
        if not os.path.exists(path):
            os.makedirs(path)
            mount(f"/proc/self/fd/{handle}", path, flags=BIND | REC)
        os.close(handle)


def keep_settings() -> None:
    """Put copies over settings of the whole kernel: the node may write them, and none changes."""
    for name in KERNEL_WIDE:
        setting, copy = pathlib.Path("/proc/sys", name), pathlib.Path("/run/settings", name)
        if setting.exists():
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_text(setting.read_text())
            mount(str(copy), str(setting), flags=BIND)


def reap() -> None:
    """Collect every process that has ended."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
