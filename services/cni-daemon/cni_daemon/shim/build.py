"""Compile the shim: by the machine's compiler, or by the one in the PyPI wheel ``ziglang``.

``python -m cni_daemon.shim.build OUTPUT [MACHINE]`` is what an image build runs; ``install``
compiles by itself where no program lies ready.
"""

import importlib.util
import os
import pathlib
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence

MACHINES = ("x86_64", "aarch64")
SOURCE = pathlib.Path(__file__).with_name("shim.c")
READY = pathlib.Path(__file__).parent / "bin"
"""Where an image build puts programs, named by machine."""

_FLAGS = (
    "-Os", "-static", "-nostdlib", "-nostartfiles", "-ffreestanding", "-fno-stack-protector",
    "-fno-pic", "-no-pie", "-fno-asynchronous-unwind-tables", "-Wall", "-Wextra", "-Werror",
    "-Wl,--build-id=none", "-Wl,-z,noexecstack", "-s",
)  # fmt: skip
_TIMEOUT = 120.0


class BuildError(RuntimeError):
    """The shim cannot be compiled here; the message says what to do."""


def program(machine: str = "") -> bytes:
    """Return the shim for a machine (ours by default). Blocks. Raises BuildError."""
    machine = machine or platform.machine()
    ready = READY / f"cni-shim-{machine}"
    if ready.exists():
        return ready.read_bytes()
    with tempfile.TemporaryDirectory() as folder:
        output = pathlib.Path(folder) / "shim"
        build(output, machine)
        return output.read_bytes()


def build(output: pathlib.Path, machine: str = "") -> None:
    """Compile to a file. Blocks. Raises BuildError."""
    machine = machine or platform.machine()
    if machine not in MACHINES:
        raise BuildError(f"no shim for {machine}: it is written for {', '.join(MACHINES)}")
    command = [*compiler(machine), *_FLAGS, "-o", str(output), str(SOURCE)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT, check=False)
    if done.returncode:
        raise BuildError(f"{' '.join(command)}: {done.stderr.strip()}")
    output.chmod(0o755)


def compiler(machine: str) -> Sequence[str]:
    """Return a command that compiles for a machine. Raises BuildError."""
    names = ("cc", "gcc", "clang") if machine == platform.machine() else ()
    for name in (*names, f"{machine}-linux-gnu-gcc"):
        found = shutil.which(name)
        if found:
            return (found,)
    if importlib.util.find_spec("ziglang"):
        return (sys.executable, "-m", "ziglang", "cc", "-target", f"{machine}-linux-musl")
    raise BuildError(
        f"no C compiler for {machine}: install gcc, or let pip install ziglang into "
        f"{os.path.dirname(sys.executable)}"
    )


if __name__ == "__main__":
    build(pathlib.Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else "")
