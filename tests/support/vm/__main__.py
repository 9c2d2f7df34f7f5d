"""Run the tests that this machine's kernel cannot, in the test machine.

``python -m support.vm [pytest arguments]``; without any: all tests marked ``kernel`` or ``guest``.
The exit status is pytest's.
"""

import os
import pathlib
import re
import shutil
import signal
import sys
import tempfile
from collections.abc import Mapping, Sequence

from support import building, kernelkinds
from support.vm import booting, kernels
from support.vm.booting import Guest

TIMEOUT = float(os.environ.get("BITTS_GUEST_TIMEOUT", "1500"))
"""Seconds for everything, booting included; it takes one to two minutes on an idle machine."""

PATIENCE = "8"
"""How many times longer tests wait for something: the emulator is that much slower."""

_TEST_TIMEOUT = 600
_ROOT = pathlib.Path(__file__).parents[3]
_UNAVAILABLE = 69


def main(arguments: Sequence[str]) -> int:
    """Build what the guest will find built, boot it, and tell what it says."""
    os.chdir(_ROOT)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the emulator ends with us
    building.build("cni-plugins", _tell)
    folder = pathlib.Path(tempfile.mkdtemp(prefix="bitts-vm-"))
    try:
        wanted = "" if arguments else ",".join(["none", *sorted(kernelkinds.missing())])
        told = environment(os.environ, wanted)
        guest = Guest(kernels.ready(_tell), _command(arguments), _ROOT, told)
        return booting.boot(guest, folder, timeout=TIMEOUT, tell=_tell)
    except kernels.UnavailableError as error:
        _tell(f"cannot be had: {error}")
        return _UNAVAILABLE
    except (TimeoutError, OSError) as error:
        _tell(f"failed: {error}")
        return 1
    finally:
        _keep_report(folder)
        shutil.rmtree(folder)


def _command(arguments: Sequence[str]) -> list[str]:
    chosen = [*arguments] or [*marked(_ROOT / "tests"), "-m", "kernel or guest"]
    return [
        sys.executable, "-m", "pytest", *chosen, "-p", "no:cacheprovider",
        "-o", f"timeout={_TEST_TIMEOUT}", "-v", "--color=no", "--durations=5",
        "--junitxml=/run/exchange/junit.xml",
    ]  # fmt: skip


def marked(tests: pathlib.Path) -> list[str]:
    """Return the files that have a test for the guest: importing all of them there takes long."""
    mark = re.compile(r"pytest\.mark\.(kernel|guest)\(")
    return [str(each) for each in sorted(tests.rglob("test_*.py")) if mark.search(each.read_text())]


def environment(mine: Mapping[str, str], kinds: str) -> dict[str, str]:
    """Return what the guest's programs need to know; nothing of the caller's own business."""
    return {
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": str(pathlib.Path.home()),
        "LANG": "C.UTF-8",
        "BITTS_GUEST": "1",
        "BITTS_GUEST_KINDS": kinds,
        "BITTS_PATIENCE": PATIENCE,
        **{name: mine[name] for name in ("BITTS_CACHE", "XDG_CACHE_HOME") if name in mine},
    }


def _tell(line: str) -> None:
    if line:
        sys.stdout.write(f"test machine: {line}\n")
        sys.stdout.flush()


def _keep_report(folder: pathlib.Path) -> None:
    """Leave the report where pytest's own would be, if one is asked for."""
    wanted, report = os.environ.get("BITTS_GUEST_REPORT"), folder / "junit.xml"
    if wanted and report.exists():
        shutil.copy(report, wanted)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
