"""Disks that are full or read-only: a clear error, nothing half done, what stands stays."""

import pathlib
import subprocess
from collections.abc import Iterator

import pytest
from support import cnidaemon, netns, processes

pytestmark = pytest.mark.root


def mount(folder: pathlib.Path, options: str) -> None:
    folder.mkdir(exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", options, "none", str(folder)]
    subprocess.run(command, check=True, timeout=80)


def remount(folder: pathlib.Path, options: str) -> None:
    command = ["mount", "-o", f"remount,{options}", str(folder)]
    subprocess.run(command, check=True, timeout=80)


@pytest.fixture
def node(
    namespaces: netns.Namespaces, spawner: processes.Processes, short_dir: pathlib.Path
) -> Iterator[cnidaemon.Daemon]:
    """A daemon whose state and addresses lie on small disks, with one attachment that stands."""
    (short_dir / "d").mkdir()
    for name in ("state", "ipam"):
        mount(short_dir / "d" / name, "size=128k")
    made = cnidaemon.Daemon(spawner, namespaces.make("node"), short_dir / "d")
    made.start()
    standing = namespaces.make("standing")
    assert made.call("ADD", config(made), pod=standing, container="stays").status == 0
    yield made
    spawner.close()
    for name in ("state", "ipam"):
        subprocess.run(["umount", str(short_dir / "d" / name)], check=True, timeout=80)


def config(daemon: cnidaemon.Daemon) -> dict[str, object]:
    return daemon.config("bridge", isGateway=True, ipMasq=True, ipam="host-local")


def fill(folder: pathlib.Path) -> pathlib.Path:
    """Fill a disk to its last byte."""
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as file:
        try:
            while file.write(b"x" * 512):
                pass
        except OSError:
            return filler
    return filler


@pytest.mark.parametrize(
    ("disk", "trouble"), [("state", "full"), ("ipam", "full"), ("ipam", "read-only")]
)
def test_nothing_is_half_done(
    node: cnidaemon.Daemon, namespaces: netns.Namespaces, disk: str, trouble: str
) -> None:
    before, addresses = cnidaemon.leftovers(node.host), node.addresses()
    folder, pod = node.folder / disk, namespaces.make("pod")
    if trouble == "full":
        filler = fill(folder)
    else:
        remount(folder, "ro")
    outcome = node.call("ADD", config(node), pod=pod)
    for _ in range(8):  # the last page of a file that is there may have room for some records
        if outcome.status:
            break
        assert node.call("DEL", config(node), pod=pod).status == 0
        outcome = node.call("ADD", config(node), pod=pod)
    assert outcome.error.startswith("5: cannot write"), outcome.error
    assert cnidaemon.leftovers(node.host) == before
    assert node.addresses() == addresses
    if trouble == "full":
        filler.unlink()
    else:
        remount(folder, "rw")
    assert node.call("ADD", config(node), pod=pod).status == 0
    assert node.call("DEL", config(node), pod=pod).status == 0
    assert cnidaemon.leftovers(node.host) == before
    node.kill()
    node.start()
    assert node.addresses() == addresses
