"""Tests that need kinds of links which not every kernel has: here, or in the test machine.

A test says ``@pytest.mark.kernel(kinds=["vlan"])``. Where the running kernel makes such links
it runs like any other; elsewhere it is left to ``make test-vm``, which runs it under Debian's
kernel (``support.vm``). A test that hands hardware to containers says
``@pytest.mark.guest(reason=…)`` and runs only there. Register this module as a plugin.
"""

import ctypes
import errno
import functools
import os
import threading
from collections.abc import Iterable

import pytest
from bitts.net import links
from bitts.net.links import Change
from bitts.net.sockets import Socket

from support import selection

IN_GUEST = os.environ.get("BITTS_GUEST") == "1"
"""Whether this is the test machine."""

WANTED = frozenset(filter(None, os.environ.get("BITTS_GUEST_KINDS", "").split(",")))
"""In the test machine: the kinds that are missing outside; empty when tests were named."""

_NEWNET = 0x40000000
_SAID = "left to the test machine: {} tests: make test-vm"


def pytest_configure(config: pytest.Config) -> None:
    """Describe the markers."""
    for line in (
        "kernel(kinds): needs kinds of links; runs in the test machine where this kernel has none",
        "guest(reason): runs only in the test machine (make test-vm)",
    ):
        config.addinivalue_line("markers", line)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what the test machine will run."""
    if os.geteuid() != 0 or (IN_GUEST and not WANTED):
        return
    left = [item for item in items if is_for_guest(item) != IN_GUEST]
    if left:
        items[:] = [item for item in items if item not in left]
        if not IN_GUEST:
            config.stash.setdefault(selection.LEFT_OUT, {})[_SAID] = len(left)
        config.hook.pytest_deselected(items=left)


def is_for_guest(item: pytest.Item) -> bool:
    """Say whether a test cannot run under the kernel outside."""
    if item.get_closest_marker("guest"):
        return True
    wanted = WANTED or missing()
    return any(
        kind in wanted for mark in item.iter_markers("kernel") for kind in mark.kwargs["kinds"]
    )


KINDS = ("dummy", "ipvlan", "macvlan", "vlan", "vrf")
"""Kinds that tests may ask for."""


@functools.cache
def missing() -> frozenset[str]:
    """Return the kinds that this kernel does not know, or cannot load. Needs root."""
    found: set[str] = set()
    thread = threading.Thread(target=lambda: found.update(_unknown(KINDS)))
    thread.start()
    thread.join()
    return frozenset(found)


def _unknown(kinds: Iterable[str]) -> list[str]:
    """Try each in a namespace of this thread's own, which ends with it."""
    if ctypes.CDLL(None).unshare(_NEWNET) != 0:
        return list(kinds)
    with Socket() as channel:
        tried = [links.create(kind, "probe0", change=Change()) for kind in kinds]
        answers = channel.attempt(tried)
    return [
        kind
        for kind, answer in zip(kinds, answers, strict=True)
        if answer.error == errno.EOPNOTSUPP
    ]
