"""Traffic between network namespaces, from one event loop.

A socket belongs to the namespace in which it was made, wherever it is used afterwards. So only
making one needs the namespace; sending and receiving is what it always is.
"""

import asyncio
import contextlib
import os
import socket
import struct
import time
from collections.abc import AsyncIterator

from bitts.net import namespaces

from bitts_console.network.plan import Fetched

ECHO_REQUEST, ECHO_REPLY = 8, 0
TIMEOUT = 5.0
"""Seconds for an answer: all is on this machine."""

_CHUNK = 256 * 1024


class TrafficError(Exception):
    """Nothing came back; the message says from where to where."""


def make(namespace: str, kind: socket.SocketKind, protocol: int = 0) -> socket.socket:
    """Return a non-blocking IPv4 socket of the namespace at a path; quick."""
    with namespaces.opened(namespace) as descriptor, namespaces.entered(descriptor):
        made = socket.socket(socket.AF_INET, kind, protocol)
    made.setblocking(False)
    return made


async def ping(namespace: str, address: str) -> float:
    """Send one ICMP echo request; return the seconds until its answer. Raises TrafficError."""
    loop = asyncio.get_running_loop()
    identifier = os.getpid() & 0xFFFF
    with make(namespace, socket.SOCK_RAW, socket.IPPROTO_ICMP) as link:
        begin = time.perf_counter()
        try:
            async with asyncio.timeout(TIMEOUT):
                await loop.sock_sendto(link, echo_request(identifier), (address, 0))
                while not is_reply(await loop.sock_recv(link, 2048), identifier):
                    continue
        except (OSError, TimeoutError) as error:
            raise TrafficError(f"no answer to a ping of {address}: {error}") from error
        return time.perf_counter() - begin


def echo_request(identifier: int) -> bytes:
    """Return an ICMP echo request without data (RFC 792)."""
    words = (ECHO_REQUEST << 8, identifier, 1)
    total = sum(words)
    checksum = ~((total & 0xFFFF) + (total >> 16)) & 0xFFFF
    return struct.pack("!4H", words[0], checksum, *words[1:])


def is_reply(packet: bytes, identifier: int) -> bool:
    """Whether an IPv4 packet is the answer to the echo request with this identifier."""
    start = (packet[0] & 0xF) * 4 if packet else 0
    body = packet[start : start + 8]
    if len(body) < 8:
        return False
    found = int.from_bytes(body[4:6], "big")
    return body[0] == ECHO_REPLY and found == identifier


@contextlib.asynccontextmanager
async def serving(namespace: str, port: int, name: str) -> AsyncIterator[None]:
    """Answer TCP connections: with a line that names the server, then the bytes asked for."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, TimeoutError, ValueError):
            async with asyncio.timeout(4 * TIMEOUT):
                left = int(await reader.readline())
                writer.write(f"{name}\n".encode())
                while left > 0:
                    writer.write(bytes(min(left, _CHUNK)))
                    await writer.drain()
                    left -= _CHUNK
        writer.close()

    listener = make(namespace, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("0.0.0.0", port))  # noqa: S104  # inside a namespace of the demo's own
    async with await asyncio.start_server(answer, sock=listener):
        yield


async def fetch(namespace: str, address: str, port: int, size: int) -> Fetched:
    """Ask a server for ``size`` bytes. Raises TrafficError."""
    link = make(namespace, socket.SOCK_STREAM)
    try:
        async with asyncio.timeout(4 * TIMEOUT):
            await asyncio.get_running_loop().sock_connect(link, (address, port))
            reader, writer = await asyncio.open_connection(sock=link)
            writer.write(f"{size}\n".encode())
            server = (await reader.readline()).decode().strip()
            begin, received = time.perf_counter(), 0
            while chunk := await reader.read(_CHUNK):
                received += len(chunk)
            seconds = time.perf_counter() - begin
            writer.close()
    except (OSError, TimeoutError) as error:
        link.close()
        raise TrafficError(f"no answer from {address} port {port}: {error}") from error
    return Fetched(server, received, max(seconds, 1e-9))
