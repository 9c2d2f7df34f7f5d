"""Root file systems for images of our services, from what this machine has. Blocking.

They stand for what a Dockerfile makes upon ``python:3.11-slim``: this interpreter at the same
place, Debian's packages as they are installed here, and a virtual environment with exactly what
pip would install. There is no more in them, so whatever a service needs and its Dockerfile
does not name is missed.
"""

import hashlib
import os
import pathlib
import platform
import re
import subprocess
import sys
import sysconfig
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from importlib import metadata
from typing import Any

from devcluster import gobuild
from devcluster.kubernetes import oci
from packaging.requirements import Requirement

from support import dockerfiles

Tree = dict[str, "pathlib.Path | str"]
"""Path in the image → the machine's file, or a link's target."""

ROOT = pathlib.Path(__file__).parents[2]
PYTHON = f"python{sys.version_info.major}.{sys.version_info.minor}"
FOLDERS = {"dev": 0o755, "etc": 0o755, "proc": 0o755, "root": 0o700, "run": 0o755, "sys": 0o755}
FOLDERS |= {"tmp": 0o1777, "var": 0o755, "var/lib": 0o755, "var/tmp": 0o1777}
USER_MERGE = {one: f"usr/{one}" for one in ("bin", "lib", "lib64", "sbin")}
CERTIFICATES = pathlib.Path("/etc/ssl/certs/ca-certificates.crt")
_LEFT_OUT = {"test", "tests", "idlelib", "ensurepip", "tkinter", "turtledemo", "lib2to3"}
_LEFT_OUT |= {"site-packages", "dist-packages", "pydoc_data"}
_PAPER = re.compile(r"/usr/share/(doc|man|locale|lintian|info|bash-completion)/|/lib/systemd/")
_ALTERNATIVES = pathlib.Path("/var/lib/dpkg/alternatives")
_TIMEOUT = 60.0


def base(*, is_compiled: bool) -> Tree:
    """Return the interpreter with its library and what both are linked to."""
    stdlib = pathlib.Path(sysconfig.get_path("stdlib"))
    found: Tree = {f"usr/local/bin/{PYTHON}": pathlib.Path(os.path.realpath(sys.executable))}
    found |= {f"usr/local/bin/{name}": PYTHON for name in ("python3", "python")}
    for path in _python_files(stdlib):
        if path.suffix == ".pyc" and not is_compiled:
            continue
        found[f"usr/local/lib/{PYTHON}/{path.relative_to(stdlib)}"] = path
    if CERTIFICATES.exists():
        found[str(CERTIFICATES)[1:]] = pathlib.Path(os.path.realpath(CERTIFICATES))
    return {**USER_MERGE, **libraries(found), **found}


def packages(names: Iterable[str]) -> Tree:
    """Return the files of Debian packages that are installed here, and their libraries."""
    wanted = list(names)
    if not wanted:
        return {}
    lines = _output("dpkg-query", "--listfiles", *wanted).splitlines()
    found: Tree = {}
    for path in (pathlib.Path(line) for line in lines if not _PAPER.search(line)):
        if path.is_symlink() and not path.is_dir():
            found[_merged(path)] = os.readlink(path)
        elif path.is_file():
            found[_merged(path)] = path
    found |= _alternatives(found)
    return {**libraries(found), **found}


def closure(recipe: dockerfiles.Recipe) -> frozenset[str]:
    """Return the distributions from elsewhere that pip would install for a recipe."""
    open_: list[Requirement] = []
    for text in recipe.requirements:
        path, bracket, extras = text.partition("[")
        open_.append(Requirement(project(ROOT / path)["name"] + bracket + extras))
    done: set[tuple[str, str]] = set()
    while open_:
        one = open_.pop()
        for extra in ("", *one.extras):
            if (one.name, extra) not in done:
                done.add((one.name, extra))
                open_ += _required(one.name, extra)
    ours = {project(folder)["name"] for folder in _folders(recipe)}
    return frozenset(name for name, _ in done) - ours


def environment(distributions: Iterable[str]) -> Tree:
    """Return the files of packages from elsewhere in the virtual environment."""
    found: Tree = {}
    for name in distributions:
        for file in metadata.distribution(name).files or ():
            if ".." not in file.parts:
                path = pathlib.Path(str(file.locate()))
                if path.exists():
                    found[f"{_site()}/{file}"] = path
    return {**libraries(found), **found}


def sources(recipe: dockerfiles.Recipe, shim: pathlib.Path | None = None) -> list[oci.Member]:
    """Return what is ours: packages, console scripts, the environment's own files, links."""
    tree: Tree = {}
    for folder in _folders(recipe):
        for name in _packages(folder):
            for path in _python_files(folder / name):
                tree[f"{_site()}/{path.relative_to(folder)}"] = path
    if shim is not None:
        tree[f"{_site()}/cni_daemon/shim/bin/{shim.name}"] = shim
    place = dockerfiles.VENV[1:]
    tree |= {f"{place}/bin/python": "/usr/local/bin/python3", f"{place}/bin/python3": "python"}
    tree |= {path[1:]: target for path, target in recipe.links}
    home = f"home = /usr/local/bin\ninclude-system-site-packages = false\nversion = {_version()}\n"
    texts = [oci.regular(f"{place}/pyvenv.cfg", home.encode())]
    for folder in _folders(recipe):
        for name, entry in project(folder).get("scripts", {}).items():
            texts.append(oci.regular(f"{place}/bin/{name}", _script(entry), 0o755))
    return [*texts, *members(tree)]


