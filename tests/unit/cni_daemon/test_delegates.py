"""Programs that are run for us: what they say is heard, and none of them is waited for for ever."""

import pathlib
from collections.abc import Callable

import pytest
from cni_daemon import delegates
from cni_daemon.delegates import DelegateError
from support import waiting

Program = Callable[[str], dict[str, str]]


@pytest.fixture
def program(tmp_path: pathlib.Path) -> Program:
    """Install a plugin ``other`` of a shell script; returns the environment to run it in."""

    def install(script: str) -> dict[str, str]:
        path = tmp_path / "other"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        return {"CNI_PATH": str(tmp_path), "PATH": "/usr/bin:/bin"}

    return install


def refusal(environment: dict[str, str], stdin: bytes = b"{}", timeout: float = 20.0) -> str:
    with pytest.raises(DelegateError) as caught:
        delegates.run("other", stdin, environment, timeout)
    return caught.value.error.message


def test_a_program_hears_a_long_configuration_and_answers_at_length(program: Program) -> None:
    stdin = b"x" * (delegates.OUTPUT_LIMIT - 1)
    assert delegates.run("other", stdin, program("cat; echo heard >&2")) == stdin


def test_a_program_need_not_read(program: Program) -> None:
    assert delegates.run("other", b"x" * (1 << 20), program("echo done")) == b"done\n"


def test_output_without_end_is_an_error(program: Program) -> None:
    assert "printed more than 1048576 bytes" in refusal(program("yes"))


def test_words_without_end_are_cut_off(program: Program) -> None:
    said = refusal(program("head -c 3000000 /dev/zero | tr '\\0' x >&2; exit 3"))
    assert said.endswith('x": exit status 3')
    assert len(said) < delegates.OUTPUT_LIMIT + 100


def test_a_program_that_goes_on_too_long_ends_with_all_it_started(
    program: Program, tmp_path: pathlib.Path
) -> None:
    environment = program(f"sleep 300 & echo $! >{tmp_path}/child; wait")
    assert "did not end within 0.5 seconds" in refusal(environment, timeout=0.5)
    child = pathlib.Path("/proc") / (tmp_path / "child").read_text().strip() / "stat"
    waiting.until_blocking(
        lambda: not child.exists() or child.read_text().split()[2] == "Z", "end of the child"
    )


def test_a_program_that_closes_its_ends_and_stays_is_not_waited_for(program: Program) -> None:
    environment = program("exec sleep 300 <&- >&- 2>&-")
    assert "did not end within 0.5 seconds" in refusal(environment, timeout=0.5)
