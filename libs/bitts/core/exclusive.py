"""One process per state directory: a lock that goes with its holder, however that ends."""

import asyncio
import contextlib
import errno
import fcntl
import os
import pathlib
from collections.abc import AsyncIterator

from bitts.core.process import ExitError


@contextlib.asynccontextmanager
async def holding(
    state: pathlib.Path, program: str, flag: str = "--state-dir"
) -> AsyncIterator[None]:
    """Hold ``state`` (made if it is missing) for ``program`` alone.

    Raises ExitError(1) naming the flag that chose it if it cannot be had.
    """
    try:
        handle = await asyncio.to_thread(_lock, state, program)
    except OSError as error:
        raise ExitError(1, f"{flag} {state}: {error.strerror or error}") from error
    try:
        yield
    finally:
        os.close(handle)


def _lock(state: pathlib.Path, program: str) -> int:
    state.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle = os.open(state / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise OSError(errno.EBUSY, f"another {program} works here: stop it first") from None
    return handle