def members(tree: Tree) -> Iterator[oci.Member]:
    """Return the entries of a layer; folders come by themselves."""
    for path, source in sorted(tree.items()):
        if isinstance(source, str):
            yield oci.link(path, source)
        else:
            status = source.stat()
            mode, mtime = status.st_mode & 0o755, int(status.st_mtime)
            yield oci.regular(path, source.read_bytes(), mode, mtime)


def libraries(tree: Tree) -> Tree:
    """Return what the ELF files among some are linked to, with the loader."""
    programs = [str(path) for path in tree.values() if isinstance(path, pathlib.Path)]
    programs = [path for path in programs if _is_elf(path)]
    told = _output("ldd", *programs, check=False) if programs else ""
    found: Tree = {}
    for name, place in re.findall(r"^\s+(?:(\S+) => )?(/\S+) \(0x", told, re.MULTILINE):
        path = pathlib.Path(place)
        target = _merged(path)
        if not target.startswith("usr/lib"):  # found by a path inside the program only
            target = f"usr/lib/{name}"
        found[target] = pathlib.Path(os.path.realpath(path))
    return found


def shim() -> pathlib.Path:
    """Compile the shim of cni-daemon as its Dockerfile does, into the cache of this user."""
    from cni_daemon.shim import build

    digest = hashlib.sha256(build.SOURCE.read_bytes()).hexdigest()[:16]
    place = gobuild.cache_directory() / "shim" / digest / f"cni-shim-{platform.machine()}"
    if not place.exists():
        place.parent.mkdir(parents=True, exist_ok=True)
        build.build(place)
    return place


def project(folder: pathlib.Path) -> Mapping[str, Any]:
    """Return what a member of the workspace says about itself."""
    found: dict[str, Any] = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    return found


def _folders(recipe: dockerfiles.Recipe) -> list[pathlib.Path]:
    return [ROOT / one.partition("[")[0] for one in recipe.requirements]


def _packages(folder: pathlib.Path) -> list[str]:
    tool = tomllib.loads((folder / "pyproject.toml").read_text())["tool"]
    names: list[str] = tool["hatch"]["build"]["targets"]["wheel"]["packages"]
    return names


def _required(name: str, extra: str) -> Iterator[Requirement]:
    for text in metadata.distribution(name).requires or ():
        found = Requirement(text)
        if found.marker is None or found.marker.evaluate({"extra": extra}):
            yield found


def _python_files(folder: pathlib.Path) -> Iterator[pathlib.Path]:
    for top, names, files in os.walk(folder):
        names[:] = [one for one in names if one not in _LEFT_OUT and not one.startswith("config-")]
        tag = f".{sys.implementation.cache_tag}.pyc"
        for name in files:
            if name.startswith("_tkinter."):
                continue
            if name.endswith(tag) or not name.endswith((".pyc", ".a")):
                yield pathlib.Path(top, name)


def _script(entry: str) -> bytes:
    module, _, function = entry.partition(":")
    lines = (
        f"#!{dockerfiles.VENV}/bin/python",
        "import sys",
        f"from {module} import {function}",
        f"sys.exit({function}())\n",
    )
    return "\n".join(lines).encode()


def _alternatives(tree: Tree) -> Tree:
    """Return the links by which Debian offers some files under common names."""
    found: Tree = {}
    for path in _ALTERNATIVES.iterdir() if _ALTERNATIVES.is_dir() else ():
        lines = path.read_text().splitlines()
        links = {path.name: lines[1]}
        pairs = lines[2 : lines.index("", 2)] if "" in lines[2:] else []
        links |= dict(zip(pairs[::2], pairs[1::2], strict=True))
        for name, link in links.items():
            chosen = pathlib.Path("/etc/alternatives", name)
            if chosen.is_symlink() and _merged(pathlib.Path(os.readlink(chosen))) in tree:
                found[_merged(pathlib.Path(link))] = os.readlink(chosen)
    return found


def _merged(path: pathlib.Path) -> str:
    """Return where a path of Debian's is once /bin, /lib and /sbin are links into /usr."""
    text = str(path)[1:]
    return f"usr/{text}" if text.partition("/")[0] in USER_MERGE else text


def _is_elf(path: str) -> bool:
    with open(path, "rb") as handle:
        return handle.read(4) == b"\x7fELF"


def _site() -> str:
    return f"{dockerfiles.VENV[1:]}/lib/{PYTHON}/site-packages"


def _version() -> str:
    return ".".join(map(str, sys.version_info[:3]))


def _output(*command: str, check: bool = True) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT, check=check)
    return done.stdout
