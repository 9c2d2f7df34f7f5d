"""Libraries are imported without what we do not use, and others still find that."""

import pathlib
import subprocess
import sys

import pytest

FINE = "import sys; from bitts.core import lean; "


def run(program: str, folder: pathlib.Path | None = None) -> str:
    command = [sys.executable, "-c", program]
    return subprocess.run(
        command, check=True, capture_output=True, text=True, cwd=folder, timeout=60
    ).stdout


@pytest.fixture
def library(tmp_path: pathlib.Path) -> pathlib.Path:
    (tmp_path / "fat.py").write_text("raise AssertionError('not wanted')\n")
    (tmp_path / "parts.py").write_text("size = 'real'\n")
    text = "try:\n    import fat\nexcept ImportError:\n    fat = None\nimport parts\n"
    (tmp_path / "library.py").write_text(f"{text}size = parts.size\n")
    return tmp_path


LOAD = (
    "import types; stand_in = types.ModuleType('parts'); stand_in.size = 'small'; "
    "lean.load('library', absent=['fat'], instead={'parts': stand_in}); import library; "
)


def test_a_library_finds_modules_missing_or_replaced_and_others_do_not(
    library: pathlib.Path,
) -> None:
    later = "import parts; print(library.fat, library.size, parts.size)"
    assert run(FINE + LOAD + later, library) == "None small real\n"


def test_what_is_loaded_already_is_left_alone(library: pathlib.Path) -> None:
    before = "import parts; "
    assert run(FINE + before + LOAD + "print(library.size)", library) == "real\n"
    (library / "fat.py").write_text("")
    before = "import library; "
    later = "print(library.fat is not None, library.size)"
    assert run(FINE + before + LOAD + later, library) == "True real\n"


def test_a_library_that_fails_to_load_leaves_nothing_hidden(library: pathlib.Path) -> None:
    program = (
        "try:\n    lean.load('missing', absent=['fat'])\nexcept ImportError as error:\n"
        "    print(error.name, 'fat' in sys.modules)"
    )
    assert run(f"{FINE}\n{program}", library) == "missing False\n"


def test_messages_and_metrics_bring_neither_pydantic_nor_a_web_server() -> None:
    program = (
        "import sys; from bitts.core import metrics; from bitts.csi import v1; "
        "import betterproto2; "
        "names = ['pydantic', 'importlib.metadata', 'http.server', 'wsgiref', 'aiohttp']; "
        "print([name for name in names if name in sys.modules]); from importlib import metadata; "
        "print(betterproto2.__version__ == metadata.version('betterproto2')); "
        "import prometheus_client.exposition as writers; print(callable(writers.generate_latest))"
    )
    assert run(program) == "[]\nTrue\nTrue\n"
