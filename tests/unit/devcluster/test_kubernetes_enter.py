"""The way into a node, on namespaces that need no cluster."""

import json
import os
import pathlib
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest
from devcluster.kubernetes import enter
from support import waiting

SCRIPT = pathlib.Path(enter.__file__)


@pytest.fixture
def holder() -> Iterator[int]:
    """A process that holds namespaces as a node's does."""
    flags = ("--mount", "--net", "--uts", "--ipc", "--pid", "--fork", "--kill-child=KILL")
    command = ["unshare", *flags, "sleep", "1000"]
    with subprocess.Popen(command) as process:
        children = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children")
        waiting.until_blocking(children.read_text, "the namespaces")
        yield process.pid
        process.kill()


def inside(pid: int, *command: str) -> list[str]:
    return [sys.executable, "-I", "-S", str(SCRIPT), str(pid), *command]


@pytest.mark.root
def test_a_command_runs_in_every_namespace_and_its_exit_code_comes_out(holder: int) -> None:
    script = "readlink /proc/self/ns/net /proc/self/ns/mnt /proc/self/ns/uts; exit 7"
    done = subprocess.run(
        inside(holder, "sh", "-c", script), capture_output=True, text=True, check=False, timeout=20
    )
    assert done.returncode == 7
    expected = [os.readlink(f"/proc/{holder}/ns/{kind}") for kind in ("net", "mnt", "uts")]
    assert done.stdout.split() == expected


@pytest.mark.root
def test_signals_reach_the_command(holder: int) -> None:
    script = "trap 'echo asked; exit 3' TERM; echo up; while :; do sleep 0.05; done"
    command = inside(holder, "sh", "-c", script)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        process.send_signal(signal.SIGTERM)
        assert process.stdout.readline() == "asked\n"
        assert process.wait(timeout=20) == 3


@pytest.mark.root
def test_a_program_that_is_not_there_is_named(holder: int) -> None:
    done = subprocess.run(
        inside(holder, "no-such"), capture_output=True, text=True, check=False, timeout=20
    )
    assert (done.returncode, done.stderr) == (
        127,
        "devcluster-enter: no-such: No such file or directory\n",
    )


@pytest.mark.parametrize(
    ("words", "code"),
    [
        pytest.param([], 2, id="nothing"),
        pytest.param(["--dir=/x", "--node=n"], 2, id="no command"),
        pytest.param(["--dir=/x", "--node=n", "--", "true"], 1, id="no such cluster"),
    ],
)
def test_wrong_words_are_explained(
    words: list[str],
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", ["devcluster-enter", *words])
    assert enter.main() == code
    assert capsys.readouterr().err


def test_a_node_that_is_not_there_is_named(
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "ready.json").write_text(json.dumps({"nodes": {"node-1": {"pid": 1}}}))
    words = [f"--dir={tmp_path}", "--node=node-2", "--", "true"]
    monkeypatch.setattr(sys, "argv", ["devcluster-enter", *words])
    assert enter.main() == 1
    assert "no node node-2 runs" in capsys.readouterr().err
