"""The command line of ``devcluster``: what is wrong is named before anything starts."""

import subprocess

import pytest
from support import processes


def devcluster(*words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [processes.script("devcluster"), *words], capture_output=True, text=True, timeout=30
    )


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        ([], 2, "--dir is required"),
        (["--dir=/proc/x"], 1, "--dir=/proc/x: No such file or directory: name a folder"),
        (["--dir=/proc"], 1, "--dir=/proc: "),
        (["--dir=/dev/null"], 1, "--dir=/dev/null: File exists: name a folder"),
        (["--dir=/tmp", "--port=99999"], 2, "--port must be below 65536, not 99999"),
        (["--dir=/tmp", "--kind=mini"], 2, "--kind"),
    ],
    ids=["no folder", "not makeable", "not writable", "a file", "port", "kind"],
)
def test_a_wrong_flag_is_named(words: list[str], code: int, text: str) -> None:
    answer = devcluster(*words)
    assert (answer.returncode, answer.stdout) == (code, "")
    assert text in answer.stderr
    assert "Traceback" not in answer.stderr
