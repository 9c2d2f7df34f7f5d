"""Operations as netlink messages (pure): which message, and on which socket it is sent."""

import functools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from typing import TypeGuard, assert_never

from bitts.net import addresses, links, nftables, routes, rules, tc
from bitts.net.wire import Message

from cni_daemon import devices, routing, traffic
from cni_daemon import operations as op
from cni_daemon.model import Place

ROUTE_OPERATIONS = (
    op.MakeVeth, op.MakeBridge, op.MakeLink, op.ChangeLink, op.DeleteLink,
    op.SetPortVlan, op.AddAddress, op.RemoveAddress, op.AddRoute, op.RemoveRoute,
    traffic.ShapeLink, traffic.OpenIngress, traffic.CloseIngress, traffic.RedirectIngress,
    routing.AddRule, routing.RemoveRule, routing.ReplaceRoute,
)  # fmt: skip
ELEMENT_OPERATIONS = (op.AddElements, op.RemoveElements)

RouteOperation = (
    op.MakeVeth | op.MakeBridge | op.MakeLink | op.ChangeLink | op.DeleteLink
    | op.SetPortVlan | op.AddAddress | op.RemoveAddress | op.AddRoute | op.RemoveRoute
    | traffic.TcOperation | routing.RoutingOperation
)  # fmt: skip
ElementOperation = op.AddElements | op.RemoveElements
_PLACED = {"route", "settings"}


def batches(todo: Iterable[op.Operation]) -> Iterator[list[op.Operation]]:
    """Yield neighbouring operations that go out together."""
    return (list(group) for _, group in groupby(todo, key=channel))


def channel(operation: op.Operation) -> tuple[str, str]:
    """Return what operations must have in common to go out together: the kind, and the place."""
    of: type = type(operation)
    kind = _kind(of)
    return kind, str(getattr(operation, "place", Place.HOST)) if kind in _PLACED else ""


@functools.cache
def _kind(operation: type) -> str:
    if issubclass(operation, ROUTE_OPERATIONS):
        return "route"
    if issubclass(operation, ELEMENT_OPERATIONS):
        return "elements"
    return "settings" if operation is op.SetSysctl else "other"


def is_route(batch: Sequence[op.Operation]) -> TypeGuard[Sequence[RouteOperation]]:
    """Say whether operations are sent as rtnetlink."""
    return isinstance(batch[0], ROUTE_OPERATIONS)


def is_element(batch: Sequence[op.Operation]) -> TypeGuard[Sequence[ElementOperation]]:
    """Say whether operations are sent as a transaction of nftables."""
    return isinstance(batch[0], ELEMENT_OPERATIONS)


def place(operation: RouteOperation) -> str:
    """Return where a link operation takes place."""
    if isinstance(operation, op.MakeVeth | op.MakeBridge | op.SetPortVlan):
        return Place.HOST
    if isinstance(operation, traffic.TcOperation):
        return Place.HOST
    return operation.place


def route_message(operation: RouteOperation, netns_fd: int) -> Message:  # noqa: C901 - a table
    """Return the rtnetlink message of an operation; ``netns_fd`` is the container's."""
    if isinstance(operation, traffic.TcOperation):
        return _tc_message(operation)
    if isinstance(operation, routing.RoutingOperation):
        return _routing_message(operation)
    match operation:
        case op.MakeVeth(host, pod, mtu, master):
            return links.veth(host, pod, netns_fd=netns_fd, mtu=mtu, master=master)
        case op.MakeBridge(name, mac, mtu, filters_vlans):
            return links.bridge(name, mac=mac, mtu=mtu, filters_vlans=filters_vlans)
        case op.MakeLink(_, kind, name, index, change, data, lower, is_born_in_pod):
            if is_born_in_pod:
                change = replace(change, netns_fd=netns_fd)
            return links.create(kind, name, index=index, change=change, data=data, lower=lower)
        case op.ChangeLink(_, change, index, name):
            return links.change(index, change, name=name)
        case op.DeleteLink(_, name, _):
            return links.delete(name=name)
        case op.SetPortVlan(index, vlan, is_pvid, remove):
            return links.port_vlan(index, vlan, is_pvid=is_pvid, remove=remove)
        case op.AddAddress(_, index, interface, skips_dad, is_shared):
            return addresses.add(index, interface, skips_dad=skips_dad, exclusive=not is_shared)
        case op.RemoveAddress(_, index, interface):
            return addresses.remove(index, interface)
        case op.AddRoute(_, route, _):
            return routes.add(route, exclusive=False)
        case op.RemoveRoute(_, route):
            return routes.remove(route)
        case _:
            assert_never(operation)


