"""Network namespaces of a test's own, and programs and functions run inside them.

Every name carries the test run's process, so that runs beside each other never meet, and
``Namespaces`` removes what it made whatever happened.
"""

import itertools
import json
import os
import subprocess
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from bitts.net import namespaces

from support import waiting

T = TypeVar("T")
_numbers = itertools.count()


class Namespaces:
    """Makes namespaces and removes them all at the end."""

    def __init__(self) -> None:
        self._names: list[str] = []

    def make(self, label: str = "n") -> str:
        """Make a namespace with a working loopback; returns its path."""
        name = f"bitts-{os.getpid()}-{next(_numbers)}-{label}"
        subprocess.run(["ip", "netns", "add", name], check=True, timeout=waiting.patient(20))
        self._names.append(name)
        return f"/run/netns/{name}"

    def remove(self, path: str) -> None:
        """Remove one before the end, as a runtime does when a pod is gone."""
        name = path.rsplit("/", 1)[1]
        if name in self._names:
            self._names.remove(name)
            subprocess.run(["ip", "netns", "del", name], check=True, timeout=waiting.patient(20))

    def close(self) -> None:
        """Remove all."""
        for name in list(self._names):
            subprocess.run(["ip", "netns", "del", name], check=False, timeout=waiting.patient(20))
        self._names.clear()


def run(path: str, *command: str, text: str | None = None, check: bool = True) -> str:
    """Run a program inside a namespace and return its output."""
    done = subprocess.run(
        ["nsenter", f"--net={path}", "--", *command],
        input=text,
        capture_output=True,
        text=True,
        timeout=waiting.patient(60),
        check=False,
    )
    assert not check or done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


def as_json(path: str, *command: str) -> Any:
    """Run a program that prints JSON inside a namespace."""
    output = run(path, *command)
    return json.loads(output) if output.strip() else []


def inside(path: str, function: Callable[[], T]) -> T:
    """Run a function in a thread that is inside a namespace; its exceptions are raised here."""
    outcome: list[T] = []
    failure: list[BaseException] = []

    def work() -> None:
        try:
            with namespaces.opened(path) as descriptor, namespaces.entered(descriptor):
                outcome.append(function())
        except BaseException as error:  # noqa: BLE001 - handed to the caller
            failure.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(waiting.patient(60))
    if failure:
        raise failure[0]
    assert outcome, f"{function.__qualname__} has not ended inside {path}"
    return outcome[0]


def links(path: str) -> dict[str, dict[str, Any]]:
    """Return every link inside by name, as ``ip -d -j link`` shows it."""
    return {each["ifname"]: each for each in as_json(path, "ip", "-d", "-j", "link", "show")}
