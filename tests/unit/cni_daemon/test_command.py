"""The command line, the faults, and installing the shim."""

import pathlib
import subprocess
import sys

import pytest
from bitts.core.flags import FlagError
from cni_daemon import faults, installing, names, options, requests
from cni_daemon.faults import FaultError
from cni_daemon.installing import Installation
from cni_daemon.shim import build


def chosen(*arguments: str) -> options.Options:
    flags = options.Flags()
    return flags.options(flags.set.parse(arguments))


def test_defaults_are_those_of_a_node() -> None:
    found = chosen()
    assert found.socket == names.SOCKET
    assert str(found.intents) == f"{names.STATE_DIRECTORY}/intents"
    assert found.introspection_socket == "/run/bitts/bitts-cni-daemon.sock"
    assert not found.reached.wants_every_step


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("--socket=relative", "must be an absolute path"),
        (f"--socket=/{'x' * 120}", "at most 100 bytes"),
        ("--fault=explode", "write crash-at=N"),
        ("--metrics-path=metrics", "must begin with"),
        ("--runtime-endpoint=tcp:1", "--runtime-endpoint .* must be an absolute path"),
        ("--runtime-interval=0", "--runtime-interval must be greater than 0"),
    ],
)
def test_wrong_flags_are_named(argument: str, message: str) -> None:
    with pytest.raises(FlagError, match=message):
        chosen(argument)


def test_a_file_says_what_flags_would(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "cni.toml"
    path.write_text('deadline = "20s"\nnice = 5\nhttp-endpoint = ":9100"\n')
    found = options.Flags().resolve([f"--config={path}", "--nice=1"])
    assert (found.deadline, found.niceness, found.http.endpoint) == (20.0, 1, ":9100")


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys\nsys.argv[1:] = ['--help']\n"
        "from cni_daemon.__main__ import main\n"
        "try: main()\nexcept SystemExit: pass\n"
        "heavy = ('asyncio', 'grpclib', 'aiohttp', 'pyroute2', 'tomllib', 'json')\n"
        "print([m for m in heavy if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"


def test_instants_are_counted_and_written_down(tmp_path: pathlib.Path) -> None:
    reached = faults.parse(f"crash-at=0:{tmp_path / 'instants'}")
    reached("one")
    reached("two")
    assert (tmp_path / "instants").read_text() == "1 one\n2 two\n"
    for text in ("crash-at", "crash-at=x", "other=1"):
        with pytest.raises(FaultError):
            faults.parse(text)


@pytest.fixture
def installation(tmp_path: pathlib.Path) -> Installation:
    return Installation(
        tmp_path / "bin", str(tmp_path / "s.sock"), str(tmp_path / "state"),
        requests.served_types(),
    )  # fmt: skip


def test_the_shim_takes_the_place_of_plugins_and_gives_it_back(
    installation: Installation,
) -> None:
    installation.folder.mkdir()
    (installation.folder / "bridge").write_bytes(b"the reference plugin")
    (installation.folder / "other").write_bytes(b"a stranger")
    for _ in range(2):  # again, as on an update
        installing.install(installation)
        assert all(installing.is_shim(installation.folder / n) for n in installation.plugins)
        assert not list(installation.folder.glob(".bitts-[0-9a-f]*"))
    inodes = {(installation.folder / name).stat().st_ino for name in installation.plugins}
    assert len(inodes) == 1  # one file under every name
    installing.uninstall(installation)
    installing.uninstall(installation)
    assert {each.name for each in installation.folder.iterdir()} == {"bridge", "other"}
    assert (installation.folder / "bridge").read_bytes() == b"the reference plugin"


def test_paths_are_written_into_the_shim() -> None:
    program = build.program()
    fitted = installing.fitted(program, "/run/other.sock", "/var/other")
    assert len(fitted) == len(program)
    assert b"BITTS-SHIM-SOCK\0/run/other.sock\0" in fitted
    with pytest.raises(ValueError, match="longer than"):
        installing.fitted(program, "/" + "x" * 110, "/var/other")
    with pytest.raises(ValueError, match="no place"):
        installing.fitted(b"something", "/a", "/b")


def test_an_unknown_plugin_is_not_installed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        installing.run("install", ["--plugins=bridge,weave"])
    assert "'weave' is none of" in capsys.readouterr().err


def test_the_shim_names_its_versions_without_a_daemon(installation: Installation) -> None:
    installing.install(installation)
    program = installation.folder / "bridge"
    about = subprocess.run(
        [program], capture_output=True, text=True, env={}, timeout=10, check=True
    )
    assert about.stderr.startswith("CNI bridge plugin")
    asked = subprocess.run(
        [program], capture_output=True, text=True, env={"CNI_COMMAND": "VERSION"}, timeout=10,
        check=True,
    )  # fmt: skip
    assert asked.stdout.startswith('{"cniVersion":"1.1.0","supportedVersions":["0.1.0",')


def test_no_shim_is_promised_for_an_unknown_machine() -> None:
    with pytest.raises(build.BuildError, match="no shim for s390x"):
        build.program("s390x")
