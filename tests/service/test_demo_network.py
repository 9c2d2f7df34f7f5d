"""``bitts demo --network``, as a newcomer runs it, and when it is killed."""

import os
import pathlib
import signal
import subprocess

import pytest
from support import processes, waiting

pytestmark = [pytest.mark.root, pytest.mark.xdist_group("demo")]


def start() -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [processes.script("bitts"), "demo", "--network"],
        env={**processes.environment(), "HOME": "/nonexistent", "COLUMNS": "70"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def test_containers_are_connected_reached_limited_and_gone(no_leaks: None) -> None:
    with start() as running:
        output, _ = running.communicate(timeout=240)
    assert running.returncode == 0, output
    for subject in ("ping", "port mapping", "bandwidth", "daemon away", "daemon back", "left over"):
        assert f"verified: {subject}: " in output
    assert "nothing is left" in output
    assert "WRONG" not in output


def test_nothing_outlives_a_demo_that_is_killed(no_leaks: None) -> None:
    """Not the namespaces' holders, and not the daemon: the kernel ends them."""
    with start() as running:
        assert running.stdout is not None
        said = ""
        while "attached" not in said:
            line = running.stdout.readline()
            assert line, f"it ended before: {said}"
            said += line
        children = [int(pid) for pid in offspring(running.pid)]
        running.kill()
    assert len(children) >= 4
    waiting.until_blocking(
        lambda: not [pid for pid in children if is_alive(pid)], "end of what the demo started"
    )


def offspring(pid: int) -> list[str]:
    """Return the process IDs of the children of a process."""
    return pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, signal.SIG_DFL)
        state = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return state.rpartition(")")[2].split()[0] != "Z"


def test_without_root_it_says_what_it_needs() -> None:
    """Whoever may not make namespaces is told so before anything is tried."""
    done = subprocess.run(
        ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups",
         *("--inh-caps=-all,+dac_read_search", "--ambient-caps=+dac_read_search"),
         processes.script("bitts"), "demo", "--network"],
        env={**processes.environment(), "HOME": "/nonexistent"},
        capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert "run it as root" in done.stderr
