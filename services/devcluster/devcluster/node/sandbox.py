"""A container without an image: one process in its own mount and pid namespaces.

Run as a script, by the bare interpreter (``-I -S``): it may import the standard library only.
``sandbox.py DIR`` reads ``DIR/spec.json``, builds a root from the host's programs and the pod's
volumes, and starts the command under a small init that forwards signals and reaps.

Nothing depends on the agent that started it: an exclusive lock on ``DIR/lock`` is held as long
as anything of the container lives, ``run.json`` names the init (pid, start time) before the
command starts, and the init leaves ``exit.json`` behind. Whoever finds the lock free and no
``exit.json`` knows that the container was killed.
"""

import ctypes
import fcntl
import json
import os
import pathlib
import signal
import stat
import sys
import time
from typing import Any, NoReturn

NEW_NAMESPACES = 0x00020000 | 0x20000000 | 0x04000000  # mount, pid, host name
RDONLY, NOSUID, NODEV, NOEXEC, REMOUNT, BIND, MOVE = 1, 2, 4, 8, 32, 4096, 8192
REC, PRIVATE, SLAVE = 16384, 1 << 18, 1 << 19
DETACH = 2
HOST_FOLDERS = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc")
HOST_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
LAST_WORDS_LIMIT = 4096  # bytes of a termination message, as in the Kubernetes API
START_ERROR = 128  # exit code of a command that could not be started, as container runtimes use

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mount.argtypes = [ctypes.c_char_p] * 3 + [ctypes.c_ulong, ctypes.c_char_p]


def mount(source: str, target: str, kind: str = "", flags: int = 0, data: str = "") -> None:
    """mount(2); raises OSError."""
    texts = [text.encode() for text in (source, target, kind)]
    if _libc.mount(*texts, flags, data.encode() or None):
        _fail(f"mount {source} on {target}")


def unmount(target: str, flags: int = 0) -> None:
    """umount2(2); raises OSError."""
    if _libc.umount2(target.encode(), flags):
        _fail(f"unmount {target}")


def _fail(what: str) -> NoReturn:
    number = ctypes.get_errno()
    raise OSError(number, f"{what}: {os.strerror(number)}")


def start_time(pid: int) -> str:
    """A process's start in clock ticks since boot, which tells it from a later one of its pid.

    Empty if there is no such process or only its remains (a zombie).
    """
    try:
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in {"Z", "X"} else fields[19]


def write(folder: int, name: str, content: dict[str, Any]) -> None:
    """Put a JSON file into an open folder so that it is there whole or not at all."""
    mode = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    handle = os.open(f".{name}", mode, 0o600, dir_fd=folder)
    try:
        os.write(handle, json.dumps(content).encode())
    finally:
        os.close(handle)
    os.rename(f".{name}", name, src_dir_fd=folder, dst_dir_fd=folder)


def main(folder_path: str) -> int:
    """Start the container; returns once its command runs, or with the reason why it does not."""
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))  # whatever our starter left open
    folder = os.open(folder_path, os.O_RDONLY | os.O_DIRECTORY)
    lock = os.open("lock", os.O_RDWR | os.O_CREAT, 0o600, dir_fd=folder)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        print("the container is running already", file=sys.stderr)  # noqa: T201 - our answer
        return 3
    spec = json.loads(pathlib.Path(folder_path, "spec.json").read_text())
    for stale in ("run.json", "exit.json"):
        pathlib.Path(folder_path, stale).unlink(missing_ok=True)
    if _libc.unshare(NEW_NAMESPACES):
        _fail("unshare")
    answer, told = os.pipe()
    go, release = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(answer)
        os.close(release)
        _init(spec, folder_path, folder, go, told)
    os.close(told)
    run = {"attempt": spec["attempt"], "pid": pid, "start": start_time(pid), "started": time.time()}
    write(folder, "run.json", run)
    os.write(release, b"1")
    problem = os.read(answer, 4096).decode(errors="replace")
    print(problem, file=sys.stderr, end="")  # noqa: T201 - our answer to the agent
    return 1 if problem else 0


def _init(spec: dict[str, Any], folder_path: str, folder: int, go: int, told: int) -> NoReturn:
    """The first process of the pid namespace; ``told`` closes itself when the command runs."""
    code, message = START_ERROR, ""
    try:
        if not os.read(go, 1):
            os._exit(1)  # whoever started us died before anybody could know our pid
        log = os.open(spec["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        null = os.open("/dev/null", os.O_RDONLY)
        for source, target in ((null, 0), (log, 1), (log, 2)):
            os.dup2(source, target)
        _enter_root(spec, f"{folder_path}/root")
        _offer_last_words(spec["last_words"])
        code = _supervise(spec, told)
        message = _last_words(spec["last_words"])
    except BaseException as error:  # noqa: BLE001 - whatever it is, the agent must learn of it
        message = str(error) or type(error).__name__
        os.write(told, message.encode())
    write(
        folder,
        "exit.json",
        {"attempt": spec["attempt"], "code": code, "message": message, "finished": time.time()},
    )
    os._exit(0)


def _offer_last_words(path: str) -> None:
    """Put an empty file where the command, whoever it runs as, may leave a message."""
    pathlib.Path(path).parent.mkdir(parents=True, exist_ok=True)
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o666))


