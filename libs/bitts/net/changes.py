"""Has anything changed since? Asked before what was seen a while ago is taken for true.

The kernel announces every change of a link, an address or the forwarding of packets. Who keeps
what it saw need not look again as long as nothing was announced, and a look costs more than all
else that is asked of the kernel before a container can be attached.
"""

import errno
import select
import socket

from bitts.net import filters

SETTINGS = frozenset({"ipv4/ip_forward", "ipv6/conf/all/forwarding"})
"""The settings whose changes are announced."""

_SOL_NETLINK = 270
_ADD_MEMBERSHIP = 1
_LINK, _IPV4_ADDRESS, _IPV6_ADDRESS, _IPV4_NETCONF, _IPV6_NETCONF = 1, 5, 9, 24, 25
_NEW_NETCONF, _DELETE_NETCONF = 80, 81
_SCOPE = 24
"""Where a message about settings has what it is about: the index of a link, or -1 for all."""

_RECEIVE = 1 << 16


class Changes:
    """Listens in the namespace that it is made in, to what concerns links of small indexes.

    Links with an index of ``below`` (a power of two) or more come and go unheard.
    """

    def __init__(self, below: int) -> None:
        self._socket = socket.socket(
            socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC, 0
        )
        self._arrived = select.poll()
        self._arrived.register(self._socket, select.POLLIN)
        try:
            filters.attach(self._socket, _filter(below))
            self._socket.bind((0, 0))
            for group in (_LINK, _IPV4_ADDRESS, _IPV6_ADDRESS, _IPV4_NETCONF, _IPV6_NETCONF):
                self._socket.setsockopt(_SOL_NETLINK, _ADD_MEMBERSHIP, group)
        except OSError:
            self._socket.close()
            raise

    def close(self) -> None:
        """Listen no longer."""
        self._socket.close()

    def happened(self) -> bool:
        """Say whether anything changed since this was asked last. Raises OSError."""
        if not self._arrived.poll(0):
            return False
        found = False
        while True:
            try:
                self._socket.recv(_RECEIVE)
            except BlockingIOError:
                return found
            except OSError as error:  # more was announced than is kept
                if error.errno != errno.ENOBUFS:
                    raise
            found = True


def _filter(below: int) -> bytes:
    """Let pass settings of all links at once, and everything of links with a small index."""
    return filters.assembled(
        filters.load(filters.TYPE, 2),
        filters.equal(_NEW_NETCONF, 2, then=3),
        filters.equal(_DELETE_NETCONF, 2, then=5),
        filters.load(filters.INDEX, 4),
        filters.any_bit(-below & 0xFFFFFFFF, 4, then=3, otherwise=2),
        filters.load(_SCOPE, 4),
        filters.equal(0xFFFFFFFF, 4, otherwise=1),
        filters.verdict(passes=True),
        filters.verdict(passes=False),
    )
