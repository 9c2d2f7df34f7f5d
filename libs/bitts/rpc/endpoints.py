"""Where a channel connects to: a unix socket, or a process on another machine over mutual TLS."""

import asyncio
from collections.abc import Callable
from typing import Protocol

from bitts.rpc import addresses, tls


class Endpoint(Protocol):
    """Somebody to connect to; ``text`` is how errors call it."""

    @property
    def text(self) -> str:
        """The address, for people."""
        ...

    async def connect(self, made: Callable[[], asyncio.Protocol]) -> None:
        """Connect the protocol that ``made`` returns; raises OSError that says what hinders."""
        ...


class UnixEndpoint:
    """A unix socket; raises ValueError for an address that is none."""

    def __init__(self, address: str) -> None:
        self.text = addresses.socket_path(address)

    async def connect(self, made: Callable[[], asyncio.Protocol]) -> None:
        """Connect; raises OSError."""
        await asyncio.get_running_loop().create_unix_connection(made, self.text)


class TlsEndpoint:
    """``host:port``, where a holder of a certificate for ``name`` must answer."""

    def __init__(self, host: str, port: int, credentials: tls.Credentials, name: str) -> None:
        self.text = addresses.host_port(host, port)
        self._host, self._port = host, port
        self._credentials = credentials
        self._name = name

    async def connect(self, made: Callable[[], asyncio.Protocol]) -> None:
        """Connect; raises OSError, StrangerError when it is somebody else."""
        context = await self._credentials.context(is_server=False)
        guard = tls.Guard(self._name, made)
        try:
            await asyncio.get_running_loop().create_connection(
                lambda: guard,
                self._host,
                self._port,
                ssl=context,
                ssl_handshake_timeout=tls.HANDSHAKE_TIMEOUT,
                ssl_shutdown_timeout=tls.SHUTDOWN_TIMEOUT,
            )
        except OSError:
            if guard.stranger is None:  # some loops raise when the guard cuts the connection
                raise
        if guard.stranger is not None:
            raise guard.stranger
