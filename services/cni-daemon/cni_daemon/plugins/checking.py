"""What CHECK compares (pure; CNI spec, section 2): each function raises CniError or returns."""

from collections.abc import Iterable

from bitts.cni import results
from bitts.cni.errors import CniError, Code
from bitts.cni.results import Interface, Ip, Result
from bitts.net import routes
from bitts.net.links import Link

from cni_daemon.model import Call, Observed, View


def fail(message: str) -> CniError:
    """Return the error for an attachment that is broken."""
    return CniError(Code.INTERNAL, message)


def previous(call: Call) -> Result:
    """Return the result that CHECK needs."""
    if call.previous is None:
        raise fail("Required prevResult missing")
    return call.previous


def pod(observed: Observed, call: Call) -> View:
    """Return the container's view."""
    if observed.pod is None:
        raise fail(f"failed to open netns {call.netns!r}: it is gone")
    return observed.pod


def link(view: View, recorded: Interface, *, kind: str = "") -> Link:
    """Find a link that a result names, of the right kind and with the recorded MAC address."""
    found = view.links.get(recorded.name)
    if found is None:
        raise fail(f"Interface {recorded.name} is missing")
    if kind and found.kind != kind:
        raise fail(f"Error: Interface {recorded.name} not of type {kind}")
    if recorded.mac and recorded.mac.lower() != found.mac:
        raise fail(
            f"Interface {recorded.name} Mac {recorded.mac} doesn't match {found.name} Mac: "
            f"{found.mac}"
        )
    return found


def addresses(view: View, ifname: str, wanted: Iterable[Ip]) -> None:
    """Find every address on the container's link, and a way into its subnet."""
    present = {each.interface for each in view.addresses.get(ifname, ())}
    reachable = {each.destination for each in view.routes if each.table == routes.MAIN}
    for ip in wanted:
        if ip.address not in present:
            raise fail(f"Failed to match addr {ip.address} on interface {ifname}")
        network = ip.address.network
        if network.prefixlen != network.max_prefixlen and network not in reachable:
            raise fail(f"Failed to find route for {network} on interface {ifname}")


def all_routes(view: View, wanted: Iterable[results.Route], *, table: int = routes.MAIN) -> None:
    """Find every route of a result in one table; of defaults only that there is one."""
    present = [each for each in view.routes if each.table == table]
    for route in wanted:
        network = route.destination.network
        matching = [each for each in present if each.destination == network]
        if network.prefixlen and route.gateway is not None:
            matching = [each for each in matching if each.gateway == route.gateway]
        if not matching:
            raise fail(f"Expected Route {network} via {route.gateway} not found in routing table")
