"""What attachments of one network differ in, cut out of what they have in common (pure).

Two attachments of a network have the same plan but for a few values: names, numbers, addresses.
``Given`` is one set of such values. Every value is known in the shapes that it is written in: as
text in the journal and in answers, as bytes in messages. Whatever was made with a set of values
nobody else uses (``rehearsed``) is cut where one of them stands; with other values filled in, it
is what would have been made with those. Whether that is so is not believed but compared, by
whoever cuts.
"""

import hashlib
import ipaddress
import re
import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address

DIGEST_SIZE = 12
"""Hex digits of an attachment's digest that links are named by."""

DRAWS = 8
"""Names, indexes and MAC addresses, of each, that one attachment may need."""

_NUMBER = struct.Struct("=I")
_PORT = struct.Struct("!H")


@dataclass(frozen=True, slots=True)
class Drawn:
    """What was drawn for one attachment, in this order, also as text and as bytes in messages."""

    names: tuple[str, ...]
    indexes: tuple[int, ...]
    macs: tuple[str, ...]
    texts: tuple[str, ...]
    data: tuple[bytes, ...]


def drawn(names: tuple[str, ...], indexes: tuple[int, ...], macs: tuple[str, ...]) -> Drawn:
    """Return draws in all their shapes."""
    return Drawn(
        names, indexes, macs,
        texts=(*names, *map(str, indexes), *macs),
        data=(
            *map(str.encode, names), *map(_NUMBER.pack, indexes),
            *[bytes.fromhex(each.replace(":", "")) for each in macs],
        ),
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Given:
    """What one attachment differs in from others of its network.

    ``identity`` and ``descriptor`` are those of its namespace; ``ports`` are those of the host that
    lead to it.
    """

    container_id: str
    digest: str
    netns: str
    nonce: str
    identity: tuple[int, int]
    descriptor: int
    drawn: Drawn
    addresses: tuple[IpAddress, ...] = ()
    ports: tuple[int, ...] = ()

    def values(self) -> "Values":
        """Return the values in all their shapes."""
        drawn, (device, inode) = self.drawn, self.identity
        texts = [
            self.container_id, self.digest, self.netns, self.nonce, str(device), str(inode),
            *drawn.texts,
        ]  # fmt: skip
        data = [
            self.container_id.encode(), self.digest.encode(), _NUMBER.pack(self.descriptor),
            *drawn.data,
        ]  # fmt: skip
        if self.ports:
            services = [_PORT.pack(each) for each in self.ports]
            texts += [*map(str, self.ports), *[each.hex() for each in services]]
            data += services
        values = Values(texts, data, [*drawn.indexes, *self.ports], [])
        if self.addresses:
            values.add(self.addresses)
        return values


@dataclass(frozen=True, slots=True)
class Values:
    """The same values in a fixed order: as text, as bytes in messages, as numbers, as addresses."""

    texts: list[str]
    data: list[bytes]
    numbers: list[int]
    addresses: list[IpAddress]

    def add(self, addresses: Iterable[IpAddress]) -> None:
        """Add addresses, which come last: they are known later than all else."""
        for each in addresses:
            packed = each.packed
            self.texts.extend((str(each), packed.hex()))
            self.data.append(packed)
            self.addresses.append(each)


def digest(network: str, container_id: str) -> str:
    """Return what links of an attachment are named by: the beginning of ``Call.digest``."""
    return hashlib.sha512((network + container_id).encode()).hexdigest()[:DIGEST_SIZE]


def rehearsed(seed: int, container_size: int, ports: int) -> Given:
    """Return values that nothing else has: all their digits come from ``seed`` (below 256).

    There are more names, indexes and MAC addresses than a plan ever draws, and no addresses.
    """
    return Given(
        container_id=("c" + f"{seed:02x}" * container_size)[:container_size],
        digest="",
        netns=f"/n/{seed:02x}/of/nobody",
        nonce=f"{seed:02x}c7" * 8,
        identity=(910_000_000 + 7 * seed, 4_020_000_000 + 11 * seed),
        descriptor=0x5A3C0000 | seed << 8 | 0x6B,
        drawn=drawn(
            tuple(f"veth{seed:02x}{0xA5E1 + n:04x}{seed ^ 0x55:02x}" for n in range(DRAWS)),
            tuple(0x40D30007 | seed << 8 | n << 4 for n in range(DRAWS)),
            tuple(f"02:{seed:02x}:9e:{0xB0 + n:02x}:7d:{seed:02x}" for n in range(DRAWS)),
        ),
        ports=tuple(0xC100 + 257 * n + seed for n in range(ports)),
    )


@dataclass(frozen=True, slots=True)
class Blank:
    """A text with holes; ``order`` says which value goes where."""

    pattern: str
    order: tuple[int, ...]

    def filled(self, values: Values) -> str:
        """Return the text with other values in it."""
        texts = values.texts
        return self.pattern % tuple(map(texts.__getitem__, self.order))


@dataclass(frozen=True, slots=True)
class Mould:
    """Bytes with holes."""

    pattern: bytes
    order: tuple[int, ...]

    def filled(self, values: Values) -> bytes:
        """Return the bytes with other values in them."""
        data = values.data
        return self.pattern % tuple(map(data.__getitem__, self.order))


def cut_text(text: str, values: Values) -> Blank:
    """Return a text without the values in it."""
    parts = _search(values.texts).split(text)
    order = tuple(values.texts.index(each) for each in parts[1::2])
    return Blank("%s".join(each.replace("%", "%%") for each in parts[::2]), order)


def cut_data(data: bytes, values: Values) -> Mould:
    """Return bytes without the values in them."""
    wanted = sorted({each for each in values.data if each}, key=len, reverse=True)
    search = re.compile(b"(" + b"|".join(map(re.escape, wanted)) + b")")
    parts = search.split(data)
    order = tuple(values.data.index(each) for each in parts[1::2])
    return Mould(b"%b".join(each.replace(b"%", b"%%") for each in parts[::2]), order)


def _search(texts: Sequence[str]) -> "re.Pattern[str]":
    wanted = sorted({each for each in texts if each}, key=len, reverse=True)
    return re.compile("(" + "|".join(map(re.escape, wanted)) + ")")


Filler = Callable[[Values], Any]
"""Makes a value like the one that was cut, with other values in it."""


def cut(value: object, values: Values) -> Filler:
    """Return what makes such a value: of texts, numbers, bytes, addresses, and what holds them."""
    filler = _cut(value, values)
    return (lambda _values: value) if filler is None else filler


def _cut(value: Any, values: Values) -> Filler | None:
    """Return None for what has no hole: it is shared, since everything here is frozen."""
    match value:
        case bool() | None:
            return None
        case str():
            blank = cut_text(value, values)
            return blank.filled if blank.order else None
        case bytes():
            mould = cut_data(value, values)
            return mould.filled if mould.order else None
        case int():
            if value not in values.numbers:
                return None
            number = values.numbers.index(value)
            return lambda other: other.numbers[number]
        case ipaddress.IPv4Interface() | ipaddress.IPv6Interface():
            return _cut_interface(value, values)
        case ipaddress.IPv4Address() | ipaddress.IPv6Address():
            if value not in values.addresses:
                return None
            place = values.addresses.index(value)
            return lambda other: other.addresses[place]
    return _cut_whole(value, values)


def _cut_whole(value: Any, values: Values) -> Filler | None:
    match value:
        case dict():
            keys = tuple(value)
            return _cut_items([*value.values()], values, lambda items: dict(zip(keys, items)))  # noqa: B905 - of one length
        case list():
            return _cut_items(value, values, list)
        case tuple():
            return _cut_items([*value], values, tuple)
    if not is_dataclass(value):
        return None
    kind: Any = type(value)
    items = [getattr(value, each.name) for each in fields(value)]
    return _cut_items(items, values, lambda items: kind(*items))


def _cut_interface(
    value: ipaddress.IPv4Interface | ipaddress.IPv6Interface, values: Values
) -> Filler | None:
    if value.ip not in values.addresses:
        return None
    place, length, kind = values.addresses.index(value.ip), value.network.prefixlen, type(value)
    return lambda other: kind((int(other.addresses[place]), length))


def _cut_items(items: list[Any], values: Values, made: Callable[[list[Any]], Any]) -> Filler | None:
    found = [(place, _cut(each, values)) for place, each in enumerate(items)]
    holes = [(place, filler) for place, filler in found if filler is not None]
    if not holes:
        return None

    def filled(other: Values) -> Any:
        copied = items.copy()
        for place, filler in holes:
            copied[place] = filler(other)
        return made(copied)

    return filled
