"""The client's exchanges on the event loop: acquire, renew, rebind, release (RFC 2131, 4.4).

A link without an address is spoken to by a packet socket, which was opened inside the
container's namespace and stays in it, whoever uses it.
"""

import asyncio
import contextlib
import random
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from cni_daemon.dhcp import packets
from cni_daemon.dhcp.leases import Lease, acknowledged
from cni_daemon.dhcp.operations import ReleaseLease
from cni_daemon.dhcp.packets import IPv4, Kind, Option, Packet, PacketError

FIRST_PAUSE, LONGEST_PAUSE = 0.5, 16.0
"""Seconds between repetitions: they double, each with a random part (RFC 2131, 4.1)."""

EXCHANGE_TIMEOUT = 10.0
"""Seconds for one renewal, with its repetitions."""

_RECEIVE = 4096
_MAXIMUM_SIZE = 1472
_NAK_PAUSE = 0.5
_ETH_P_IP = 0x0800
_BROADCAST_MAC = b"\xff" * 6

Send = Callable[[bytes], None]
Accept = Callable[[Packet], bool]


class DhcpError(Exception):
    """No lease was had; the text says why."""


class RefusedError(DhcpError):
    """The server said no (NAK): the address is not ours (any more)."""


@dataclass(frozen=True, slots=True)
class Client:
    """Who asks: a link's MAC address, an identifier (hex), and options to send with it."""

    mac: str
    client_id: str
    options: Mapping[int, bytes] = field(default_factory=dict)
    parameters: bytes = b""

    def packet(self, kind: Kind, transaction: int, seconds: int, **about: object) -> Packet:
        """Return a message of this client."""
        options: dict[int, bytes] = {**self.options}
        options.setdefault(Option.CLIENT_ID, bytes.fromhex(self.client_id))
        if kind is not Kind.RELEASE:
            options[Option.MAXIMUM_SIZE] = _MAXIMUM_SIZE.to_bytes(2, "big")
            if self.parameters:
                options[Option.PARAMETERS] = self.parameters
        extra = about.pop("extra", {})
        assert isinstance(extra, dict)
        return Packet(kind, transaction, self.mac, {**options, **extra}, seconds=seconds, **about)  # type: ignore[arg-type] # fields of Packet


def now() -> float:
    """Return the time by which leases are kept."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def raw_socket(ifname: str) -> socket.socket:
    """Open a packet socket on a link of the calling thread's namespace. Raises OSError."""
    opened = socket.socket(
        socket.AF_PACKET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC, 0
    )
    try:
        opened.bind((ifname, _ETH_P_IP))
    except OSError:
        opened.close()
        raise
    return opened


def bound_socket(ifname: str, address: str) -> socket.socket:
    """Open a UDP socket at a leased address in the calling thread's namespace. Raises OSError."""
    opened = socket.socket(
        socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC
    )
    try:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, ifname.encode())
        opened.bind((address, packets.CLIENT_PORT))
    except OSError:
        opened.close()
        raise
    return opened