def _tc_message(operation: traffic.TcOperation) -> Message:
    match operation:
        case traffic.ShapeLink(index, bucket):
            return tc.shape(index, bucket)
        case traffic.OpenIngress(index):
            return tc.ingress(index)
        case traffic.CloseIngress(index):
            return tc.remove_ingress(index)
        case traffic.RedirectIngress(index, target):
            return tc.redirect(index, target)


def _routing_message(operation: routing.RoutingOperation) -> Message:
    match operation:
        case routing.AddRule(_, rule):
            return rules.add(rule)
        case routing.RemoveRule(_, rule):
            return rules.remove(rule)
        case routing.ReplaceRoute(_, route):
            return routes.replace(route)


def element_message(operation: ElementOperation) -> Message:
    """Return the nfnetlink message of an operation."""
    if isinstance(operation, op.AddElements):
        return nftables.add(operation.container, operation.elements)
    return nftables.remove(operation.container, operation.elements)


def describe(operation: op.Operation) -> str:  # noqa: C901 - a table
    """Say in a few words what an operation does, for errors and logs."""
    match operation:
        case op.MakeVeth(host, pod):
            return f"making the pair {host.name} and {pod.name}"
        case op.MakeBridge(name) | op.MakeLink(name=name):
            return f"making {name}"
        case op.ChangeLink(index=index, name=name):
            return f"changing link {name or index}"
        case op.DeleteLink(name=name):
            return f"removing link {name}"
        case op.SetPortVlan(index):
            return f"setting up bridge port {index}"
        case op.AddAddress(interface=interface):
            return f"failed to add IP addr {interface}"
        case op.RemoveAddress(interface=interface):
            return f"removing address {interface}"
        case op.AddRoute(route=route):
            return f"failed to add route {route.destination} via {route.gateway}"
        case op.RemoveRoute(route=route):
            return f"removing route {route.destination}"
        case op.SetSysctl(key=key, value=value):
            return f"setting net/{key} to {value}"
        case op.AddElements(container) | op.RemoveElements(container):
            return f"changing the set {container.name} of table {container.table}"
        case op.ReleaseAddresses(directory):
            return f"releasing addresses in {directory}"
        case traffic.ShapeLink(index) | traffic.OpenIngress(index) | traffic.CloseIngress(index):
            return f"create qdisc on link {index}"
        case traffic.RedirectIngress(index):
            return f"add filter on link {index}"
        case routing.AddRule(rule=rule) | routing.RemoveRule(rule=rule):
            return f"changing the rule for packets from {rule.source}"
        case routing.ReplaceRoute(route=route):
            return f"replacing route {route.destination} of table {route.table}"
        case traffic.LayIptables(version):
            return f"laying iptables rules for IPv{version}"
        case traffic.ForgetFlows():
            return "forgetting tracked flows"
        case traffic.AddSource(zone, source) | traffic.RemoveSource(zone, source):
            return f"changing zone {zone} for {source}"
        case traffic.AllowLoopbackSources(address):
            return f"unable to enable route_localnet toward {address}"
        case op.RunDelegate(type=kind):
            return f"running plugin {kind}"
        case _:
            return _describe_device(operation)


def _describe_device(operation: op.Operation) -> str:
    match operation:
        case devices.MakeTap(name=name):
            return f"failed to create tap {name}"
        case devices.HandOver(name=name):
            return f"failed to move link {name}"
        case devices.HandBack(ifname=name):
            return f"giving back {name}"
        case devices.RemoveIdleVrf(name):
            return f"removing VRF {name}"
        case devices.ShareGateway(gateway=gateway):
            return f"failed to set up the VLAN gateway {gateway.name}"
        case devices.RemoveIdleGateway(name):
            return f"removing the VLAN gateway {name}"
        case _:
            return type(operation).__name__