def _last_words(path: str) -> str:
    """What the command left there; nothing if it made something else of the file."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return ""
    try:
        regular = stat.S_ISREG(os.fstat(handle).st_mode)
        return os.read(handle, LAST_WORDS_LIMIT).decode(errors="replace") if regular else ""
    finally:
        os.close(handle)


def _supervise(spec: dict[str, Any], told: int) -> int:
    """Run the command, forward signals to it, reap everything; its exit code as a shell counts."""
    child = 0

    def forward(number: int, _frame: object) -> None:
        if child:
            os.kill(child, number)

    for number in FORWARDED:
        signal.signal(number, forward)
    child = os.fork()
    if child == 0:
        _command(spec, told)
    os.close(told)
    while True:
        pid, status = os.wait()
        if pid == child:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code


def _command(spec: dict[str, Any], told: int) -> NoReturn:
    try:
        for number in (*FORWARDED, signal.SIGPIPE):
            signal.signal(number, signal.SIG_DFL)
        os.setsid()
        os.chdir(spec["cwd"])
        os.umask(0o022)
        os.setgroups(spec["groups"])
        os.setgid(spec["gid"])
        os.setuid(spec["uid"])
        os.execvpe(spec["argv"][0], spec["argv"], spec["env"])  # noqa: S606 - no shell is the point
    except OSError as error:
        os.write(told, f"cannot run {spec['argv'][0]!r}: {error}".encode())
    os._exit(START_ERROR)


def _enter_root(spec: dict[str, Any], root: str) -> None:
    """Build the container's root and leave the host's behind.

    Until the end the host's unmounts still reach us (slave propagation), so a volume that is
    unpublished meanwhile is not kept busy by our copy of its mount.
    """
    os.umask(0)
    mount("none", "/", "", REC | SLAVE)
    pathlib.Path(root).mkdir(exist_ok=True)
    mount("tmpfs", root, "tmpfs", NOSUID | NODEV, "mode=0755")
    for folder in HOST_FOLDERS:
        _host_folder(folder, root)
    _devices(root)
    for name, mode in (("tmp", 0o1777), ("proc", 0o755), ("run", 0o755), ("root", 0o700)):
        pathlib.Path(root, name).mkdir()
        pathlib.Path(root, name).chmod(mode)
    mount("proc", f"{root}/proc", "proc", NOSUID | NODEV | NOEXEC)
    for volume in spec["mounts"]:
        _volume(volume["source"], inside(root, volume["target"]), volume["readonly"])
    hostname = spec["hostname"].encode()
    _libc.sethostname(hostname, len(hostname))
    old = pathlib.Path(root, ".host")
    old.mkdir()
    if _libc.pivot_root(root.encode(), str(old).encode()):
        _fail("pivot_root")
    os.chdir("/")
    unmount("/.host", DETACH)
    pathlib.Path("/.host").rmdir()
    mount("none", "/", "", REC | PRIVATE)


def _host_folder(folder: str, root: str) -> None:
    """Show a folder of the host, or the symbolic link that stands in its place."""
    host, target = pathlib.Path(folder), pathlib.Path(root + folder)
    if host.is_symlink():
        target.symlink_to(host.readlink())
    elif host.is_dir():
        target.mkdir()
        mount(folder, str(target), "", BIND | REC)
        mount("none", str(target), "", BIND | REMOUNT | RDONLY)


def _devices(root: str) -> None:
    dev = pathlib.Path(root, "dev")
    dev.mkdir()
    for name in HOST_DEVICES:
        if pathlib.Path("/dev", name).exists():
            _volume(f"/dev/{name}", str(dev / name), readonly=False)
    (dev / "shm").mkdir(mode=0o1777)
    for name, number in (("stdin", 0), ("stdout", 1), ("stderr", 2)):
        (dev / name).symlink_to(f"/proc/self/fd/{number}")
    (dev / "fd").symlink_to("/proc/self/fd")


def inside(root: str, target: str) -> str:
    """A path below ``root``; symbolic links on the way are followed as the container sees them."""
    parts, found, links = [p for p in target.split("/") if p], pathlib.Path(root), 0
    while parts:
        part = parts.pop(0)
        if part == "..":
            found = found.parent if found != pathlib.Path(root) else found
        elif part != ".":
            step = found / part
            if step.is_symlink() and links < 40:
                links += 1
                link = str(step.readlink())
                parts = [p for p in link.split("/") if p] + parts
                found = pathlib.Path(root) if link.startswith("/") else found
            else:
                found = step
    return str(found)


def _volume(source: str, target: str, readonly: bool) -> None:  # noqa: FBT001 - as in the spec
    """Bind a folder, file or device; what it is mounted on is made if it is not there."""
    point = pathlib.Path(target)
    point.parent.mkdir(parents=True, exist_ok=True)
    if stat.S_ISDIR(os.stat(source).st_mode):
        point.mkdir(exist_ok=True)
    else:
        point.touch()
    mount(source, target, "", BIND | REC)
    if readonly:
        mount("none", target, "", BIND | REMOUNT | RDONLY)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
