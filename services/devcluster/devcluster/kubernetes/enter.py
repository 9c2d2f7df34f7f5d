"""Runs a command inside a node: ``devcluster-enter --dir=D --node=NAME -- COMMAND…``.

Unlike nsenter it passes signals on, so that a supervisor outside can ask what runs inside to
end. The command dies with whoever entered, and with the node. Standard library only, quick to
start: it may also be run as a script by the bare interpreter, ``enter.py PID COMMAND…``.
"""

import ctypes
import json
import os
import pathlib
import signal
import sys

_NAMESPACES = (("mnt", 0x00020000), ("net", 0x40000000), ("uts", 0x04000000), ("ipc", 0x08000000))
_NEW_PID = 0x20000000
_SET_DEATH_SIGNAL = 1
_FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
_NOT_STARTED = 127
_libc = ctypes.CDLL(None, use_errno=True)


def main() -> int:
    """Read the command line, find the node, run; return the command's exit code."""
    words = sys.argv[1:]
    options = dict(
        word.split("=", 1) for word in words[:2] if word.startswith("--") and "=" in word
    )
    if set(options) != {"--dir", "--node"} or words[2:3] != ["--"] or not words[3:]:
        sys.stderr.write("usage: devcluster-enter --dir=FOLDER --node=NAME -- COMMAND...\n")
        return 2
    try:
        ready = json.loads((pathlib.Path(options["--dir"]) / "ready.json").read_text())
        pid = ready["nodes"][options["--node"]]["pid"]
    except (OSError, ValueError, KeyError):
        text = f"no node {options['--node']} runs in the cluster of {options['--dir']}"
        sys.stderr.write(f"devcluster-enter: {text}\n")
        return 1
    return run(pid, words[3:])


def run(pid: int, command: list[str]) -> int:
    """Run a command in the namespaces that ``pid`` holds; return its exit code.

    A command that a signal ended gives 128 and the signal's number, as shells do.
    """
    spaces = [(os.open(f"/proc/{pid}/ns/{name}", os.O_RDONLY), kind) for name, kind in _NAMESPACES]
    _set(os.open(f"/proc/{pid}/ns/pid_for_children", os.O_RDONLY), _NEW_PID)
    signal.pthread_sigmask(signal.SIG_BLOCK, _FORWARDED)
    child = os.fork()
    if child == 0:
        _become(spaces, command)
    for number in _FORWARDED:
        signal.signal(number, lambda received, _: os.kill(child, received))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _FORWARDED)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def _become(spaces: list[tuple[int, int]], command: list[str]) -> None:
    """In the child: enter the other namespaces and turn into the command."""
    try:
        _libc.prctl(_SET_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
        for descriptor, kind in spaces:
            _set(descriptor, kind)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _FORWARDED)
        os.execvp(command[0], command)  # noqa: S606  # this is what it is for
    except OSError as error:
        sys.stderr.write(f"devcluster-enter: {command[0]}: {error.strerror}\n")
        sys.stderr.flush()
    finally:
        os._exit(_NOT_STARTED)


def _set(descriptor: int, kind: int) -> None:
    if _libc.setns(descriptor, kind) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"cannot enter a namespace: {os.strerror(number)}")


if __name__ == "__main__":
    sys.exit(run(int(sys.argv[1]), sys.argv[2:]))
