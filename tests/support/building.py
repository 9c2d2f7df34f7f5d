"""Builds what tests need from elsewhere before the first one runs.

A test's time limit is for the test: on a fresh machine upstream's programs take minutes to
download and compile, and a limit that strikes meanwhile would end the whole run. A test names
what it needs by ``@pytest.mark.builds("kubectl")``; only what the chosen tests name is built.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from devcluster import gobuild
from devcluster.kubernetes import binaries

from support import generator, peers

COMPILER = "proto-compiler"
"""The name of the environment in which ``make generate`` runs."""
KUBERNETES = "kubernetes"
"""The name of all programs of a full Kubernetes: ``make cluster``."""


def wanted(items: Iterable[pytest.Item]) -> list[str]:
    """Return the names that tests ask for, each once."""
    marks = (mark for item in items for mark in item.iter_markers("builds"))
    return sorted({name for mark in marks for name in mark.args})


def build_wanted(session: pytest.Session) -> None:
    """Build it all; what cannot be built is left to the tests, which say so one by one."""
    if session.config.option.collectonly:
        return
    capture: Any = session.config.pluginmanager.get_plugin("capturemanager")

    def announce(line: str) -> None:
        with capture.global_and_fixture_disabled():  # workers have no terminal reporter
            print(line, file=sys.stderr, flush=True)  # noqa: T201

    for name in wanted(session.items):
        try:
            build(name, announce)
        except (gobuild.ToolchainError, subprocess.SubprocessError, OSError) as error:
            announce(f"{name} cannot be built: {error}")


def build(name: str, announce: Callable[[str], None]) -> None:
    """Build a program, every program of a module of ``tests/peers``, or find them built."""
    if name == COMPILER:
        generator.python()
    elif name == KUBERNETES:
        binaries.build(binaries.EVERY, os.environ, announce)
    elif name == "kubectl":
        peers.tool(name, announce)
    else:
        for program in gobuild.tools(peers.MODULES / name):
            gobuild.build(peers.MODULES / name, program, announce=announce)
