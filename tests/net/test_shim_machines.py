"""The shim for the other machine: compiled for it, and run in an emulator of its processor."""

import pathlib
import shutil
import struct
import sys

import pytest
from cni_daemon.installing import fitted
from cni_daemon.shim import build
from support import cnidaemon, netns

pytestmark = pytest.mark.root

OTHER = "aarch64"
ELF_MACHINE = {"x86_64": 62, "aarch64": 183}


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The shim as an image build compiles it."""
    output = tmp_path_factory.mktemp("shim") / "shim"
    build.build(output, OTHER)
    return output.read_bytes()


def test_it_is_a_program_of_that_machine(compiled: bytes) -> None:
    magic, kind, machine = struct.unpack_from("<4s12xHH", compiled)
    assert (magic, kind, machine) == (b"\x7fELF", 2, ELF_MACHINE[OTHER])


def test_it_answers_and_asks_like_ours(
    compiled: bytes, daemon: cnidaemon.Daemon, namespaces: netns.Namespaces
) -> None:
    (daemon.folder / "real").mkdir()
    real = daemon.folder / "real" / "bridge"
    real.write_bytes(fitted(compiled, str(daemon.socket), str(daemon.state / "intents")))
    real.chmod(0o755)
    emulator = shutil.which(f"qemu-{OTHER}")
    assert emulator, "install qemu-user"
    folder = daemon.folder / "other"
    folder.mkdir()
    emulated = folder / "bridge"
    emulated.write_text(f'#!/bin/sh\nexec {emulator} -0 "$0" {real}\n')
    emulated.chmod(0o755)
    pod = namespaces.make("pod")
    config = daemon.config("bridge", ipam="host-local")
    mistaken = {**config, "ipam": {"type": "host-local"}}

    def both(command: str, document: dict[str, object]) -> list[tuple[int, object]]:
        found = [
            cnidaemon.execute(program, command, document, host=daemon.host, pod=pod)
            for program in (daemon.plugins / "bridge", emulated)
        ]
        return [(each.status, each.document) for each in found]

    for command, document in (("VERSION", config), ("ADD", mistaken), ("CHECK", {})):
        ours, theirs = both(command, document)
        assert ours == theirs
        assert ours[0] == (command != "VERSION")
    added = cnidaemon.execute(emulated, "ADD", config, host=daemon.host, pod=pod)
    assert added.status == 0, added.stdout
    assert added.document["ips"][0]["address"] == "10.88.0.2/24"
    assert cnidaemon.execute(emulated, "DEL", config, host=daemon.host, pod=pod).status == 0
    daemon.kill()
    ours, theirs = both("ADD", config)
    assert ours == theirs
    assert ours[0] == 1
    assert cnidaemon.execute(emulated, "DEL", config, host=daemon.host, pod=pod).status == 0
    assert len(daemon.intents) == 1


def test_without_any_compiler_the_wheel_s_is_called(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stand-in for the wheel writes down what it is asked for, and gives a program."""
    package = tmp_path / "ziglang"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "__main__.py").write_text(
        "import pathlib, sys\n"
        f"pathlib.Path({str(tmp_path / 'asked')!r}).write_text('\\n'.join(sys.argv[1:]))\n"
        "pathlib.Path(sys.argv[sys.argv.index('-o') + 1]).write_bytes(b'program')\n"
    )
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.syspath_prepend(str(tmp_path))
    for machine in build.MACHINES:
        output = tmp_path / machine
        build.build(output, machine)
        assert output.read_bytes() == b"program"
        asked = (tmp_path / "asked").read_text().splitlines()
        assert asked[:3] == ["cc", "-target", f"{machine}-linux-musl"]
        assert asked[-1] == str(build.SOURCE)
        assert "-static" in asked
    assert build.compiler(OTHER)[:2] == (sys.executable, "-m")


def test_where_nothing_compiles_the_way_out_is_named(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(build.BuildError, match="install gcc, or let pip install ziglang"):
        build.compiler(OTHER)
    with pytest.raises(build.BuildError, match="no shim for riscv64"):
        build.build(tmp_path / "x", "riscv64")
