"""What tests need is built before the first one runs; a failure is left to those that need it."""

import os
import pathlib
import subprocess
import sys

import pytest

TESTS = pathlib.Path(__file__).parents[2]
CONFTEST = """
from support import building

def pytest_collection_finish(session):
    building.build_wanted(session)
"""
CHOSEN = """
import pathlib, pytest

@pytest.mark.builds("csi-sanity")
def test_needs_it():
    assert pathlib.Path("built").read_text().split() == ["csi-sanity"]

@pytest.mark.builds("kubectl")
def test_is_not_chosen():
    pass
"""
GO = """#!/bin/sh
[ "$1" = version ] && echo "go version go1.26.6 linux/amd64" && exit
for word; do [ "$before" = -o ] && target=$word; before=$word; done
[ -z "$BROKEN" ] || exit 1
echo made > "$target"
basename "$target" .partial >> "$BUILT"
"""


@pytest.fixture
def folder(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """A folder with tests, and a compiler that only notes what it is asked for."""
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_chosen.py").write_text(CHOSEN)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "go").write_text(GO)
    (tmp_path / "bin" / "go").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    monkeypatch.setenv("BITTS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PYTHONPATH", str(TESTS))
    monkeypatch.setenv("BUILT", str(tmp_path / "built"))
    return tmp_path


def run(folder: pathlib.Path, *words: str) -> str:
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-c", os.devnull]
    command += ["--rootdir", str(folder), *words]
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=60, check=False
    )
    return done.stdout + done.stderr


def test_only_what_chosen_tests_name_is_built_and_first(folder: pathlib.Path) -> None:
    told = run(folder, "-k", "needs", "test_chosen.py")
    assert "building csi-sanity from source" in told
    assert "1 passed" in told
    assert "building" not in run(folder, "-k", "needs", "test_chosen.py"), "the second time"


def test_nothing_is_built_to_list_tests(folder: pathlib.Path) -> None:
    assert "2 tests collected" in run(folder, "--collect-only", "test_chosen.py")
    assert not (folder / "built").exists()


def test_what_cannot_be_built_is_told_and_does_not_stop_the_others(
    folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BROKEN", "yes")
    told = run(folder, "test_chosen.py")
    assert "csi-sanity cannot be built" in told
    assert "1 failed, 1 passed" in told
