"""What a program loads before it knows what it is asked for: ``--version`` must be instant."""

import json
import subprocess
import sys

import pytest

HEAVY = ["aiohttp", "argparse", "asyncio", "kubernetes_asyncio", "logging", "prometheus_client"]

PROGRAM = """
import json, sys
from bitts.core import features, plans
from bitts.core.flags import FlagSet
from bitts.core.sidecarflags import SidecarFlags
flags = FlagSet("example", version="1")
sidecar = SidecarFlags(flags, timeout=1)
flags.resolve([], sidecar.options)
print(json.dumps(sorted(sys.modules)))
"""


@pytest.fixture(scope="module")
def loaded() -> set[str]:
    run = [sys.executable, "-c", PROGRAM]
    return set(json.loads(subprocess.run(run, check=True, capture_output=True).stdout))


@pytest.mark.parametrize("module", HEAVY)
def test_flags_load_nothing_heavy(loaded: set[str], module: str) -> None:
    assert module not in loaded


def test_flags_load_little(loaded: set[str]) -> None:
    assert len(loaded) < 120
