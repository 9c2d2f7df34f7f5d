"""What the two programs load: nothing for --version, and nothing large to run."""

import json
import subprocess
import sys

import pytest

PROGRAMS = ["node_driver_registrar", "livenessprobe"]
NEVER = [
    "aiohttp", "kubernetes_asyncio", "bitts.kube", "bitts.core.serving", "bitts.csi.v1",
    "prometheus_client", "pydantic", "uvloop", "http.server", "importlib.metadata",
]  # fmt: skip


def loaded(module: str) -> set[str]:
    program = f"import {module}, json, sys; print(json.dumps(sorted(sys.modules)))"
    run = [sys.executable, "-c", program]
    return set(json.loads(subprocess.run(run, check=True, capture_output=True).stdout))


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_command_line_is_read_with_little(name: str) -> None:
    found = loaded(f"{name}.__main__, {name}.options")
    assert found.isdisjoint({"asyncio", "logging", "grpclib", "betterproto2", "argparse"})
    assert len(found) < 120


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_program_runs_without_anything_large(name: str) -> None:
    assert loaded(f"{name}.app").isdisjoint(NEVER)
