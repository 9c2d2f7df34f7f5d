"""A real firewalld in a namespace of a test's own, with a message bus of its own.

It is unpacked, never installed: installed it would start, and close the machine that tests run
on. It is kept in the user's cache by version; Debian's.
"""

import contextlib
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
from collections.abc import Callable
from typing import TypeVar

from bitts.net.firewalld import Firewalld
from devcluster import gobuild

from support import netns, processes, waiting

T = TypeVar("T")

PACKAGES = ("firewalld", "python3-firewall", "python3-nftables")
_TIMEOUT = 120.0
_PYTHON = "/usr/bin/python3"
_MODULES = "usr/lib/python3/dist-packages"
_BUS = """<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig>
  <type>system</type>
  <listen>unix:path={socket}</listen>
  <auth>EXTERNAL</auth>
  <policy context="default">
    <allow user="*"/>
    <allow own="*"/>
    <allow send_destination="*"/>
    <allow receive_sender="*"/>
  </policy>
</busconfig>
"""


class UnavailableError(RuntimeError):
    """There is no firewalld to be had; the message says why."""


def unpacked() -> pathlib.Path:
    """Return the folder with firewalld's files, fetching them first where needed. Blocks."""
    for program in ("apt-get", "dpkg"):
        if shutil.which(program) is None:
            raise UnavailableError(f"there is no {program} here: it needs a Debian system")
    folder = gobuild.cache_directory() / "firewalld"
    shown = _run("apt-cache", "policy", PACKAGES[0]).stdout
    if "Candidate" not in shown:
        _run("apt-get", "update", "-qq")
        shown = _run("apt-cache", "policy", PACKAGES[0]).stdout
    known = re.search(r"Candidate: (\S+)", shown)
    present = sorted(folder.glob("[0-9]*"), key=lambda each: each.stat().st_mtime)
    if known is None or known[1] == "(none)":
        if not present:
            raise UnavailableError("apt knows no firewalld")
        return present[-1]
    root = folder / known[1].replace("/", "_")
    if not root.exists():
        _unpack(root)
    return root


def _unpack(root: pathlib.Path) -> None:
    root.parent.mkdir(parents=True, exist_ok=True)
    partial = root.with_name(f".{root.name}.{os.getpid()}")
    partial.mkdir()
    done = _run("apt-get", "download", "-q", *PACKAGES, cwd=partial)
    archives = [*partial.glob("*.deb")]
    if len(archives) != len(PACKAGES):
        shutil.rmtree(partial)
        raise UnavailableError(f"{PACKAGES[0]} cannot be downloaded: {done.stderr.strip()}")
    for archive in archives:
        _run("dpkg", "-x", str(archive), str(partial))
        archive.unlink()
    try:
        partial.rename(root)
    except OSError:  # somebody else was quicker
        shutil.rmtree(partial)


def _run(*command: str, cwd: pathlib.Path | None = None) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        command, capture_output=True, text=True, timeout=_TIMEOUT, check=False, cwd=cwd
    )


class Bus:
    """A message bus that lets everybody do everything; it runs until it is stopped."""

    def __init__(self, spawner: processes.Processes, folder: pathlib.Path) -> None:
        self._spawner = spawner
        self._socket = folder / "bus"
        self._settings = folder / "bus.conf"
        self._settings.write_text(_BUS.format(socket=self._socket))
        self.address = f"unix:path={self._socket}"
        self.start()

    def start(self) -> None:
        """Start, and wait until somebody may connect."""
        program = shutil.which("dbus-daemon")
        if program is None:
            raise UnavailableError("there is no dbus-daemon here")
        self._socket.unlink(missing_ok=True)
        words = [program, f"--config-file={self._settings}", "--nofork", "--nopidfile"]
        self._process = self._spawner.spawn([*words, "--nosyslog"], name="dbus-daemon")
        self._process.wait_ready_blocking(self._listens, "bus")

    def _listens(self) -> bool:
        """Say whether it takes connections: its socket is there a moment before."""
        with socket.socket(socket.AF_UNIX) as asking:
            return asking.connect_ex(str(self._socket)) == 0

    def stop(self) -> None:
        """End it, and all connections."""
        self._process.kill()
        waiting.until_blocking(lambda: not self._process.alive, "end of the bus")


class Firewall:
    """A bus, and on it a firewalld in a namespace, which can be started and stopped."""

    def __init__(self, spawner: processes.Processes, host: str, folder: pathlib.Path) -> None:
        self.host = host
        self._spawner = spawner
        self._root = unpacked()
        self._folder = folder
        self._settings = folder / "etc"
        self._process: processes.Process | None = None
        self.address = Bus(spawner, folder).address
        """Of the bus; programs find it by ``DBUS_SYSTEM_BUS_ADDRESS``."""
        shutil.copytree(self._root / "etc" / "firewalld", self._settings)
        written = self._settings / "firewalld.conf"
        # Not every kernel has what looks for the way back.
        written.write_text(re.sub("(?m)^IPv6_rpfilter=.*", "IPv6_rpfilter=no", written.read_text()))

    def start(self) -> None:
        """Start firewalld, and wait until it serves."""
        self._process = self._spawner.spawn(
            ["/usr/bin/nsenter", f"--net={self.host}", "--", _PYTHON,
             str(self._root / "usr/sbin/firewalld"), "--nofork", "--nopid",
             "--default-config", str(self._root / "usr/lib/firewalld"),
             "--system-config", str(self._settings), "--log-target", "console"],
            name="firewalld",
            environ={"DBUS_SYSTEM_BUS_ADDRESS": self.address,
                     "PYTHONPATH": str(self._root / _MODULES)},
        )  # fmt: skip
        self._process.wait_ready_blocking(self.is_running, "firewalld")

    def stop(self) -> None:
        """End firewalld in order: it forgets what was not permanent."""
        process = self._process
        assert process is not None
        process.send_signal(signal.SIGTERM)
        waiting.until_blocking(lambda: not process.alive, "end of firewalld")
        waiting.until_blocking(lambda: not self.is_running(), "its name to be free")

    def is_running(self) -> bool:
        """Say whether it is on the bus."""
        return self._asked(lambda each: each.is_running())

    def sources(self, zone: str = "trusted") -> list[str]:
        """Return the sources of a zone."""
        return sorted(self._asked(lambda each: each.sources(zone)))

    def reload(self) -> None:
        """Let it read its configuration anew, and forget what is not written there."""
        command = (_PYTHON, str(self._root / "usr/bin/firewall-cmd"), "--reload")
        about = ("DBUS_SYSTEM_BUS_ADDRESS=" + self.address, f"PYTHONPATH={self._root / _MODULES}")
        netns.run(self.host, "env", *about, *command)

    def _asked(self, question: Callable[[Firewalld], T]) -> T:
        """Ask it from within its namespace, by a connection of its own."""

        def ask() -> T:
            with contextlib.closing(Firewalld(self.address)) as asking:
                return question(asking)

        return netns.inside(self.host, ask)
