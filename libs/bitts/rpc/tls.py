"""Mutual TLS between two of our own processes: who may be at the other end, and with what keys.

Both ends show a certificate of one private authority. That it is valid does not suffice: it
must carry, as a DNS name, exactly the name of whom the other end means to talk to, so that no
holder of another certificate can answer in his place. Wildcards are not honoured.

The files are looked at for each connection, so a renewed certificate is used from the next one
on; while a new set cannot be read (half of it is written, say) the last good one stays.
"""

import asyncio
import os
import ssl
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from bitts.core import logs

HANDSHAKE_TIMEOUT = 5.0
"""Seconds for the other end to show its certificate."""

SHUTDOWN_TIMEOUT = 1.0
"""Seconds that a closing connection waits for the other end's goodbye."""

_PROTOCOL = "h2"
_log = logs.get("tls")

Stamp = tuple[tuple[int, int, int], ...]


class StrangerError(ConnectionError):
    """The certificate at the other end is valid, and not that of whom we want."""


@dataclass(frozen=True, slots=True)
class Files:
    """Paths of PEM files: our certificate (with its chain) and key, and the authority's."""

    certificate: str
    key: str
    authority: str


class Credentials:
    """Our certificate and key, and the authority that the other end's must be of."""

    def __init__(self, files: Files) -> None:
        self.files = files
        self._lock = threading.Lock()
        self._stamp: Stamp | None = None
        self._contexts: Mapping[bool, ssl.SSLContext] = {}

    async def context(self, *, is_server: bool) -> ssl.SSLContext:
        """Return what a new connection uses; raises OSError that names the file."""
        return await asyncio.to_thread(self._current, is_server=is_server)

    def _current(self, *, is_server: bool) -> ssl.SSLContext:
        with self._lock:
            try:
                self._reload()
            except OSError as error:
                if not self._contexts:
                    raise
                _log.warning("New certificates cannot be used, the old ones stay", err=error)
            return self._contexts[is_server]

    def _reload(self) -> None:
        stamp = _stamp(self.files)
        if stamp == self._stamp:
            return
        fresh = {
            is_server: _context(self.files, is_server=is_server) for is_server in (True, False)
        }
        if self._stamp is not None:
            _log.info("Certificates read anew", certificate=self.files.certificate)
        self._contexts, self._stamp = fresh, stamp


def _stamp(files: Files) -> Stamp:
    """Return what changes when one of the files does, also through Kubernetes' symlinks."""
    found = (os.stat(path) for path in (files.certificate, files.key, files.authority))
    return tuple((one.st_ino, one.st_mtime_ns, one.st_size) for one in found)


def _context(files: Files, *, is_server: bool) -> ssl.SSLContext:
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if is_server else ssl.PROTOCOL_TLS_CLIENT)
    made.minimum_version = ssl.TLSVersion.TLSv1_3
    made.check_hostname = False  # require_peer() is stricter, and the same at both ends
    made.verify_mode = ssl.CERT_REQUIRED
    made.set_alpn_protocols([_PROTOCOL])
    try:
        made.load_verify_locations(files.authority)
    except ssl.SSLError as error:
        raise OSError(f"{files.authority} holds no certificate of an authority: {error}") from None
    try:
        made.load_cert_chain(files.certificate, files.key)
    except ssl.SSLError as error:
        text = f"{files.certificate} and {files.key} are no certificate and its key: {error}"
        raise OSError(text) from None
    return made


def names(certificate: Mapping[str, Any] | None) -> frozenset[str]:
    """Return the DNS names in a certificate as ``SSLSocket.getpeercert`` tells it. Pure."""
    stated = cast(tuple[tuple[str, str], ...], (certificate or {}).get("subjectAltName", ()))
    return frozenset(value.lower() for kind, value in stated if kind == "DNS")


def require_peer(transport: asyncio.BaseTransport, name: str) -> None:
    """Raise StrangerError unless the other end's certificate carries ``name``."""
    found = names(transport.get_extra_info("peercert"))
    if name.lower() not in found:
        shown = ", ".join(sorted(found)) or "no DNS name"
        raise StrangerError(f"the certificate at the other end is for {shown}, not for {name}")


class Guard(asyncio.Protocol):
    """Lets a connection through to ``made()`` once its certificate has been found right.

    Nothing is sent or read before. ``stranger`` holds what was wrong.
    """

    def __init__(self, name: str, made: Callable[[], asyncio.Protocol]) -> None:
        self._name = name
        self._made = made
        self.stranger: StrangerError | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Look at the certificate, and pass the connection on or cut it."""
        opened = cast(asyncio.Transport, transport)
        try:
            require_peer(opened, self._name)
        except StrangerError as error:
            self.stranger = error
            opened.abort()
            return
        protocol = self._made()
        opened.set_protocol(protocol)
        protocol.connection_made(opened)
