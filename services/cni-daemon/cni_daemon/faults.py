"""Instants at which a crash must leak nothing, and the fault flag that makes one happen.

``--fault crash-at=N`` kills the process (SIGKILL, as a real crash) when the N-th instant since
its start is reached; ``--fault crash-at=0`` only counts. Instants are the boundaries between
operations, journal records and address allocations. With a fault set, operations go to the
kernel one by one instead of in batches, so that every boundary is an instant.
"""

import os
import signal
import threading


class FaultError(ValueError):
    """The text after ``--fault`` is none; the message says what is."""


class Reached:
    """Told at every instant. Without a fault it does nothing."""

    wants_every_step = False

    def __call__(self, instant: str) -> None:
        """Let the instant pass."""


class CrashAt(Reached):
    """Kills the process at one instant, having written its name to ``record``."""

    wants_every_step = True

    def __init__(self, number: int, record: str = "") -> None:
        self._number = number
        self._record = record
        self._count = 0
        self._lock = threading.Lock()

    def __call__(self, instant: str) -> None:
        """Count, and crash when it is time."""
        with self._lock:
            self._count += 1
            due = self._count == self._number
            if self._record:
                with open(self._record, "a", encoding="utf-8") as file:
                    file.write(f"{self._count} {instant}\n")
        if due:
            os.kill(os.getpid(), signal.SIGKILL)


def parse(text: str) -> Reached:
    """Read ``crash-at=N`` or ``crash-at=N:FILE`` (instants are listed there). Raises FaultError."""
    name, _, value = text.partition("=")
    number, _, record = value.partition(":")
    if name != "crash-at" or not number.isdecimal():
        raise FaultError(f"{text!r} is no fault: write crash-at=N or crash-at=N:FILE")
    return CrashAt(int(number), record)
