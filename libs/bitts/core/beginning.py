"""What a program does before it loads anything: hear that it is to end.

The first process of a container (PID 1) is not ended by a signal that it has no handler for, and
Python's own handlers for SIGTERM come with the event loop, after half a second of imports. A pod
that is deleted meanwhile would be waited for until its grace time is over.
"""

import os
import signal
from types import FrameType

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def heed_signals() -> None:
    """End at once on a signal, as every other process does, until ``process.run`` listens."""
    if os.getpid() == 1:
        for number in _SIGNALS:
            signal.signal(number, _end)


def _end(number: int, _: FrameType | None) -> None:
    os._exit(128 + number)  # nothing has begun yet; the exit code is that of a killed process
