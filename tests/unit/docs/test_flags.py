"""Whoever searches a program's page for a flag finds it, written out."""

import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[3]
BIN = pathlib.Path(sys.executable).parent


@pytest.mark.parametrize(
    ("program", "page"),
    [
        ("csi-provisioner", "provisioner.md"),
        ("csi-node-driver-registrar", "registrar.md"),
        ("livenessprobe", "livenessprobe.md"),
        ("devcluster", "devcluster.md"),
        ("local-driver", "local-driver.md"),
        ("cni-daemon", "cni-daemon.md"),
    ],
)
def test_every_flag_of_help_stands_in_the_program_s_page(program: str, page: str) -> None:
    done = subprocess.run([BIN / program, "--help"], capture_output=True, text=True, timeout=30)
    flags = re.findall(r"^ *(--[\w-]+)", done.stdout + done.stderr, re.MULTILINE)
    assert len(flags) > 10
    words = set(re.findall(r"(?<![\w-])--?[a-z][\w-]*", (ROOT / "docs" / page).read_text()))
    assert {"-v" if flag == "--v" else flag for flag in flags} - words == set()
