"""``python -m devcluster.kubernetes``: have every program of a cluster ready (``make cluster``)."""

import os
import subprocess
import sys

from devcluster import gobuild
from devcluster.kubernetes import binaries


def main() -> int:
    """Build what is missing; return the exit code."""
    try:
        paths = binaries.build(binaries.EVERY, os.environ, _say)
    except (gobuild.ToolchainError, subprocess.SubprocessError, OSError) as error:
        _say(f"make cluster: {binaries.explain(error)}")
        return 1
    folders = sorted({str(path.parent) for path in paths.values()})
    _say(f"{len(paths)} programs are ready in {', '.join(folders)}")
    return 0


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
