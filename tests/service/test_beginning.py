"""A program that is the first process of a container ends when it is told to, however early."""

import contextlib
import errno
import os
import pathlib
import shutil
import signal

import pytest
from support import processes, waiting

PROGRAMS = {
    "csi-provisioner": [],
    "csi-node-driver-registrar": ["--kubelet-registration-path=/x"],
    "livenessprobe": [],
    "local-driver": ["--endpoint=unix:///x", "--state-dir=/x", "--node-id=x"],
    "cni-daemon": [],
}


@pytest.mark.skipif(os.geteuid() != 0, reason="a namespace of processes needs root")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["term", "int"])
@pytest.mark.parametrize("program", PROGRAMS)
async def test_a_first_process_ends_while_it_is_still_loading(
    tmp_path: pathlib.Path, program: str, number: signal.Signals
) -> None:
    # An asyncio of our own holds it where its imports are: at the open of a pipe.
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    (tmp_path / "asyncio.py").write_text(f"open({str(pipe)!r}).read()\n")
    unshare = shutil.which("unshare") or "unshare"
    spawner = processes.Processes(tmp_path / "logs")
    ends = contextlib.ExitStack()
    try:
        outer = spawner.spawn(
            [unshare, "--pid", "--fork", processes.script(program), *PROGRAMS[program]],
            environ={"PYTHONPATH": str(tmp_path)},
        )
        await outer.wait_ready(lambda: holds(pipe, ends), f"{program} loads asyncio")
        os.kill(child_of(outer.pid), number)
        await waiting.until(lambda: not outer.alive, f"end of {program}", 10)
        assert outer.exit_code == 128 + number, outer.output()
    finally:
        spawner.close()
        ends.close()


def holds(pipe: pathlib.Path, ends: contextlib.ExitStack) -> bool:
    """Open the writing end, so that the reader waits, once somebody has the other one."""
    try:
        ends.callback(os.close, os.open(pipe, os.O_WRONLY | os.O_NONBLOCK))
    except OSError as error:
        if error.errno == errno.ENXIO:
            return False
        raise
    return True


def child_of(pid: int) -> int:
    (found,) = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return int(found)
