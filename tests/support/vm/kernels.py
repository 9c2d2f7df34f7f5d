"""Debian's kernel, unpacked, never installed; kept in the user's cache by version."""

import contextlib
import fcntl
import pathlib
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from devcluster import gobuild

META_PACKAGE = "linux-image-amd64"
"""Debian's package that depends on the newest kernel of the release."""

_TIMEOUT = 300.0
_FINISHED = "release"
_DRIVERS = {"net", "virtio", "block", "infiniband", "md", "pci", "char", "vhost", "uio", "vfio"}
"""Folders of drivers that are kept: others are for hardware that no emulator has."""
_CARDS = {"e1000"}
"""Network cards that the emulator has."""


class UnavailableError(RuntimeError):
    """There is no kernel to be had; the message says why."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """An unpacked kernel: ``root`` holds its image, and its modules under ``lib/modules``."""

    root: pathlib.Path
    release: str

    @property
    def image(self) -> pathlib.Path:
        """The file to boot."""
        return self.root / "vmlinuz"

    @property
    def modules(self) -> pathlib.Path:
        """The folder that is ``/lib/modules/RELEASE`` in the guest."""
        return self.root / "lib" / "modules" / self.release

    def needed(self, *names: str) -> list[pathlib.Path]:
        """Return the files of modules and all that they need, in the order of insertion."""
        found: dict[pathlib.Path, None] = {}
        for name in names:
            shown = _run(
                "modprobe", "-d", str(self.root), "-S", self.release, "--show-depends", name
            )
            found |= {
                pathlib.Path(line.split()[1]): None for line in shown.splitlines() if "/" in line
            }
        return list(found)


def ready(announce: Callable[[str], None]) -> Kernel:
    """Return the newest kernel that Debian has, or that is here already. Blocks.

    Raises UnavailableError.
    """
    folder = gobuild.cache_directory() / "vm"
    try:
        package, version = _newest()
    except UnavailableError:
        present = sorted(folder.glob(f"*/{_FINISHED}"), key=lambda each: each.stat().st_mtime)
        if not present:
            raise
        return _of(present[-1].parent)
    root = folder / f"{package}_{version}"
    folder.mkdir(parents=True, exist_ok=True)
    with _locked(folder / ".lock"):
        if not (root / _FINISHED).exists():
            announce(f"downloading {package} {version} (once; kept in {folder})")
            _unpack(package, root)
    return _of(root)


def _of(root: pathlib.Path) -> Kernel:
    return Kernel(root, (root / _FINISHED).read_text())


def _newest() -> tuple[str, str]:
    """Return name and version of the newest kernel package that apt knows of."""
    for program in ("apt-cache", "dpkg", "modprobe", "depmod", "busybox"):
        if shutil.which(program) is None:
            raise UnavailableError(f"there is no {program} here: it needs a Debian system")
    depends = _run("apt-cache", "depends", META_PACKAGE)
    if not depends:
        _run("apt-get", "update", "-qq")
        depends = _run("apt-cache", "depends", META_PACKAGE)
    named = re.search(r"Depends: (linux-image-\S+)", depends)
    known = re.search(r"Candidate: (\S+)", _run("apt-cache", "policy", named[1])) if named else None
    if named is None or known is None or known[1] == "(none)":
        raise UnavailableError(f"apt knows no {META_PACKAGE}: it is Debian's, for x86-64")
    return named[1], known[1]


def _unpack(package: str, root: pathlib.Path) -> None:
    partial = root.with_name(f".{root.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    done = subprocess.run(
        ["apt-get", "download", "-q", package], cwd=partial, capture_output=True, text=True,
        timeout=_TIMEOUT, check=False,
    )  # fmt: skip
    archives = list(partial.glob("*.deb"))
    if not archives:
        raise UnavailableError(f"{package} cannot be downloaded: {done.stderr.strip()}")
    _run("dpkg", "-x", str(archives[0]), str(partial / "package"))
    archives[0].unlink()
    unpacked = partial / "package"
    (modules,) = (unpacked / "lib" / "modules").iterdir()
    release = modules.name
    (unpacked / "boot" / f"vmlinuz-{release}").rename(partial / "vmlinuz")
    _prune(modules / "kernel")
    (unpacked / "lib").rename(partial / "lib")
    shutil.rmtree(unpacked)
    _run("depmod", "-b", str(partial), release)
    (partial / _FINISHED).write_text(release)
    shutil.rmtree(root, ignore_errors=True)
    partial.rename(root)


def _prune(kernel: pathlib.Path) -> None:
    """Leave out what makes most of the size and is of no use: sound, graphics, hardware."""
    shutil.rmtree(kernel / "sound", ignore_errors=True)
    for each in (kernel / "drivers").iterdir():
        if each.name not in _DRIVERS:
            shutil.rmtree(each)
    shutil.rmtree(kernel / "drivers" / "net" / "wireless", ignore_errors=True)
    for each in (kernel / "drivers" / "net" / "ethernet").glob("*/*"):
        if each.name not in _CARDS:
            shutil.rmtree(each) if each.is_dir() else each.unlink()


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT, check=False)
    return done.stdout


@contextlib.contextmanager
def _locked(path: pathlib.Path) -> Iterator[None]:
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
