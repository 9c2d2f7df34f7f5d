"""Boot a kernel with this machine's root file system, let it do one command, and wait for it.

The emulator translates (``tcg``): that works everywhere and is about ten times slower than the
machine itself; one processor costs half of what two do, since nothing has to be kept in step.
What the guest prints on its console is passed on as it comes.
"""

import gzip
import pathlib
import shlex
import shutil
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from support.vm.kernels import Kernel, UnavailableError

EMULATOR = "qemu-system-x86_64"
_HERE = pathlib.Path(__file__).parent
_MODULES = ("virtio_pci", "9pnet_virtio", "9p", "overlay")
_FOLDERS = ("bin", "lib", "proc", "sys", "dev", "ro", "rw", "new")
_GRACE = 10.0


@dataclass(frozen=True, slots=True)
class Guest:
    """What to boot, and what it shall do: a command line in ``folder``, with some variables."""

    kernel: Kernel
    command: Sequence[str]
    folder: pathlib.Path
    environment: Mapping[str, str]
    memory: int = 2048
    """Megabytes; the overlay lives in half of it."""


def boot(
    guest: Guest, exchange: pathlib.Path, *, timeout: float, tell: Callable[[str], None]
) -> int:
    """Boot, wait for the end, and return the command's exit status.

    ``exchange`` is an empty folder that the guest sees, writable, as ``/run/exchange``; results
    come back through it. Raises UnavailableError without an emulator, TimeoutError when the
    guest has not ended after ``timeout`` seconds, OSError when it ended without a status.
    """
    if shutil.which(EMULATOR) is None:
        raise UnavailableError(f"there is no {EMULATOR} here")
    initial = exchange / ".initramfs"
    _write_initramfs(guest.kernel, exchange / ".initial", initial)
    for name, text in orders(guest).items():
        (exchange / name).write_text(text)
    _run(_emulator(guest, exchange, initial), timeout, tell)
    try:
        return int((exchange / "status").read_text())
    except (OSError, ValueError):
        raise OSError("the guest ended before its command did: see its last words") from None


def orders(guest: Guest) -> dict[str, str]:
    """Return the files, by name, that tell the guest what to do."""
    variables = {
        **guest.environment,
        "GUEST_MODULES": str(guest.kernel.modules),
        "GUEST_FOLDER": str(guest.folder),
    }
    lines = [f"export {name}={shlex.quote(value)}" for name, value in variables.items()]
    return {
        "guest": (_HERE / "guest").read_text(),
        "environment": "\n".join(lines) + "\n",
        "command": shlex.join(guest.command) + "\n",
    }


def _write_initramfs(kernel: Kernel, tree: pathlib.Path, target: pathlib.Path) -> None:
    """Pack busybox, the first program and the modules without which there is no root."""
    busybox = shutil.which("busybox")
    assert busybox is not None
    for name in _FOLDERS:
        (tree / name).mkdir(parents=True)
    shutil.copy(busybox, tree / "bin" / "busybox")
    shutil.copy(_HERE / "init", tree / "init")
    (tree / "init").chmod(0o755)
    for number, module in enumerate(kernel.needed(*_MODULES)):
        shutil.copy(module, tree / "lib" / f"{number:02}-{module.name}")
    names = [str(each.relative_to(tree)) for each in sorted(tree.rglob("*"))]
    packed = subprocess.run(
        [busybox, "cpio", "-o", "-H", "newc"], input="\n".join(names).encode(), cwd=tree,
        capture_output=True, check=True, timeout=60,
    )  # fmt: skip
    target.write_bytes(gzip.compress(packed.stdout, 1))


def _emulator(guest: Guest, exchange: pathlib.Path, initial: pathlib.Path) -> list[str]:
    shared = "security_model=none,multidevs=remap"
    return [
        EMULATOR, "-accel", "tcg", "-cpu", "Nehalem", "-nodefaults",
        "-m", str(guest.memory), "-smp", "1",
        "-display", "none", "-serial", "stdio", "-no-reboot",
        "-kernel", str(guest.kernel.image), "-initrd", str(initial),
        "-append", "console=ttyS0 quiet loglevel=3 panic=-1 mitigations=off nopti security=selinux",
        "-virtfs", f"local,path=/,mount_tag=root,readonly=on,{shared}",
        "-virtfs", f"local,path={exchange},mount_tag=exchange,{shared}",
        # Network devices as hardware, wired to nothing: what may be handed to a container.
        "-device", "virtio-net-pci,mac=02:00:00:00:0b:01",
        "-device", "e1000,mac=02:00:00:00:0b:02",
    ]  # fmt: skip


def _run(command: Sequence[str], timeout: float, tell: Callable[[str], None]) -> None:
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, errors="replace",
    ) as emulator:  # fmt: skip
        late = threading.Event()

        def end() -> None:
            late.set()
            emulator.terminate()

        timer = threading.Timer(timeout, end)
        timer.start()
        try:
            assert emulator.stdout is not None
            for line in emulator.stdout:
                tell(line.rstrip())
        finally:
            timer.cancel()
            _end(emulator)
    if late.is_set():
        raise TimeoutError(f"the guest has not ended within {timeout:g} seconds")


def _end(emulator: "subprocess.Popen[str]") -> None:
    """End it if it runs, as after Ctrl-C."""
    emulator.terminate()
    try:
        emulator.wait(_GRACE)
    except subprocess.TimeoutExpired:
        emulator.kill()
