"""The result of an ADD as values, and its three shapes on the wire.

One type serves all versions: the current shape, plus the ``version`` that addresses carried
from 0.3.0 to 0.4.0, since conversions depend on what was written there. ``decode`` reads a
document of any version, ``encode`` writes any version; between them lies ``conversion``.
"""

import functools
import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, replace

from bitts.cni import versions
from bitts.cni.documents import NUMBERS, SIZES, DocumentError, Fields
from bitts.cni.versions import Family

IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
IpInterface = ipaddress.IPv4Interface | ipaddress.IPv6Interface
_SCOPES = 256
_REMEMBERED = 1024  # gateways and subnets come again with every container


@dataclass(frozen=True, slots=True)
class Interface:
    """A link that was made or used; an empty ``sandbox`` is the host."""

    name: str
    mac: str = ""
    sandbox: str = ""
    mtu: int = 0
    socket_path: str = ""
    pci_id: str = ""


@dataclass(frozen=True, slots=True)
class Ip:
    """An address with its prefix (host bits kept) and gateway; ``interface`` is an index.

    ``version`` is what 0.3.0–0.4.0 wrote ("4" or "6"); None where the version has no such key.
    """

    address: IpInterface
    gateway: IpAddress | None = None
    interface: int | None = None
    version: str | None = None


@dataclass(frozen=True, slots=True)
class Route:
    """A route to ``destination``; scope 0 global, 253 link, 254 host, None unsaid."""

    destination: IpInterface
    gateway: IpAddress | None = None
    mtu: int = 0
    advmss: int = 0
    priority: int = 0
    table: int | None = None
    scope: int | None = None


@dataclass(frozen=True, slots=True)
class Dns:
    """Resolver settings, for whoever uses them: plugins only pass them on."""

    nameservers: tuple[str, ...] = ()
    domain: str = ""
    search: tuple[str, ...] = ()
    options: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        """Say whether anything is set."""
        return bool(self.nameservers or self.domain or self.search or self.options)


NO_DNS = Dns()


@dataclass(frozen=True, slots=True)
class Result:
    """What an ADD answers. ``version`` is that of the document it was read from or is for."""

    version: str = versions.CURRENT
    interfaces: tuple[Interface, ...] = ()
    ips: tuple[Ip, ...] = ()
    routes: tuple[Route, ...] = ()
    dns: Dns = NO_DNS


def decode(document: object, default_version: str) -> Result:
    """Read a result; one without cniVersion is taken for ``default_version``.

    Raises DocumentError for a wrong type, an address that is none, or an unknown version.
    """
    fields = Fields(document, "result")
    version = fields.text("cniVersion") or default_version or "0.1.0"
    family = versions.family(version)
    if family is None:
        raise DocumentError(f'unsupported CNI result version "{version}"')
    if family is Family.FLAT:
        return _decode_flat(fields, version)
    return Result(
        version=version,
        interfaces=tuple(_interface(each, family) for each in fields.objects("interfaces")),
        ips=tuple(_ip(each, family) for each in fields.objects("ips")),
        routes=tuple(decode_route(each) for each in fields.objects("routes")),
        dns=decode_dns(fields.nested("dns")),
    )


def _decode_flat(fields: Fields, version: str) -> Result:
    ips: list[Ip] = []
    routes: list[Route] = []
    for name, number in (("ip4", "4"), ("ip6", "6")):
        if fields.raw(name) is None:
            continue
        one = fields.nested(name)
        address = one.converted("ip", parse_interface, None)
        if address is None:
            raise DocumentError(f"result.{name}.ip: invalid CIDR address: ")
        ips.append(Ip(address, one.converted("gateway", parse_address, None), version=number))
        routes += [decode_route(each) for each in one.objects("routes")]
    return Result(version, (), tuple(ips), tuple(routes), decode_dns(fields.nested("dns")))


def _interface(fields: Fields, family: Family) -> Interface:
    name, mac, sandbox = fields.text("name"), fields.text("mac"), fields.text("sandbox")
    if family is Family.LISTED:
        return Interface(name, mac, sandbox)
    return Interface(
        name,
        mac,
        sandbox,
        mtu=fields.integer("mtu"),
        socket_path=fields.text("socketPath"),
        pci_id=fields.text("pciID"),
    )


def _ip(fields: Fields, family: Family) -> Ip:
    address = fields.converted("address", parse_interface, None)
    if address is None:
        raise DocumentError("result.ips.address: invalid CIDR address: ")
    version = fields.text("version") if family is Family.LISTED else None
    gateway = fields.converted("gateway", parse_address, None)
    return Ip(address, gateway, fields.optional_integer("interface"), version)


def decode_route(fields: Fields) -> Route:
    """Read a route, of a result or of a configuration."""
    destination = fields.converted("dst", parse_interface, None)
    if destination is None:
        raise DocumentError("dst: invalid CIDR address: ")
    return Route(
        destination=destination,
        gateway=fields.converted("gw", parse_address, None),
        mtu=fields.integer("mtu", low=0, high=SIZES),
        advmss=fields.integer("advmss", low=0, high=SIZES),
        priority=fields.integer("priority", low=0, high=NUMBERS),
        table=fields.optional_integer("table", low=0, high=NUMBERS),
        scope=fields.optional_integer("scope", low=0, high=_SCOPES),
    )


