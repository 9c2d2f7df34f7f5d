"""Connection tracking: entries are forgotten so that datagrams meet the rules of today.

UDP has no end that the kernel could see, so what a NAT rule once decided for a flow holds for
as long as the flow goes on, whatever became of the rule.
"""

import errno
import ipaddress
import struct
from dataclasses import dataclass

from bitts.net import wire
from bitts.net.errors import NetlinkError
from bitts.net.sockets import Socket
from bitts.net.wire import Message

IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address

_SUBSYSTEM = 0x0100
_GET, _DELETE = _SUBSYSTEM | 1, _SUBSYSTEM | 2
_FAMILIES = {4: 2, 6: 10}
_ORIGINAL, _ZONE, _FILTER = 1, 18, 25
_TUPLE_IP, _TUPLE_PROTOCOL = 1, 2
_DESTINATION = {4: 2, 6: 4}
_NUMBER, _DESTINATION_PORT = 1, 3
_MATCH_ADDRESS, _MATCH_NUMBER, _MATCH_PORT = 1 << 1, 1 << 3, 1 << 5
_HEADER = struct.Struct("=BBH")


@dataclass(frozen=True, slots=True)
class Service:
    """What flows were first sent to: a port of a protocol, at one address or at any."""

    version: int
    protocol: int
    port: int
    address: IpAddress | None = None


def forget(channel: Socket, service: Service) -> None:
    """Remove the entries of all flows to a service. Raises NetlinkError."""
    (answer,) = channel.attempt([Message(_DELETE, 0, _body(service))])
    if answer.error == errno.EINVAL:  # before Linux 6.11 removal knows no filter
        _forget_singly(channel, service)
    elif answer.error and answer.error != errno.ENOENT:
        raise NetlinkError(answer.error, f"forgetting flows to port {service.port}", answer.text)


def _forget_singly(channel: Socket, service: Service) -> None:
    doomed: list[Message] = []
    for reply in channel.dump(Message(_GET, 0, _body(service)), "listing tracked flows"):
        found = wire.attributes(reply.body[_HEADER.size :])
        if _ORIGINAL in found:
            body = _HEADER.pack(_FAMILIES[service.version], 0, 0)
            body += wire.attribute(_ORIGINAL | wire.NESTED, bytes(found[_ORIGINAL]))
            if _ZONE in found:
                body += wire.attribute(_ZONE, bytes(found[_ZONE]))
            doomed.append(Message(_DELETE, 0, body))
    for answer in channel.attempt(doomed):
        if answer.error and answer.error != errno.ENOENT:
            raise NetlinkError(answer.error, "forgetting a tracked flow", answer.text)


def _body(service: Service) -> bytes:
    matched = _MATCH_NUMBER | _MATCH_PORT
    protocol = wire.nested(
        _TUPLE_PROTOCOL | wire.NESTED,
        wire.u8(_NUMBER, service.protocol),
        wire.attribute(_DESTINATION_PORT, struct.pack("!H", service.port)),
    )
    address = b""
    if service.address is not None:
        matched |= _MATCH_ADDRESS
        packed = wire.attribute(_DESTINATION[service.version], service.address.packed)
        address = wire.nested(_TUPLE_IP | wire.NESTED, packed)
    flags = (wire.u32(1, matched), wire.u32(2, 0))
    return (
        _HEADER.pack(_FAMILIES[service.version], 0, 0)
        + wire.nested(_ORIGINAL | wire.NESTED, address, protocol)
        + wire.nested(_FILTER | wire.NESTED, *flags)
    )
