"""TCP ports for programs of tests that have to be told one."""

import itertools
import os
import random
import socket

FIRST, LAST = 10000, 32000
"""Below the ports that the kernel gives to whoever asks for any: those it may give to another
between our look and the program's start. Above what services of the machine use."""
_candidates = itertools.count(random.Random(os.getpid()).randrange(LAST))


def free() -> int:
    """Return a port of 127.0.0.1 that nobody listens on; never the same one twice.

    Every process that runs tests begins at another one.
    """
    for candidate in itertools.islice(_candidates, LAST):
        port = FIRST + candidate % (LAST - FIRST)
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise AssertionError("every port is taken")
