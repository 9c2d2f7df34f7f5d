"""Everything that the daemon does to the machine, as values.

An operation says what, never how: ``executor`` is the one place that acts. Those that take
something back are written to the journal, so every operation can become a JSON document and
come back from it (``encode``, ``decode``), and each of them must bear being done twice.
"""

import dataclasses
import functools
import ipaddress
import json
import operator
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from bitts.net.links import Change, End
from bitts.net.nftables import Container, Element
from bitts.net.routes import Route

from cni_daemon.devices import (
    HandBack,
    HandOver,
    MakeTap,
    RemoveIdleGateway,
    RemoveIdleVrf,
    ShareGateway,
)
from cni_daemon.dhcp.operations import ReleaseLease
from cni_daemon.routing import AddRule, RemoveRule, ReplaceRoute
from cni_daemon.told import Told
from cni_daemon.traffic import (
    AddSource,
    AllowLoopbackSources,
    CloseIngress,
    ForgetFlows,
    LayIptables,
    OpenIngress,
    RedirectIngress,
    RemoveSource,
    ShapeLink,
)

IpInterface = ipaddress.IPv4Interface | ipaddress.IPv6Interface
NO_CHANGE = Change()


@dataclass(frozen=True, slots=True)
class MakeVeth:
    """Make a pair: ``host`` here, up and a port of ``master``; ``pod`` in the container."""

    host: End
    pod: End
    mtu: int = 0
    master: int = 0


@dataclass(frozen=True, slots=True)
class MakeBridge:
    """Make a bridge on the host."""

    name: str
    mac: str
    mtu: int = 0
    filters_vlans: bool = False


@dataclass(frozen=True, slots=True)
class MakeLink:
    """Make a link of any other kind; ``data`` are its kind's packed attributes.

    One that ``is_born_in_pod`` hangs on a link of the host and appears in the container.
    """

    place: str
    kind: str
    name: str
    index: int
    change: Change = NO_CHANGE
    data: bytes = b""
    lower: int = 0
    is_born_in_pod: bool = False


@dataclass(frozen=True, slots=True)
class ChangeLink:
    """Change a link, by index or, where that is 0, by name."""

    place: str
    change: Change
    index: int = 0
    name: str = ""


@dataclass(frozen=True, slots=True)
class DeleteLink:
    """Remove a link by name; ``index``, if known, lets its end be heard of early."""

    place: str
    name: str
    index: int = 0


@dataclass(frozen=True, slots=True)
class SetPortVlan:
    """Let a VLAN through a port, or no longer."""

    index: int
    vlan: int
    is_pvid: bool = False
    remove: bool = False


@dataclass(frozen=True, slots=True)
class AddAddress:
    """Give a link an address; one that it has already is an error unless ``is_shared``."""

    place: str
    index: int
    interface: IpInterface
    skips_dad: bool = False
    is_shared: bool = False


@dataclass(frozen=True, slots=True)
class RemoveAddress:
    """Take an address from a link."""

    place: str
    index: int
    interface: IpInterface


@dataclass(frozen=True, slots=True)
class AwaitAddresses:
    """Wait until no IPv6 address of a link is tentative any more."""

    place: str
    index: int


@dataclass(frozen=True, slots=True)
class AddRoute:
    """Add a route; one that exists is an error unless ``is_shared``."""

    place: str
    route: Route
    is_shared: bool = False


@dataclass(frozen=True, slots=True)
class RemoveRoute:
    """Remove a route."""

    place: str
    route: Route


@dataclass(frozen=True, slots=True)
class SetSysctl:
    """Set a value below ``net``; an optional one may be unknown to the kernel or refused."""

    place: str
    key: str
    value: str
    is_optional: bool = False


@dataclass(frozen=True, slots=True)
class AddElements:
    """Add elements to an nftables set or map, whose rules (``Once``) must be there.

    ``claim`` says what is wanted, for the error when an entry leads elsewhere already.
    """

    container: Container
    elements: tuple[Element, ...]
    claim: str = ""


@dataclass(frozen=True, slots=True)
class RemoveElements:
    """Remove elements; those that are missing are no error.

    One that is given with its data is left alone when it leads elsewhere by now.
    """

    container: Container
    elements: tuple[Element, ...]


@dataclass(frozen=True, slots=True)
class ApplyRules:
    """Run an nft script, which must bear being run again."""

    script: str


@dataclass(frozen=True, slots=True)
class ReleaseAddresses:
    """Give back what host-local gave an attachment."""

    directory: str
    container_id: str
    ifname: str


@dataclass(frozen=True, slots=True)
class RunDelegate:
    """Run a plugin that is not ours, as libcni would; ``stdin`` is its configuration."""

    type: str
    stdin: str
    environment: tuple[tuple[str, str], ...]


