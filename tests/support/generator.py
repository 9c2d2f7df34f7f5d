"""A Python that can run scripts/generate.py: an environment apart from the one of the tests.

The compiler brings pydantic, which betterproto2 loads wherever it is installed, so it may not
stand beside the services. The environment is made once, in the cache folder.
"""

import fcntl
import hashlib
import pathlib
import subprocess
import sys

from devcluster import gobuild

ROOT = pathlib.Path(__file__).parent.parent.parent
REQUIREMENTS = ("requirements-generate.txt", "constraints.txt")
INSTALL_TIMEOUT = 600.0


def python() -> pathlib.Path:
    """Return the interpreter of an environment with the compiler, making it where needed."""
    pins = b"".join((ROOT / name).read_bytes() for name in REQUIREMENTS)
    digest = hashlib.sha256(pins + sys.version.encode()).hexdigest()[:16]
    home = gobuild.cache_directory() / f"generate-{digest}"
    home.parent.mkdir(parents=True, exist_ok=True)
    found = home / "bin" / "python"
    ready = home / ".ready"
    with home.with_name(f"{home.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not ready.exists():
            _run([sys.executable, "-m", "venv", "--clear", str(home)])
            install = [str(found), "-m", "pip", "install", "--quiet"]
            _run([*install, "--disable-pip-version-check", "-r", REQUIREMENTS[0]])
            ready.touch()
    return found


def _run(command: list[str]) -> None:
    subprocess.run(command, cwd=ROOT, check=True, timeout=INSTALL_TIMEOUT)