def decode_dns(fields: Fields) -> Dns:
    """Read resolver settings, of a result or of a configuration."""
    return Dns(
        nameservers=fields.texts("nameservers"),
        domain=fields.text("domain"),
        search=fields.texts("search"),
        options=fields.texts("options"),
    )


@functools.lru_cache(_REMEMBERED)
def parse_address(text: str) -> IpAddress:
    """Read an address as Go does: an IPv4 address in IPv6 clothes counts as IPv4."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        raise ValueError(f"invalid IP address: {text}") from None
    if isinstance(address, ipaddress.IPv6Address):
        if address.scope_id is not None:
            raise ValueError(f"invalid IP address: {text}")
        return address.ipv4_mapped or address
    return address


@functools.lru_cache(_REMEMBERED)
def parse_interface(text: str) -> IpInterface:
    """Read ``address/length``, keeping the host bits; the length is mandatory."""
    address, slash, length = text.partition("/")
    try:
        if not slash or not length.isdecimal() or not length.isascii():
            raise ValueError(text)
        parsed = ipaddress.ip_address(address)
        if isinstance(parsed, ipaddress.IPv6Address):
            return _v6_interface(parsed, int(length))
        return ipaddress.IPv4Interface((parsed, int(length)))
    except ValueError:
        raise ValueError(f"invalid CIDR address: {text}") from None


def _v6_interface(address: ipaddress.IPv6Address, length: int) -> IpInterface:
    if address.scope_id is not None:
        raise ValueError("zones are not allowed")
    mapped = address.ipv4_mapped
    offset = ipaddress.IPV6LENGTH - ipaddress.IPV4LENGTH
    if mapped is not None and length >= offset:
        return ipaddress.IPv4Interface((mapped, length - offset))
    return ipaddress.IPv6Interface((address, length))


def encode(result: Result) -> dict[str, object]:
    """Return the document of a result in the shape of its own version.

    Raises ValueError for a version that has never existed.
    """
    family = versions.family(result.version)
    if family is None:
        raise ValueError(f'unsupported CNI result version "{result.version}"')
    document: dict[str, object] = {"cniVersion": result.version or "0.1.0"}
    if family is Family.FLAT:
        return document | _encode_flat(result)
    if result.interfaces:
        document["interfaces"] = [_encode_interface(each, family) for each in result.interfaces]
    if result.ips:
        document["ips"] = [_encode_ip(each, family) for each in result.ips]
    if result.routes:
        document["routes"] = [encode_route(each) for each in result.routes]
    dns = _encode_dns(result.dns)
    if dns or family is Family.LISTED:
        document["dns"] = dns
    return document


def _encode_flat(result: Result) -> dict[str, object]:
    document: dict[str, object] = {}
    for name, number in (("ip4", 4), ("ip6", 6)):
        ip = next((each for each in result.ips if each.address.version == number), None)
        if ip is None:
            continue
        routes = [each for each in result.routes if each.destination.version == number]
        one: dict[str, object] = {"ip": str(ip.address)}
        if ip.gateway is not None:
            one["gateway"] = str(ip.gateway)
        if routes:
            one["routes"] = [encode_route(each) for each in routes]
        document[name] = one
    return document | {"dns": _encode_dns(result.dns)}


def _encode_interface(interface: Interface, family: Family) -> dict[str, object]:
    pairs: dict[str, object] = {"mac": interface.mac}
    if family is Family.CURRENT:
        pairs["mtu"] = interface.mtu
    pairs["sandbox"] = interface.sandbox
    if family is Family.CURRENT:
        pairs |= {"socketPath": interface.socket_path, "pciID": interface.pci_id}
    return {"name": interface.name} | _set(pairs)


def _encode_ip(ip: Ip, family: Family) -> dict[str, object]:
    document: dict[str, object] = {}
    if family is Family.LISTED:
        document["version"] = ip.version or ""
    if ip.interface is not None:
        document["interface"] = ip.interface
    document["address"] = str(ip.address)
    if ip.gateway is not None:
        document["gateway"] = str(ip.gateway)
    return document


def encode_route(route: Route) -> dict[str, object]:
    """Return the document of a route; zeros are left out, an explicit table or scope is not."""
    gateway = "" if route.gateway is None else str(route.gateway)
    pairs: dict[str, object] = {
        "gw": gateway, "mtu": route.mtu, "advmss": route.advmss, "priority": route.priority,
    }  # fmt: skip
    document = {"dst": str(route.destination)} | _set(pairs)
    if route.table is not None:
        document["table"] = route.table
    if route.scope is not None:
        document["scope"] = route.scope
    return document


def _encode_dns(dns: Dns) -> dict[str, object]:
    return _set(
        {
            "nameservers": list(dns.nameservers),
            "domain": dns.domain,
            "search": list(dns.search),
            "options": list(dns.options),
        }
    )


def _set(pairs: Mapping[str, object]) -> dict[str, object]:
    return {key: value for key, value in pairs.items() if value}


def relabelled(result: Result, version: str) -> Result:
    """Return the same result under another version, nothing converted."""
    return replace(result, version=version)