Simple: typing.TypeAlias = (
    MakeVeth | MakeBridge | MakeLink | ChangeLink | DeleteLink | SetPortVlan
    | AddAddress | RemoveAddress | AwaitAddresses | AddRoute | RemoveRoute | SetSysctl
    | AddElements | RemoveElements | ApplyRules | ReleaseAddresses | RunDelegate
    | ForgetFlows | AllowLoopbackSources | LayIptables | AddSource | RemoveSource
    | ShapeLink | OpenIngress | CloseIngress | RedirectIngress
    | AddRule | RemoveRule | ReplaceRoute | ReleaseLease
    | MakeTap | HandOver | HandBack | RemoveIdleVrf | ShareGateway | RemoveIdleGateway
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Once:
    """Foundations that need no repeating in the life of this daemon, known by a key."""

    key: str
    operations: tuple[Simple, ...]


Operation: typing.TypeAlias = Simple | Once

_CLASSES: Mapping[str, type] = {each.__name__: each for each in typing.get_args(Simple)}
_ADDRESSES = (
    ipaddress.IPv4Address, ipaddress.IPv6Address, ipaddress.IPv4Network, ipaddress.IPv6Network,
    ipaddress.IPv4Interface, ipaddress.IPv6Interface,
)  # fmt: skip


class CodecError(ValueError):
    """A document is no operation that this version knows."""


def encode(operation: Operation) -> list[object]:
    """Return a JSON document of an operation: its name and its fields."""
    found: list[object] = json.loads(json.dumps(operation, default=plain))
    return found


def plain(value: object) -> object:
    """Return what JSON has for a value of ours, one layer deep: encoders ask again for the rest.

    An operation is its name and its fields. Raises TypeError for what has no place in a journal.
    """
    kind: type = type(value)
    if isinstance(value, _ADDRESSES):
        return str(value)
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Told):
        return value.read()
    names, read, is_operation = _reader(kind)
    fields = {
        name: field for name, field in zip(names, read(value), strict=True) if field is not None
    }
    return [kind.__name__, fields] if is_operation else fields


def decode(document: object) -> Simple:
    """Return the operation of a document. Raises CodecError."""
    match document:
        case [str(name), dict(fields)] if name in _CLASSES:
            try:
                return typing.cast("Simple", _build(_CLASSES[name], fields))
            except (TypeError, ValueError, KeyError) as error:
                raise CodecError(f"{name}: {error}") from error
    raise CodecError(f"no operation: {str(document)[:80]}")


@functools.cache
def _reader(
    kind: type,
) -> tuple[tuple[str, ...], Callable[[object], tuple[object, ...]], bool]:
    """Return how the fields of a class are read at once. Raises TypeError for other classes."""
    names = tuple(each.name for each in dataclasses.fields(kind))
    read = operator.attrgetter(*names)
    if len(names) == 1:
        return names, lambda value: (read(value),), kind.__name__ in _CLASSES
    return names, read, kind.__name__ in _CLASSES


def _build(kind: type, fields: Mapping[str, object]) -> object:
    hints = _hints(kind)
    return kind(**{name: _typed(value, hints[name]) for name, value in fields.items()})


def _typed(value: object, hint: object) -> object:
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        if not isinstance(value, dict):
            raise TypeError(f"{value!r} is no {hint.__name__}")
        return _build(hint, value)
    if hint is bytes:
        return bytes.fromhex(str(value))
    if typing.get_origin(hint) is tuple:
        return _items(value, typing.get_args(hint))
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        return _alternative(value, typing.get_args(hint))
    if isinstance(hint, type) and issubclass(hint, _ADDRESSES):
        return hint(value)
    if isinstance(hint, type) and not isinstance(value, hint):
        raise TypeError(f"{value!r} is no {hint.__name__}")
    return value


def _items(value: object, hints: tuple[object, ...]) -> tuple[object, ...]:
    if not isinstance(value, list):
        raise TypeError(f"{value!r} is no list")
    if hints[-1] is Ellipsis:
        return tuple(_typed(each, hints[0]) for each in value)
    return tuple(_typed(each, hint) for each, hint in zip(value, hints, strict=True))


def _alternative(value: object, hints: tuple[object, ...]) -> object:
    for hint in hints:
        try:
            return _typed(value, hint)
        except (TypeError, ValueError, KeyError):
            continue
    raise TypeError(f"{value!r} fits none of {hints}")


@functools.cache
def _hints(kind: type) -> Mapping[str, object]:
    known = typing.get_type_hints(kind)
    return {each.name: known[each.name] for each in dataclasses.fields(kind)}
