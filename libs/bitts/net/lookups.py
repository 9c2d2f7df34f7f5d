"""Which way the kernel would send something: the routing decision itself, not the tables."""

import ipaddress
import struct

from bitts.net import routes, wire
from bitts.net.addresses import FAMILIES
from bitts.net.errors import NetlinkError
from bitts.net.sockets import Socket
from bitts.net.wire import Message

IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address

_INFO = struct.Struct("=BBBBBBBBI")
_DESTINATION = 1


def toward(channel: Socket, address: IpAddress) -> int:
    """Return the index of the link that leads to an address, 0 where nothing does.

    Raises NetlinkError for anything but the lack of a route.
    """
    header = _INFO.pack(FAMILIES[address.version], address.max_prefixlen, 0, 0, 0, 0, 0, 0, 0)
    message = Message(routes.GET, 0, header + wire.attribute(_DESTINATION, address.packed))
    try:
        reply = channel.query(message, f"looking for a way to {address}")
    except NetlinkError as error:
        if error.is_unreachable:
            return 0
        raise
    route = routes.decode(reply)
    return 0 if route is None else route.index
