"""Gateways of VLANs on bridges, shared by their containers: effects of ``devices``, blocking.

The first container makes one and the last one takes it away. Both happen under one lock, and a
container's port is in the VLAN before it asks for the gateway: so nobody loses one that another
has just found idle. What others made under that name is used, and stays.
"""

import contextlib
import threading

from bitts.net import addresses, bridgeports, links, namespaces, sysctls
from bitts.net.errors import NetlinkError
from bitts.net.links import Change, Link
from bitts.net.sockets import Socket

from cni_daemon import devices, scene
from cni_daemon.devices import GatewayOperation
from cni_daemon.names import ALIAS
from cni_daemon.plugins import vlans

_OWN = "/proc/thread-self/ns/net"
_LABEL = ALIAS + "gateway of VLAN "

_mutex = threading.Lock()


def act(operation: GatewayOperation) -> None:
    """Carry out one operation. Raises NetlinkError, NamespaceError, OSError."""
    with _mutex:
        if isinstance(operation, devices.ShareGateway):
            _share(operation, scene.host_route())
        else:
            _remove_idle(operation, scene.host_route())


def vlan_of(link: Link) -> int | None:
    """Return the VLAN that a link is the gateway of, None for other links (pure)."""
    number = link.alias.removeprefix(_LABEL)
    return int(number) if number != link.alias and number.isdecimal() else None


def _share(wanted: devices.ShareGateway, host: Socket) -> None:
    found = _named(wanted.gateway.name, host)
    if found is None:
        found = _made(wanted, host)
    elif not found.is_up:
        host.perform([links.change(found.index, Change(flags=links.UP))], f"opening {found.name}")
    host.attempt([addresses.remove(found.index, each) for each in wanted.dropped])
    host.perform(
        [addresses.add(found.index, e, skips_dad=True, exclusive=False) for e in wanted.addresses],
        f"failed to set vlan interface {found.name} for bridge with addr",
    )


def _named(name: str, host: Socket) -> Link | None:
    try:
        return links.decode(host.query(links.get(name=name), f"looking at {name}"))
    except NetlinkError as error:
        if error.is_missing:
            return None
        raise


def _made(wanted: devices.ShareGateway, host: Socket) -> Link:
    """Make a whole gateway or none: one that is there is taken for whole."""
    port, gateway = wanted.port, wanted.gateway
    with namespaces.opened(_OWN) as here:
        pair = links.veth(port, gateway, netns_fd=here, mtu=wanted.mtu, master=wanted.bridge)
        host.perform([pair], f"making {gateway.name}")
    with contextlib.suppress(OSError):  # a container must not tell the node its routers
        sysctls.write(f"ipv6/conf/{gateway.name}/accept_ra", "0")
    try:
        changes = vlans.changes(wanted.vlan, (), wanted.preserves_default)
        host.perform(
            [
                links.change(gateway.index, Change(alias=f"{_LABEL}{wanted.vlan}")),
                *(
                    links.port_vlan(
                        port.index, each.number, is_pvid=each.is_pvid, remove=each.is_removed
                    )
                    for each in changes
                ),
                links.change(gateway.index, Change(flags=links.UP)),
            ],
            f"setting up {gateway.name}",
        )
    except NetlinkError:
        host.attempt([links.delete(index=gateway.index)])
        raise
    return Link(gateway.index, gateway.name)


def _remove_idle(operation: devices.RemoveIdleGateway, host: Socket) -> None:
    found = _named(operation.name, host)
    if found is None or not found.alias.startswith(ALIAS):
        return
    ports = [bridgeports.decode(each) for each in host.dump(bridgeports.every(), "listing ports")]
    bridge = next((each.bridge for each in ports if each.index == found.peer_index), 0)
    others = (
        each.index
        for each in ports
        if each.bridge == bridge and each.index != found.peer_index and each.is_in(operation.vlan)
    )
    if not bridge or not any(_is_container_s(each, host) for each in others):
        host.perform([links.delete(index=found.index)], f"removing {found.name}")


def _is_container_s(index: int, host: Socket) -> bool:
    """Say whether a port leads to a container; uplinks of the bridge need no gateway here."""
    try:
        return links.decode(host.query(links.get(index=index), "looking at a port")).kind == "veth"
    except NetlinkError as error:
        if error.is_missing:
            return False
        raise
