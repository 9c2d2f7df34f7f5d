"""Where a server listens: at a unix socket, or at a port for holders of one certificate."""

import asyncio
import contextlib
import socket
from collections.abc import Callable
from typing import Protocol

from bitts.core import logs
from bitts.rpc import addresses, sockets, tls

BACKLOG = 128
GREETINGS = 64
"""Handshakes at a time; who comes beyond them is turned away, and tries again."""

_PAUSE = 0.2
"""Seconds before accepting again after the system had nothing left for a connection."""

_log = logs.get("rpc")

Made = Callable[[], asyncio.Protocol]


class Listener(Protocol):
    """A place that connections come to."""

    @property
    def text(self) -> str:
        """The address, for people."""
        ...

    async def start(self, made: Made) -> None:
        """Hand each connection a protocol of ``made``; raises OSError when it cannot be."""
        ...

    async def withdraw(self) -> None:
        """Take no more connections; those that there are go on."""
        ...

    async def is_in_place(self) -> bool:
        """Whether clients still find the way here."""
        ...


class UnixListener:
    """A socket file with permission bits ``mode``."""

    def __init__(self, path: str, mode: int) -> None:
        self._socket = sockets.ListeningSocket(path, mode)
        self._listener: asyncio.Server | None = None
        self.text = path

    async def start(self, made: Made) -> None:
        """Listen; the file appears when somebody accepts. ValueError: the path is too long."""
        opened = await asyncio.to_thread(self._socket.open)
        self._listener = await asyncio.get_running_loop().create_unix_server(
            made, sock=opened, backlog=BACKLOG
        )
        try:
            await asyncio.to_thread(self._socket.publish)
        except BaseException:
            await self.withdraw()
            raise

    async def withdraw(self) -> None:
        """Remove the file first, so that nobody comes to a closed door."""
        if self._listener is not None:
            await asyncio.to_thread(self._socket.remove)
            self._listener.close()
            self._listener = None

    async def is_in_place(self) -> bool:
        """Whether the file is still there and ours: somebody may have removed it."""
        return await asyncio.to_thread(self._socket.is_in_place)


class TlsListener:
    """A port that takes whoever shows a certificate for ``name``; port 0 lets the kernel choose.

    Sockets are accepted here and not by the loop's own server, whose certificate is fixed when
    it starts.
    """

    def __init__(self, host: str, port: int, credentials: tls.Credentials, name: str) -> None:
        self._host, self._port = host, port
        self._credentials = credentials
        self._name = name
        self._socket: socket.socket | None = None
        self._accepting: asyncio.Task[None] | None = None
        self._greetings: set[asyncio.Task[None]] = set()

    @property
    def text(self) -> str:
        """The address, with the port that is really used."""
        port = self._socket.getsockname()[1] if self._socket is not None else self._port
        return addresses.host_port(self._host, port)

    async def start(self, made: Made) -> None:
        """Listen; raises OSError for a wrong address or certificates that cannot be read."""
        await self._credentials.context(is_server=True)
        self._socket = opened = await self._opened()
        opened.setblocking(False)
        self._accepting = asyncio.create_task(
            self._accept(opened, made), name=f"accept {self.text}"
        )

    async def _opened(self) -> socket.socket:
        if not self._host and socket.has_dualstack_ipv6():  # both kinds of addresses
            with contextlib.suppress(OSError):
                return socket.create_server(
                    ("", self._port), family=socket.AF_INET6, backlog=BACKLOG, dualstack_ipv6=True
                )
        anywhere = "0.0.0.0"  # noqa: S104  # what an empty host asks for
        found = await asyncio.get_running_loop().getaddrinfo(
            self._host or anywhere, self._port, type=socket.SOCK_STREAM
        )
        family, _, _, _, address = found[0]
        return socket.create_server((str(address[0]), self._port), family=family, backlog=BACKLOG)

    async def withdraw(self) -> None:
        """Close the port, and break off handshakes."""
        if self._socket is None or self._accepting is None:
            return
        tasks = {self._accepting, *self._greetings}
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks, timeout=tls.SHUTDOWN_TIMEOUT)
        self._socket.close()
        self._socket = self._accepting = None

    async def is_in_place(self) -> bool:
        """Whether the port is open; nobody can take it away."""
        return self._socket is not None

    async def _accept(self, opened: socket.socket, made: Made) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                client, address = await loop.sock_accept(opened)
            except OSError as error:
                _log.warning("Cannot take a connection", address=self.text, err=error)
                await asyncio.sleep(_PAUSE)
                continue
            if len(self._greetings) >= GREETINGS:
                client.close()
                continue
            text = addresses.host_port(*address[:2])
            task = asyncio.create_task(self._greet(client, text, made), name=f"greet {text}")
            self._greetings.add(task)
            task.add_done_callback(self._greetings.discard)

    async def _greet(self, client: socket.socket, address: str, made: Made) -> None:
        """Have a client show its certificate; whatever it does instead ends its connection."""
        guard = tls.Guard(self._name, made)
        try:
            with contextlib.suppress(OSError):
                client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            context = await self._credentials.context(is_server=True)
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: guard,
                client,
                ssl=context,
                ssl_handshake_timeout=tls.HANDSHAKE_TIMEOUT,
                ssl_shutdown_timeout=tls.SHUTDOWN_TIMEOUT,
            )
        except OSError as error:
            problem = str(error) or type(error).__name__
        except asyncio.CancelledError:
            client.close()
            raise
        else:
            problem = ""
        if guard.stranger is not None:  # some loops raise when the guard cuts the connection
            problem = str(guard.stranger)
        if problem:
            client.close()
            _log.info("Turned away", client=address, err=problem)
