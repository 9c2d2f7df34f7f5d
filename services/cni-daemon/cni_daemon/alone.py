"""One daemon per network namespace, whatever sockets and folders each has been given.

Two would take each other's links and rules for leftovers. What tells them of each other is a
socket with an abstract name, which belongs to the namespace and goes with its process. Anybody
may bind such a name, so only a daemon of a user whom we would obey is one.
"""

import asyncio
import contextlib
import errno
import os
import socket
import struct
from collections.abc import AsyncIterator

from bitts.core import logs
from bitts.core.process import ExitError

from cni_daemon import names

_NAME = f"\0bitts {names.PROGRAM}"
_CREDENTIALS = struct.Struct("3i")
_TIMEOUT = 2.0


@contextlib.asynccontextmanager
async def alone() -> AsyncIterator[None]:
    """Be the only daemon in this process' network namespace. Raises ExitError where one is."""
    held = await asyncio.to_thread(_held)
    loop = asyncio.get_running_loop()
    loop.add_reader(held, _answer, held)
    try:
        yield
    finally:
        loop.remove_reader(held)
        held.close()


def _answer(held: socket.socket) -> None:
    """Let whoever asks see whose the name is, which the kernel tells."""
    with contextlib.suppress(OSError):
        accepted, _ = held.accept()
        accepted.close()


def _held() -> socket.socket:
    found = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        found.bind(_NAME)
        found.listen()
        found.setblocking(False)
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            found.close()
            raise ExitError(1, f"cannot be known as the only {names.PROGRAM}: {error}") from error
        holder, user = _holder()
        if user in {0, os.geteuid()}:
            found.close()
            raise ExitError(
                1,
                f"another {names.PROGRAM} (process {holder}) works in this network namespace: stop "
                "it first",
            ) from None
        logs.get("alone").warning("Somebody else uses our name", process=holder, user=user)
    return found


def _holder() -> tuple[int, int]:
    """Return process and user of whoever has the name; -1 if it has gone or does not listen."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as asking:
        asking.settimeout(_TIMEOUT)
        try:
            asking.connect(_NAME)
        except OSError:
            return -1, -1
        said = asking.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    process, user, _ = _CREDENTIALS.unpack(said)
    return process, user
