"""What a service imports it declares: its image holds nothing else."""

import ast
import functools
import importlib.metadata
import pathlib
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

ROOT = pathlib.Path(__file__).parents[3]
MEMBERS = sorted(path.parent for path in ROOT.glob("services/*/pyproject.toml"))
OURS = {"bitts", *(path.parent.name for path in ROOT.glob("services/*/*/__init__.py"))}
IMPLIED = {"csi": {"rpc"}}
"""Extras of ``bitts`` that bring others."""


def project(folder: pathlib.Path) -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    return found


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def names(requirements: list[str]) -> set[str]:
    return {normal(re.split(r"[^\w.-]", one, maxsplit=1)[0]) for one in requirements}


@functools.cache
def imported(folder: pathlib.Path) -> frozenset[str]:
    return frozenset(_imported(folder))


def _imported(folder: pathlib.Path) -> Iterator[str]:
    for path in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                yield node.module
                yield from (f"{node.module}.{alias.name}" for alias in node.names)


def distributions(folder: pathlib.Path) -> set[str]:
    """Return whose modules a folder imports, but for the language's and ours."""
    tops = {module.split(".")[0] for module in imported(folder)}
    tops -= sys.stdlib_module_names | OURS
    return {normal(owner) for top in tops for owner in owners().get(top, [top])}


@functools.cache
def owners() -> Mapping[str, list[str]]:
    return importlib.metadata.packages_distributions()


@pytest.mark.parametrize("folder", MEMBERS, ids=lambda path: path.name)
def test_a_service_declares_what_it_imports(folder: pathlib.Path) -> None:
    declared = project(folder)["dependencies"]
    assert distributions(folder) - names(declared) == set()
    (bitts,) = (one for one in declared if one.startswith("bitts["))
    extras = set(re.findall(r"\w+", bitts)) - {"bitts"}
    extras |= {more for one in extras for more in IMPLIED.get(one, ())}
    known = project(ROOT / "libs")["optional-dependencies"]
    used = {
        module.split(".")[1]
        for module in imported(folder)
        if module.startswith("bitts.") and module.split(".")[1] in known
    }
    assert used - extras == set()


@pytest.mark.parametrize("extra", ["rpc", "csi", "net", "kube", "core", "cni", "volumes"])
def test_the_libraries_declare_what_they_import(extra: str) -> None:
    libraries = project(ROOT / "libs")
    optional = libraries["optional-dependencies"]
    declared = names(libraries["dependencies"])
    for one in (extra, *IMPLIED.get(extra, ())):
        declared |= names(optional.get(one, []))
    assert distributions(ROOT / "libs" / "bitts" / extra) - declared == set()


def test_every_pin_has_one_line() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = [line.partition("#")[0].strip() for line in lines]  # a reason may follow a pin
    assert all(re.fullmatch(r"[\w.-]+==\S+", pin) for pin in pins)
    assert len(names(pins)) == len(pins)
    members = [ROOT / "libs", *MEMBERS]
    builders = {
        one
        for member in members
        for one in tomllib.loads((member / "pyproject.toml").read_text())["build-system"][
            "requires"
        ]
    }
    assert names(list(builders)) <= names(pins)
