"""``make setup`` on a machine that has Python and nothing else."""

import os
import pathlib
import shutil
import subprocess
import sys

import pytest

SCRIPT = pathlib.Path(__file__).parents[3] / "scripts" / "virtual-environment"
BASE = pathlib.Path(sys.base_prefix) / "bin" / "python3"


class Machine:
    """A PATH with a Python of which Debian keeps ``ensurepip`` back until apt brings it."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder / "machine"
        self.folder.mkdir()
        self.brought = folder / "ensurepip is there"
        self.environment = folder / "venv"
        self._program(
            "python3", f'case "$2" in *ensurepip*) test -e "{self.brought}" || exit 1 ;; esac'
        )
        for tool in ("bash", "dirname", "grep", "xargs"):
            self._program(tool, f'exec {shutil.which(tool)} "$@"')

    def _program(self, name: str, *lines: str) -> None:
        last = [f'exec {BASE} "$@"'] if name == "python3" else []
        path = self.folder / name
        path.write_text("\n".join(["#!/bin/bash", *lines, *last, ""]))
        path.chmod(0o755)

    def add_debian(self) -> None:
        """Let packages be looked up and installed, as root."""
        self._program("id", "echo 0")
        self._program("dpkg-query", "exit 1")
        self._program("apt-get", f'case "$*" in *python3-venv*) : >"{self.brought}" ;; esac')

    def run(self) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [SCRIPT, str(self.environment)],
            env={"PATH": str(self.folder), "HOME": os.environ.get("HOME", "/")},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def has_pip(self) -> bool:
        command = [str(self.environment / "bin" / "python"), "-m", "pip", "--version"]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0


@pytest.fixture
def machine(tmp_path: pathlib.Path) -> Machine:
    return Machine(tmp_path)


def test_what_python_lacks_is_installed_and_a_half_made_environment_completed(
    machine: Machine,
) -> None:
    machine.add_debian()
    subprocess.run([BASE, "-m", "venv", "--without-pip", machine.environment], check=True)
    kept = machine.environment / "kept"
    kept.touch()
    done = machine.run()
    assert done.returncode == 0, done.stderr
    assert "installing Debian packages: python3-venv" in done.stdout
    assert machine.has_pip()
    assert kept.exists()
    again = machine.run()
    assert (again.returncode, again.stdout, again.stderr) == (0, "", "")


def test_an_environment_whose_python_is_gone_is_made_anew(machine: Machine) -> None:
    machine.brought.touch()
    (machine.environment / "bin").mkdir(parents=True)
    (machine.environment / "bin" / "python").symlink_to("/nonexistent/python3")
    done = machine.run()
    assert done.returncode == 0, done.stderr
    assert machine.has_pip()


def test_where_nothing_can_be_installed_the_package_is_named(machine: Machine) -> None:
    done = machine.run()
    assert done.returncode == 1
    assert "apt-get install python3-venv" in done.stderr
    assert not machine.environment.exists()
