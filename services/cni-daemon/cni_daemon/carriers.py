"""Links of the host that are new: whether the kernel takes them for up already."""

import time
from collections.abc import Iterable

from bitts.cni.errors import CniError, Code
from bitts.net import links

TIMEOUT = 3.0
"""Seconds until a new host link must be up; the reference waits 2.5 in steps."""

_FIRST_PAUSE, _LONGEST_PAUSE = 0.0002, 0.02


def wait(names: Iterable[str]) -> None:
    """Wait until links of the host are up. Raises CniError, OSError.

    The kernel takes a link for up a moment after the other end was switched on.
    """
    waited = [each for each in names if not links.is_running(each)]
    if not waited:  # as nearly always
        return
    deadline, pause = time.monotonic() + TIMEOUT, _FIRST_PAUSE
    for name in waited:
        while not links.is_running(name):
            if time.monotonic() > deadline:
                raise CniError(Code.INTERNAL, "bridge port in error state: down")
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
