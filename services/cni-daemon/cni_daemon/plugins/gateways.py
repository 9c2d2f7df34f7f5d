"""Gateways of bridge networks (pure): addresses of the bridge itself, or of a link in its VLAN.

A bridge that filters VLANs hears nothing of a port's VLAN itself. So the gateway of a VLAN is a
link of its own, ``<bridge>.<vlan>``, whose other end is a port in it, as in the reference. Its
MAC address follows from the bridge's: neighbours know it still when it was away meanwhile.
"""

import hashlib
from collections.abc import Iterable

from bitts.cni import results
from bitts.cni.errors import CniError, Code
from bitts.cni.results import Interface, Ip, IpInterface
from bitts.net.links import End, Link

from cni_daemon.devices import RemoveIdleGateway, ShareGateway
from cni_daemon.model import Draws, Observed, Place, Step
from cni_daemon.operations import AddAddress, Operation, RemoveAddress, SetSysctl

FORWARDING = {4: "ipv4/ip_forward", 6: "ipv6/conf/all/forwarding"}
_NAME_LIMIT = 15


def vlan_link(bridge: str, vlan: int) -> str:
    """Return the name of a VLAN's gateway link."""
    return f"{bridge}.{vlan}"


def check_name(bridge: str, vlan: int) -> None:
    """Refuse a bridge the name of whose VLAN's gateway no link can have. Raises CniError."""
    name = vlan_link(bridge, vlan)
    if len(name.encode()) > _NAME_LIMIT:
        raise CniError(
            Code.INVALID_CONFIG,
            f"bridge {bridge!r}: the gateway of VLAN {vlan} would be named {name!r}, and links "
            f"have at most {_NAME_LIMIT} bytes: give the bridge a shorter name",
        )


def forwarding(version: int, observed: Observed) -> tuple[Operation, ...]:
    """Return what lets the node forward, if it does not yet."""
    key = FORWARDING[version]
    return () if observed.host.settings.get(key) == "1" else (SetSysctl(Place.HOST, key, "1"),)


def on_bridge(bridge: Link, ip: Ip, observed: Observed, *, forces: bool) -> list[Operation]:
    """Return what gives the bridge its address. Raises CniError where it has another one."""
    wanted = _interface(ip)
    present = _present(bridge.name, observed)
    found: list[Operation] = [
        RemoveAddress(Place.HOST, bridge.index, each)
        for each in _conflicts(bridge.name, wanted, present, forces=forces)
    ]
    if wanted not in present:
        found.append(AddAddress(Place.HOST, bridge.index, wanted, skips_dad=True))
    return found


def leaving(name: str, vlan: int) -> Step:
    """Return the step to plan first: it does nothing, and the last container's undo ends with it.

    Undo operations run in reverse, so the container's own port is gone by then.
    """
    return Step(None, RemoveIdleGateway(name, vlan))


def in_vlan(
    bridge: Link, vlan: int, ips: Iterable[Ip], observed: Observed, draws: Draws,
    *, forces: bool, preserves_default: bool,
) -> tuple[Step, Interface]:  # fmt: skip
    """Return the step that gives a VLAN its gateway, and the result's word of it.

    Raises CniError where the link that is there has another address.
    """
    name = vlan_link(bridge.name, vlan)
    there = observed.host.links.get(name)
    mac = _mac(bridge, vlan) if there is None else there.mac
    wanted = tuple(dict.fromkeys(_interface(ip) for ip in ips))
    present = _present(name, observed)
    try:
        dropped = [each for one in wanted for each in _conflicts(name, one, present, forces=forces)]
    except CniError as error:
        text = f"failed to set vlan interface for bridge with addr: {error.message}"
        raise CniError(error.code, text) from None
    sharing = ShareGateway(
        bridge.index, vlan, End(name, draws.index(), mac),
        End(draws.link_name(), draws.index(), draws.mac()),
        wanted, tuple(each for each in dropped if each not in wanted),
        bridge.mtu, preserves_default,
    )  # fmt: skip
    return Step(sharing), Interface(name, mac)


def _mac(bridge: Link, vlan: int) -> str:
    drawn = hashlib.blake2b(f"{bridge.mac} {vlan}".encode(), digest_size=6).digest()
    return bytes([(drawn[0] & 0xFC) | 0x02, *drawn[1:]]).hex(":")


def _interface(ip: Ip) -> IpInterface:
    assert ip.gateway is not None
    return results.parse_interface(f"{ip.gateway}/{ip.address.network.prefixlen}")


def _present(name: str, observed: Observed) -> list[IpInterface]:
    return [each.interface for each in observed.host.addresses.get(name, ())]


def _conflicts(
    name: str, wanted: IpInterface, present: Iterable[IpInterface], *, forces: bool
) -> list[IpInterface]:
    """Return addresses that have to go for another one. Raises CniError unless that is forced.

    Several IPv6 subnets may share a link, as long as they do not overlap.
    """
    others = [each for each in present if each.version == wanted.version]
    if wanted in others:
        return []
    found = [
        each for each in others if wanted.version == 4 or wanted.network.overlaps(each.network)
    ]
    if found and not forces:
        raise CniError(Code.INTERNAL, f'"{name}" already has an IP address different from {wanted}')
    return found
