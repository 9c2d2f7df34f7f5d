"""The command line: quick, friendly, and clear about mistakes."""

import os
import pathlib
import subprocess
import sys

import bitts
import pytest
from support import processes


def bitts_command(*words: str, **environ: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [processes.script("bitts"), *words],
        env={**processes.environment(), **environ},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_help_and_version_load_nothing_heavy() -> None:
    heavy = ["asyncio", "aiohttp", "grpclib", "kubernetes_asyncio", "rich", "yaml", "uvloop"]
    program = f"import sys, bitts_console.cli; print([m for m in {heavy} if m in sys.modules])"
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert answer.stdout == "[]\n"


def test_version() -> None:
    assert bitts_command("--version").stdout == f"bitts {bitts.__version__}\n"


def test_help_names_every_command() -> None:
    answer = bitts_command("--help")
    assert answer.returncode == 0
    assert all(f"\n  {name} " in answer.stdout for name in ("up", "down", "demo"))


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        pytest.param(("up", "--nodes=0"), 2, "--nodes", id="nodes"),
        pytest.param(("up", "--backend=zfs"), 2, "--backend", id="backend"),
        pytest.param(("demo", "--manifests=/no/such"), 1, "/no/such is no folder", id="manifests"),
        pytest.param(("demo", "--use", "--dir=/no/such"), 1, "bitts up", id="nothing-runs"),
        pytest.param(("fly",), 2, "fly", id="command"),
    ],
)
def test_mistakes_are_answered(words: tuple[str, ...], code: int, message: str) -> None:
    answer = bitts_command(*words)
    assert answer.returncode == code
    assert message in answer.stderr
    assert "Traceback" not in answer.stderr


def test_down_where_nothing_runs_says_so(tmp_path: pathlib.Path) -> None:
    answer = bitts_command("down", f"--dir={tmp_path / 'none'}")
    assert (answer.returncode, answer.stdout) == (0, "The stack is down and nothing runs.\n")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become somebody without rights")
def test_image_backend_without_rights_says_why(tmp_path: pathlib.Path) -> None:
    answer = subprocess.run(
        [
            "setpriv",
            "--bounding-set=-sys_admin",
            "--inh-caps=-sys_admin",
            processes.script("bitts"),
            "up",
            "--backend=image",
            f"--dir={tmp_path / 'x'}",
        ],
        env=processes.environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert answer.returncode == 1
    assert (
        "--backend image: the image backend needs loop devices and mounts: run it as root"
        in answer.stderr
    )
