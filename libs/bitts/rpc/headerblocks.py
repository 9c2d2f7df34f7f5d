"""HPACK that remembers: the headers of gRPC are few, and the same in nearly every call.

Once a block of headers changes nothing in the dynamic table (RFC 7541 §2.3.2), its bytes mean
the same for as long as that table stays as it is. Until then both directions are looked up and
not worked out, which is most of what headers cost.
"""

from collections.abc import Iterable
from typing import Any

import hpack
import hpack.table

REMEMBERED = 64
"""Blocks kept in each direction, so that a peer whose headers never repeat holds no memory."""

Block = list[hpack.HeaderTuple]


class _Table(hpack.table.HeaderTable):
    """A dynamic table that counts its changes."""

    changes = 0

    def add(self, name: bytes, value: bytes) -> None:
        self.changes += 1
        super().add(name, value)

    @property
    def maxsize(self) -> int:
        return self._maxsize

    @maxsize.setter
    def maxsize(self, size: int) -> None:
        self.changes += 1
        is_untold = self.resized  # which hpack forgets when the same size is set again
        hpack.table.HeaderTable.maxsize.fset(self, size)  # type: ignore[attr-defined]
        self.resized |= is_untold


class Encoder(hpack.Encoder):
    """Writes headers; those that it wrote before as before."""

    def __init__(self) -> None:
        super().__init__()
        self._table = self.header_table = _Table()
        self._known_at = 0
        self._known: dict[tuple[tuple[Any, ...], ...], bytes] = {}

    def encode(self, headers: Iterable[Any], huffman: bool = True) -> bytes:  # noqa: FBT001, FBT002  # as in hpack
        """Return the block of some headers, of which equal ones are equally sensitive."""
        key = tuple(headers)
        tells_size = self._table.resized  # which only the first block after a change does
        before = self._table.changes
        if before != self._known_at:
            self._known.clear()
            self._known_at = before
        elif (known := self._known.get(key)) is not None:
            return known
        block = super().encode(key, huffman)
        if self._table.changes == before and not tells_size:
            if len(self._known) >= REMEMBERED:
                self._known.clear()
            self._known[key] = block
        return block


class Decoder(hpack.Decoder):
    """Reads blocks; those that it read before as before."""

    def __init__(self, limit: int) -> None:
        super().__init__(limit)
        self._table = self.header_table = _Table()
        self._known_at = 0
        self._known: dict[bytes, Block] = {}

    def decode(self, data: bytes, raw: bool = False) -> Block:  # noqa: FBT001, FBT002  # as in hpack
        """Return the headers of a block, as bytes: ``raw`` is what h2 always asks for."""
        key = bytes(data)
        before = self._table.changes
        if before != self._known_at:
            self._known.clear()
            self._known_at = before
        elif (known := self._known.get(key)) is not None:
            return known
        headers = list(super().decode(key, raw))
        if self._table.changes == before:
            if len(self._known) >= REMEMBERED:
                self._known.clear()
            self._known[key] = headers
        return headers
