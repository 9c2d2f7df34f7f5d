"""TLS between bytes and bytes, for a connection that holds its own reading (no I/O here).

The event loops do TLS, too, but decrypt each record as it comes: a transport of theirs that is
paused goes on reading. Here what came meanwhile is taken in at once.
"""

import ssl

_MOST = 1 << 16  # bytes in one reading; a record has 16 KiB at most


class Session:
    """The client's end of one TLS connection. All but ``write`` may raise SSLError."""

    def __init__(self, context: ssl.SSLContext, server_name: str) -> None:
        self.is_ready = False
        self.is_ended = False
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._ends = context.wrap_bio(self._incoming, self._outgoing, server_hostname=server_name)

    def advance(self, data: bytes) -> bool:
        """Take bytes of the handshake (none: begin it); whether it is over."""
        self._incoming.write(data)
        try:
            self._ends.do_handshake()
        except ssl.SSLWantReadError:
            return False
        self.is_ready = True
        return True

    def read(self, data: bytes) -> bytes:
        """Decrypt; ``is_ended`` once the server has said that nothing more comes."""
        self._incoming.write(data)
        parts = []
        while self._incoming.pending or self._ends.pending():
            try:
                part = self._ends.read(_MOST)
            except ssl.SSLWantReadError:
                break  # a record that is not complete, or none of data
            except ssl.SSLZeroReturnError:
                part = b""
            if not part:
                self.is_ended = True
                break
            parts.append(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def write(self, data: bytes) -> bytes:
        """Encrypt, and return what is to be sent."""
        sent = self._ends.write(data)
        while sent < len(data):
            sent += self._ends.write(memoryview(data)[sent:])
        return self._outgoing.read()

    def to_send(self) -> bytes:
        """What the protocol itself has to say: handshake, alerts, new keys."""
        return self._outgoing.read() if self._outgoing.pending else b""
