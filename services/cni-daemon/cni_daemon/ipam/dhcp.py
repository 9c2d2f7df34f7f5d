"""dhcp: addresses from a DHCP server on the container's network (cni.dev: ipam/dhcp)."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from bitts.cni import args
from bitts.cni.config import PluginConfig
from bitts.cni.documents import DocumentError, Fields
from bitts.cni.errors import CniError, Code
from bitts.cni.results import Result

from cni_daemon.dhcp.packets import Option
from cni_daemon.ipam.interface import Ipam
from cni_daemon.ipam.stores import Stores
from cni_daemon.model import Call
from cni_daemon.operations import Operation

TYPE = "dhcp"
_DEFAULTS = (Option.ROUTERS, Option.SUBNET_MASK)
_ALWAYS = (Option.RENEWAL_TIME, Option.REBINDING_TIME)
"""What is asked for besides: many servers tell no more. Routes are left to the configuration, as
the reference does: a server that tells them may mean others by its router."""

_NAMES = {
    "dhcp-client-identifier": Option.CLIENT_ID,
    "subnet-mask": Option.SUBNET_MASK,
    "routers": Option.ROUTERS,
    "host-name": Option.HOST_NAME,
    "user-class": Option.USER_CLASS,
    "vendor-class-identifier": Option.VENDOR_CLASS,
}
_VALUE_LIMIT = 255
_CLIENT_ID_LIMIT = 254
_OURS = {Option.MESSAGE_TYPE, Option.SERVER, Option.REQUESTED_ADDRESS, Option.PARAMETERS,
         Option.MAXIMUM_SIZE, Option.PAD, Option.END, Option.OVERLOAD}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Options:
    """What to ask for, what to tell, and the metric of routes. ``client_id`` is in hex."""

    parameters: bytes
    client_id: str
    provided: Mapping[int, bytes] = field(default_factory=dict)
    priority: int = 0


def parse(config: PluginConfig, call: Call) -> Options:
    """Read the ``ipam`` section. Raises CniError naming the option."""
    ipam = config.fields.nested("ipam")
    try:
        requested = ipam.objects("request")
        given = ipam.objects("provide")
        skips = any(each.boolean("skipDefault") for each in requested)
        wanted: list[int] = [] if skips else list(_DEFAULTS)
        # An entry may say skipDefault alone.
        wanted += [_number(each) for each in requested if each.raw("option")]
        provided = {_number(each): _value(each, call) for each in given}
        priority = ipam.integer("priority", low=0)
    except (DocumentError, ValueError) as error:
        raise CniError(Code.INTERNAL, f"ipam: {error}") from None
    for code in provided.keys() & _OURS:
        raise CniError(Code.INVALID_CONFIG, f"ipam.provide: option {code} is set by the client")
    parameters = bytes(dict.fromkeys([*wanted, *_ALWAYS]))
    return Options(parameters, client_id(call), provided, priority)


def client_id(call: Call) -> str:
    """Return what tells this attachment from all others, also after a restart of anything."""
    text = f"{call.container_id}/{call.network}/{call.ifname}".encode()
    return (b"\0" + text)[:_CLIENT_ID_LIMIT].hex()


def _number(entry: Fields) -> int:
    name = entry.text("option")
    if name in _NAMES:
        return int(_NAMES[name])
    if name.isdecimal() and int(name) <= 255:
        return int(name)
    known = ", ".join(_NAMES)
    raise ValueError(f"option {name!r} is neither a number up to 255 nor one of {known}")


def _value(entry: Fields, call: Call) -> bytes:
    source = entry.text("fromArg")
    value = args.lenient(call.invocation.args).get(source, "") if source else entry.text("value")
    data = value.encode()
    if len(data) > _VALUE_LIMIT:
        raise ValueError(f"value of option {entry.text('option')} is longer than 255 bytes")
    return data


def undo(_call: Call) -> tuple[Operation, ...]:
    """Return nothing: a lease is taken back by what it says itself."""
    return ()


def allocate(_options: Options, _stores: Stores, _call: Call) -> Result:
    """Refuse: an address comes through a link, which is made before (``dhcp.leasing``)."""
    raise CniError(Code.INTERNAL, "dhcp needs a link")


def check(_options: Options, _stores: Stores, _call: Call) -> None:
    """Accept: the daemon keeps the lease; one that has ended takes the link down."""


IPAM = Ipam(type=TYPE, parse=parse, undo=undo, allocate=allocate, check=check)
