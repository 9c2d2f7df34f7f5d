"""The two ways between the machine and the nodes' network, which has no link to it.

Inwards, the API server asks for a connection by HTTP CONNECT on a unix socket (its egress
selector). Outwards, what connects to the bridge's address reaches the API server on the
machine's loopback. A socket belongs to the namespace it was made in, whoever uses it.
"""

import asyncio
import contextlib
import ipaddress
import pathlib
import re
import socket
from collections.abc import Awaitable, Callable, Coroutine

from bitts.core import logs
from bitts.net import namespaces

from devcluster.kubernetes import addresses

CONNECT_TIMEOUT = 10.0
_BLOCK = 64 * 1024
_REQUEST = re.compile(rb"CONNECT (\S+):(\d{1,5}) HTTP/1\.[01]\r\n")
_log = logs.get("devcluster")

Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Dial = Callable[[], Awaitable[Stream]]


def parse_connect(head: bytes) -> tuple[str, int] | None:
    """Return host and port of a CONNECT request, None for anything else. Pure."""
    found = _REQUEST.match(head)
    if found is None or not head.endswith(b"\r\n\r\n"):
        return None
    port = int(found[2])
    return (found[1].decode("ascii", "replace").strip("[]"), port) if port < 65536 else None


def is_inside(host: str) -> bool:
    """Whether a host is to be dialled from the bridge: nodes, pods and Services. Pure.

    Names and the loopback are the machine's: webhooks that a test serves.
    """
    try:
        return not ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class Tunnel:
    """Both ways, for as long as the context lasts; ``holder`` is a process on the bridge."""

    def __init__(self, holder: int, path: pathlib.Path, port: int) -> None:
        self._namespace = f"/proc/{holder}/ns/net"
        self._path = path
        self._port = port
        self._servers: list[asyncio.Server] = []
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> "Tunnel":
        await asyncio.to_thread(self._path.unlink, missing_ok=True)
        self._servers.append(await asyncio.start_unix_server(self._inwards, self._path))
        listener = await asyncio.to_thread(self._listener)
        self._servers.append(await asyncio.start_server(self._outwards, sock=listener))
        return self

    async def __aexit__(self, *_: object) -> None:
        for server in self._servers:
            server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.to_thread(self._path.unlink, missing_ok=True)

    def _listener(self) -> socket.socket:
        listener = self._socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((addresses.GATEWAY, self._port))
        listener.listen(256)
        return listener

    def _socket(self) -> socket.socket:
        """Make a socket that lives in the nodes' network."""
        with namespaces.opened(self._namespace) as descriptor, namespaces.entered(descriptor):
            made = socket.socket()
        made.setblocking(False)
        return made

    def _outwards(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._serve(writer, self._forward(reader, writer, self._dial_api))

    async def _dial_api(self) -> Stream:
        return await asyncio.open_connection("127.0.0.1", self._port)

    def _inwards(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._serve(writer, self._serve_connect(reader, writer))

    async def _serve_connect(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        async with asyncio.timeout(CONNECT_TIMEOUT):
            target = parse_connect(await reader.readuntil(b"\r\n\r\n"))
        if target is None:
            writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            return
        host, port = target

        async def dial() -> Stream:
            return await self._dial(host, port)

        await self._forward(reader, writer, dial, greeting=b"HTTP/1.1 200 OK\r\n\r\n")

    async def _dial(self, host: str, port: int) -> Stream:
        if not is_inside(host):
            return await asyncio.open_connection(host, port)
        made = await asyncio.to_thread(self._socket)
        try:
            await asyncio.get_running_loop().sock_connect(made, (host, port))
        except BaseException:
            made.close()
            raise
        return await asyncio.open_connection(sock=made)

    async def _forward(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        dial: Dial,
        greeting: bytes = b"",
    ) -> None:
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT):
                far_reader, far_writer = await dial()
        except (OSError, TimeoutError) as error:
            if greeting:
                words = f"HTTP/1.1 502 {type(error).__name__}\r\n\r\n"
                writer.write(words.encode())
            return
        try:
            writer.write(greeting)
            async with asyncio.TaskGroup() as group:
                group.create_task(_pump(reader, far_writer), name="tunnel-to")
                group.create_task(_pump(far_reader, writer), name="tunnel-from")
        finally:
            far_writer.close()

    def _serve(self, writer: asyncio.StreamWriter, work: Coroutine[object, object, None]) -> None:
        """Serve one connection in a task that is known, so that it can be ended."""
        task = asyncio.create_task(_guarded(writer, work), name="tunnel")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _guarded(writer: asyncio.StreamWriter, work: Coroutine[object, object, None]) -> None:
    """Keep one connection's trouble to itself."""
    try:
        await work
    except* (OSError, EOFError, TimeoutError, asyncio.LimitOverrunError) as group:
        _log.at(5).info("Tunnel connection ended", err=group.exceptions[0])
    finally:
        writer.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy one direction until its end, then say so to the other side."""
    while block := await reader.read(_BLOCK):
        if writer.is_closing():  # the other direction broke first
            return
        writer.write(block)
        await writer.drain()
    with contextlib.suppress(OSError, RuntimeError):
        writer.write_eof()