async def acquire(client: Client, opened: socket.socket, timeout: float, wanted: str = "") -> Lease:
    """Get a lease: DISCOVER, OFFER, REQUEST, ACK; after a NAK from the start.

    ``wanted`` is an address that would be welcome. Raises DhcpError when there is no lease within
    ``timeout`` seconds.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout
    ifname = opened.getsockname()[0]
    target = (ifname, _ETH_P_IP, 0, 0, _BROADCAST_MAC)
    started = loop.time()
    reason = "no server answered"
    while True:
        transaction = random.getrandbits(32)
        speaking = _Exchange(
            opened, lambda data: opened.sendto(packets.framed(data), target), packets.unframed,
            client.mac, transaction,
        )  # fmt: skip
        seconds = min(int(loop.time() - started), 0xFFFF)
        try:
            async with asyncio.timeout_at(deadline):
                return await _offered(client, speaking, seconds, wanted)
        except TimeoutError:
            raise DhcpError(f"{reason} within {timeout:g} seconds") from None
        except RefusedError as error:
            reason = str(error)
            await asyncio.sleep(_NAK_PAUSE)


async def _offered(client: Client, speaking: "_Exchange", seconds: int, wanted: str) -> Lease:
    transaction = speaking.transaction
    hint = {Option.REQUESTED_ADDRESS: IPv4(wanted).packed} if wanted else {}
    discover = client.packet(Kind.DISCOVER, transaction, seconds, wants_broadcast=True, extra=hint)
    offer = await speaking.ask(
        discover, lambda p: p.kind is Kind.OFFER and p.address(Option.SERVER) is not None
    )
    server = offer.options[Option.SERVER]
    request = client.packet(
        Kind.REQUEST, transaction, seconds, wants_broadcast=True,
        extra={Option.REQUESTED_ADDRESS: offer.yours.packed, Option.SERVER: server},
    )  # fmt: skip
    try:
        async with asyncio.timeout(EXCHANGE_TIMEOUT):
            answer = await speaking.ask(
                request, lambda p: p.kind in {Kind.ACK, Kind.NAK} and _is_from(p, server)
            )
    except TimeoutError:
        raise RefusedError("a server offered an address and was silent then") from None
    return replace(_taken(answer, client), hop=speaking.hop)


def _is_from(packet: Packet, server: bytes) -> bool:
    return packet.options.get(Option.SERVER, server) == server


def _taken(answer: Packet, client: Client) -> Lease:
    if answer.kind is Kind.NAK:
        said = answer.options.get(Option.MESSAGE, b"").decode(errors="replace")
        raise RefusedError(f"the server refused: {said}" if said else "the server refused")
    try:
        lease = acknowledged(answer, client.client_id, now())
        provided = {str(int(code)): value.hex() for code, value in client.options.items()}
        return replace(lease, parameters=client.parameters.hex(), provided=provided)
    except PacketError as error:
        raise RefusedError(str(error)) from None


async def renew(
    client: Client, lease: Lease, opened: socket.socket, *, asks_everybody: bool
) -> Lease:
    """Renew a lease with its server, or with any (rebinding).

    Raises RefusedError for a NAK, DhcpError when nobody answers in time.
    """
    transaction = random.getrandbits(32)
    target = str(packets.EVERYBODY) if asks_everybody else lease.server
    speaking = _Exchange(
        opened, lambda data: opened.sendto(data, (target, packets.SERVER_PORT)), lambda data: data,
        client.mac, transaction,
    )  # fmt: skip
    request = client.packet(Kind.REQUEST, transaction, 0, client=IPv4(lease.address))
    left = EXCHANGE_TIMEOUT if lease.end is None else max(lease.end - now(), 0.0)
    try:
        async with asyncio.timeout(min(EXCHANGE_TIMEOUT, left)):
            answer = await speaking.ask(request, lambda p: p.kind in {Kind.ACK, Kind.NAK})
    except (TimeoutError, OSError) as error:
        raise DhcpError(str(error) or f"no answer from {target}") from None
    found = _taken(answer, client)
    if found.address != lease.address:
        raise RefusedError(f"the server gave {found.address} instead of {lease.address}")
    return replace(found, hop=lease.hop)


def release(wanted: ReleaseLease, opened: socket.socket) -> None:
    """Tell the server that an address is free again; nobody answers that. Raises OSError.

    ``opened`` is a packet socket on the link.
    """
    address, server = IPv4(wanted.address), IPv4(wanted.server)
    packet = Client(wanted.mac, wanted.client_id).packet(
        Kind.RELEASE, random.getrandbits(32), 0, client=address,
        extra={Option.SERVER: server.packed},
    )  # fmt: skip
    hop = bytes.fromhex(wanted.hop.replace(":", "")) or _BROADCAST_MAC
    data = packets.framed(packets.encode(packet), address, server)
    opened.sendto(data, (wanted.ifname, _ETH_P_IP, 0, 0, hop))


def of_lease(lease: Lease) -> Client:
    """Return the client that a lease was given to."""
    options = {int(code): bytes.fromhex(value) for code, value in lease.provided.items()}
    return Client(lease.mac, lease.client_id, options, bytes.fromhex(lease.parameters))


class _Exchange:
    """Questions and answers of one transaction on one socket."""

    def __init__(
        self, opened: socket.socket, send: Callable[[bytes], object],
        unframed: Callable[[bytes], bytes], mac: str, transaction: int,
    ) -> None:  # fmt: skip
        self._socket = opened
        self._send = send
        self._unframed = unframed
        self._mac = mac
        self.transaction = transaction
        self.hop = ""
        """The MAC address that the last acceptable answer came from, on a packet socket."""

    async def ask(self, packet: Packet, accept: Accept) -> Packet:
        """Send until an acceptable answer comes; the caller bounds the time."""
        loop = asyncio.get_running_loop()
        data = packets.encode(packet)
        pause = FIRST_PAUSE
        while True:
            with contextlib.suppress(OSError):  # a link that is not up yet, a full queue
                self._send(data)
            until = loop.time() + pause * random.uniform(0.8, 1.2)  # noqa: S311 - only jitter
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(until):
                    return await self._answer(accept)
            pause = min(pause * 2, LONGEST_PAUSE)

    async def _answer(self, accept: Accept) -> Packet:
        loop = asyncio.get_running_loop()
        while True:
            data, sender = await loop.sock_recvfrom(self._socket, _RECEIVE)
            try:
                packet = packets.decode(self._unframed(data))
            except PacketError:
                continue
            is_ours = packet.is_reply and packet.transaction == self.transaction
            if is_ours and packet.mac == self._mac and accept(packet):
                is_link_layer = self._socket.family == socket.AF_PACKET
                self.hop = sender[-1].hex(":") if is_link_layer else ""
                return packet
