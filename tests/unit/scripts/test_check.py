"""``make check`` and ``make test-vm`` are part of what CI runs, and else of their own."""

import os
import pathlib
import shutil
import subprocess

import pytest

SCRIPTS = pathlib.Path(__file__).parents[3] / "scripts"
TOOLS = ("ruff", "mypy", "lint-imports", "python")


@pytest.fixture
def checkout(tmp_path: pathlib.Path) -> pathlib.Path:
    """A folder with the scripts, in which every tool and test passes."""
    (tmp_path / "scripts").mkdir()
    for name in ("check", "test"):
        shutil.copy(SCRIPTS / name, tmp_path / "scripts")
    for name in (*(f".venv/bin/{tool}" for tool in TOOLS), "scripts/test-vm"):
        program_at(tmp_path / name, "exit 0")
    program_at(tmp_path / "scripts" / "test-coverage", "exit 0")
    program_at(tmp_path / "bin" / "id", "echo 0")  # with CI=true not being root is a failure
    return tmp_path


def program_at(path: pathlib.Path, body: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)


def run(script: pathlib.Path, ci: str = "") -> tuple[int, str]:
    path = f"{script.parents[1] / 'bin'}:{os.environ['PATH']}"
    environ = {**os.environ, "CI": ci, "PATH": path}
    done = subprocess.run(
        [script],
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=30,
        check=False,
    )
    return done.returncode, done.stdout


def test_what_passes_is_said_in_a_line(checkout: pathlib.Path) -> None:
    assert run(checkout / "scripts" / "check") == (0, "")
    code, said = run(checkout / "scripts" / "test", ci="true")
    assert code == 0
    assert "make check: passed" in said


def test_outside_of_ci_what_has_its_own_command_is_named(checkout: pathlib.Path) -> None:
    for name in (".venv/bin/mypy", "scripts/test-vm"):
        program_at(checkout / name, "exit 1")
    code, said = run(checkout / "scripts" / "test")
    assert code == 0
    assert "left to commands of their own: make check, and make test-vm" in said


def test_a_decision_that_is_not_covered_fails_the_tests_with_its_words(
    checkout: pathlib.Path,
) -> None:
    program_at(checkout / "scripts" / "test-coverage", "echo 'decide.py 99 %'; exit 1")
    code, said = run(checkout / "scripts" / "test")
    assert code == 1
    assert "decide.py 99 %" in said


def test_what_fails_in_the_emulator_fails_ci_with_its_words(checkout: pathlib.Path) -> None:
    program_at(checkout / "scripts" / "test-vm", "echo '1 failed'; exit 1")
    code, said = run(checkout / "scripts" / "test", ci="true")
    assert code == 1
    assert "1 failed" in said


@pytest.mark.parametrize(
    ("tool", "label"),
    [
        ("ruff", "lint"),
        ("mypy", "types"),
        ("lint-imports", "import contracts"),
        ("python", "sizes"),
    ],
)
def test_each_check_that_fails_is_named_and_none_is_left_out(
    checkout: pathlib.Path, tool: str, label: str
) -> None:
    for other in TOOLS:
        program_at(checkout / ".venv" / "bin" / other, f"echo {other} looked; exit 0")
    program_at(checkout / ".venv" / "bin" / tool, "exit 1")
    code, said = run(checkout / "scripts" / "check")
    assert code == 1
    assert f"make check: {label} failed" in said
    assert all(f"{other} looked" in said for other in TOOLS if other != tool)


def test_a_check_that_fails_fails_the_tests_with_its_words(checkout: pathlib.Path) -> None:
    program_at(checkout / ".venv" / "bin" / "mypy", "echo 'x.py:1: error: so wrong'; exit 1")
    code, said = run(checkout / "scripts" / "test", ci="true")
    assert code == 1
    assert "x.py:1: error: so wrong" in said
    assert "make check: types failed" in said
