"""Where log lines go: a file descriptor that must never make the event loop wait.

A line is normally written at once, so nothing is lost when the process is killed. Only while
the reader does not keep up (a full pipe, a stopped terminal) lines wait in a bounded backlog
that a thread writes; beyond its bound lines are dropped, counted and owned up to.
"""

import contextlib
import os
import select
import threading
from collections import deque
from collections.abc import Callable

_ATOMIC = 4096  # a pipe that polls writable takes this many bytes without blocking


class Sink:
    """Writes whole lines to ``descriptor``; calls must not overlap (a logging handler's lock).

    ``notice`` makes the line that says how many lines were dropped.
    """

    def __init__(
        self, descriptor: int, notice: Callable[[int], bytes], *, backlog: int = 10_000
    ) -> None:
        self._descriptor = descriptor
        self._notice = notice
        self._limit = backlog
        self._dropped = 0
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLOUT)
        self._backlog: deque[bytes] = deque()
        self._spilling = False
        self._changed = threading.Condition()

    def write(self, line: bytes) -> None:
        """Write ``line`` now if that cannot block, else leave it to the thread."""
        if not self._spilling and len(line) <= _ATOMIC and self._poll.poll(0):
            self._put(line)
        else:
            self._spill(line)

    def flush(self, timeout: float) -> bool:
        """Wait up to ``timeout`` seconds for the backlog; say whether all was written."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._spilling, timeout)

    def _put(self, line: bytes) -> None:
        with contextlib.suppress(OSError):  # nobody is left to be told
            while line:
                line = line[os.write(self._descriptor, line) :]

    def _spill(self, line: bytes) -> None:
        with self._changed:
            if len(self._backlog) >= self._limit:
                self._dropped += 1
                return
            self._backlog.append(line)
            if not self._spilling:
                self._spilling = True
                threading.Thread(target=self._drain, name="log writer", daemon=True).start()

    def _drain(self) -> None:
        while True:
            with self._changed:
                if self._backlog:
                    line = self._backlog.popleft()
                elif self._dropped:
                    line, self._dropped = self._notice(self._dropped), 0
                else:
                    self._spilling = False
                    self._changed.notify_all()
                    return
            self._put(line)
