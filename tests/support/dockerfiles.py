"""What our Dockerfiles say an image holds, for whoever makes it without Docker. Pure.

Only what they use is understood; anything else is an error, so that no line of a Dockerfile is
passed over in silence.
"""

import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, replace

BASE = "python:3.11-slim"
VENV = "/opt/bitts"
STDLIB = "/usr/local/lib/python3.11"
_SHIM = "python -m cni_daemon.shim.build"


@dataclass(frozen=True, slots=True)
class Recipe:
    """What is put upon the base.

    ``requirements`` are what pip installs into ``VENV``, ``packages`` Debian's, ``links`` pairs
    of a path and where it leads. ``has_shim``: the CNI shim is compiled into the environment;
    ``is_compiled``: Python's own modules are, which the base leaves to each start.
    """

    requirements: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    links: tuple[tuple[str, str], ...] = ()
    entrypoint: tuple[str, ...] = ()
    path: str = ""
    has_shim: bool = False
    is_compiled: bool = False


@dataclass(frozen=True, slots=True)
class _Stage:
    name: str
    base: str
    lines: tuple[tuple[str, str], ...]


def read(text: str, target: str = "") -> Recipe:
    """Return what the last stage holds, or the one called ``target``.

    Raises ValueError that quotes what is not understood.
    """
    stages = list(_stages(text))
    final = next((one for one in stages if one.name == target), None) if target else stages[-1]
    if final is None:
        raise ValueError(f"no stage is called {target!r}")
    build = next(one for one in stages if one.name == "build")
    return _apply(final, _apply(build, Recipe(), is_final=False), is_final=True)


def _stages(text: str) -> Iterator[_Stage]:
    stage: _Stage | None = None
    for line in _instructions(text):
        word, _, rest = line.partition(" ")
        if word == "FROM":
            if stage is not None:
                yield stage
            base, _, name = rest.partition(" AS ")
            stage = _Stage(name, base, ())
        elif stage is None:
            raise ValueError(f"before any FROM: {line}")
        else:
            stage = replace(stage, lines=(*stage.lines, (word, rest.strip())))
    if stage is None:
        raise ValueError("no FROM")
    yield stage


def _instructions(text: str) -> Iterator[str]:
    kept = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))
    for line in re.sub(r"\\\n\s*", "", kept).splitlines():
        if line.strip():
            yield line.strip()


def _apply(stage: _Stage, recipe: Recipe, *, is_final: bool) -> Recipe:
    if stage.base != BASE:
        raise ValueError(f"FROM {stage.base}: images are made upon {BASE}")
    for word, rest in stage.lines:
        if word == "RUN":
            for command in rest.split("&&"):
                recipe = _run(command.strip(), recipe, is_final=is_final)
        elif word == "ENTRYPOINT":
            recipe = replace(recipe, entrypoint=tuple(json.loads(rest)))
        elif word == "ENV":
            recipe = _environment(rest, recipe)
        elif word == "COPY":
            if is_final and rest != f"--from=build {VENV} {VENV}":
                raise ValueError(f"COPY {rest}: a final stage takes {VENV} from the first")
        elif word != "WORKDIR":
            raise ValueError(f"no rule for {word} {rest}")
    return recipe


def _environment(rest: str, recipe: Recipe) -> Recipe:
    names = {one.partition("=")[0]: one.partition("=")[2] for one in shlex.split(rest)}
    unknown = names.keys() - {"PATH", "PIP_CONSTRAINT", "PIP_BUILD_CONSTRAINT"}
    if unknown:
        raise ValueError(f"no rule for ENV {', '.join(unknown)}")
    return replace(recipe, path=names.get("PATH", recipe.path))


def _run(command: str, recipe: Recipe, *, is_final: bool) -> Recipe:
    if _SHIM in command:
        return replace(recipe, has_shim=True)
    if command.startswith(("bin=", "mkdir -p ")):  # where the shim is put
        return recipe
    words = shlex.split(command)
    match words:
        case ["apt-get", "update"] | ["rm", "-rf", "/var/lib/apt/lists/*"]:
            return recipe
        case ["apt-get", "install", *rest]:
            names = tuple(one for one in rest if not one.startswith("-"))
            return replace(recipe, packages=names) if is_final else recipe
        case ["python", "-m", "venv", place] if place == VENV:
            return recipe
        case [pip, "install", *rest] if pip == f"{VENV}/bin/pip":
            names = tuple(one for one in rest if not one.startswith("-"))
            return replace(recipe, requirements=names)
        case ["python", "-m", "compileall", "-q", "-x", "site-packages", place] if place == STDLIB:
            return replace(recipe, is_compiled=True)
        case ["ln", "-s", target, path]:
            return replace(recipe, links=(*recipe.links, (path, target)))
        case _:
            raise ValueError(f"no rule for RUN {command}")
