"""The rules that conftest enforces, seen to bite."""

import asyncio
import os
import pathlib
import subprocess
import sys

import pytest
from bitts_console import running, state
from blockbuster import BlockingError
from support import waiting

ROOT = pathlib.Path(__file__).parents[3]


async def test_a_blocking_call_of_ours_in_a_coroutine_is_an_error(tmp_path: pathlib.Path) -> None:
    folders = state.Folders(tmp_path, tmp_path)
    folders.record.write_text("{}")
    with pytest.raises(BlockingError):
        running.read_record(folders)
    assert await asyncio.to_thread(running.read_record, folders) == {}


async def test_a_deadline_names_what_did_not_happen() -> None:
    with pytest.raises(waiting.DeadlineError, match=r"the sun: not within 0.08 s.*None"):
        await waiting.until(lambda: None, "the sun", timeout=0.02)


@pytest.mark.parametrize(
    ("ci", "code", "words"),
    [("true", 1, "nothing may be skipped when CI=true: Skipped: for a reason"), ("", 0, "1 skip")],
    ids=["in-ci", "elsewhere"],
)
def test_a_skip_is_a_failure_in_ci(tmp_path: pathlib.Path, ci: str, code: int, words: str) -> None:
    sample = tmp_path / "test_sample.py"
    sample.write_text("import pytest\ndef test_a() -> None:\n    pytest.skip('for a reason')\n")
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", f"--rootdir={ROOT}"]
    command += ["-c", str(ROOT / "pyproject.toml"), "-p", "conftest", str(sample)]
    environ = {**os.environ, "CI": ci, "PYTHONPATH": str(ROOT / "tests")}
    answer = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=60)
    assert answer.returncode == code, answer.stdout + answer.stderr
    assert words in answer.stdout


def test_one_failure_is_forgiven_but_not_where_a_crash_is_made(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "service"
    folder.mkdir()
    for stem in ("test_sample", "test_recovery"):  # each fails the first time only
        text = f"import pathlib\nmark = pathlib.Path({str(tmp_path / stem)!r})\n"
        text += "def test_a() -> None:\n    before = mark.exists()\n    mark.touch()\n"
        (folder / f"{stem}.py").write_text(f"{text}    assert before\n")
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", f"--rootdir={ROOT}"]
    command += ["-c", str(ROOT / "pyproject.toml"), "-p", "conftest", str(folder)]
    environ = {**os.environ, "PYTHONPATH": str(ROOT / "tests")}
    answer = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=60)
    assert answer.returncode == 1, answer.stdout + answer.stderr
    assert "1 failed, 1 passed, 1 rerun" in answer.stdout
    assert "test_recovery.py::test_a - assert False" in answer.stdout


def test_modules_that_are_tried_once_exist(request: pytest.FixtureRequest) -> None:
    once: frozenset[str] = next(
        one.ONCE for one in request.config.pluginmanager.get_plugins() if hasattr(one, "ONCE")
    )
    there = {path.stem for name in ("service", "net") for path in (ROOT / "tests" / name).glob("*")}
    assert once <= there
