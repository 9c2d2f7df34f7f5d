"""What links that hang on another one have in common: macvlan, ipvlan, vlan (pure).

They are made on the host (or inside the container, with ``linkInContainer``) below a *master*
and appear in the container under a passing name, since their own may be taken on the host.
"""

from collections.abc import Sequence

from bitts.cni.errors import CniError, Code
from bitts.cni.results import Dns, Interface, Ip, Result
from bitts.net import links, routes
from bitts.net.links import Change, Link

from cni_daemon.model import Call, Look, Observed, Place, Step, View
from cni_daemon.operations import ChangeLink, DeleteLink, MakeLink, Operation
from cni_daemon.plugins import addressing, checking

_DEFAULTS = {4: addressing.default_route(4, None), 6: addressing.default_route(6, None)}


def looks(master: str, call: Call, *, is_in_container: bool) -> Look:
    """Look at the master (or for the default route), and at what has the container's name."""
    if call.command == "CHECK":
        return Look(pod=(call.ifname,), has_pod_routes=True)
    if is_in_container:
        if master:
            return Look(pod=(call.ifname, master))
        return Look(pod=(call.ifname,), has_pod_links=True, has_pod_routes=True)
    if master:
        return Look(host=(master,), pod=(call.ifname,))
    return Look(has_host_links=True, has_host_routes=True, pod=(call.ifname,))


def find_master(name: str, observed: Observed, *, is_in_container: bool) -> Link:
    """Return the link of that name, or the one of the default route. Raises CniError."""
    view = observed.pod if is_in_container else observed.host
    assert view is not None
    found = view.links.get(name) if name else _of_default_route(view)
    if found is None:
        raise CniError(Code.INTERNAL, f'failed to lookup master "{name}": Link not found')
    return found


def _of_default_route(view: View) -> Link | None:
    wanted = {each.destination.network for each in _DEFAULTS.values()}
    for route in view.routes:
        if route.table == routes.MAIN and route.destination in wanted:
            return view.by_index(route.index)
    raise CniError(Code.INTERNAL, "no default route interface found")


def check_mtu(mtu: int, master: Link) -> None:
    """Refuse an MTU that the master cannot carry."""
    if not 0 <= mtu <= master.mtu:
        raise CniError(Code.INTERNAL, f"invalid MTU {mtu}, must be [0, master MTU({master.mtu})]")


def make(
    kind: str, call: Call, observed: Observed, master: Link, change: Change, data: bytes,
    *, is_in_container: bool,
) -> tuple[int, list[Step]]:  # fmt: skip
    """Return the new link's index and the steps that make it. Raises CniError if it exists."""
    ifname = call.ifname
    if observed.pod is not None and ifname in observed.pod.links:
        raise CniError(Code.INTERNAL, f'failed to rename {kind} to "{ifname}": file exists')
    passing, index = call.draws.link_name(), call.draws.index()
    place = Place.POD if is_in_container else Place.HOST
    making = MakeLink(place, kind, passing, index, change, data, master.index, not is_in_container)
    naming = ChangeLink(Place.POD, Change(name=ifname), index)
    return index, [
        Step(making, DeleteLink(Place.POD, passing)),
        Step(naming, DeleteLink(Place.POD, ifname)),
    ]


def notify(ifname: str) -> list[Step]:
    """Let the kernel announce the container's addresses when the link comes up."""
    return [
        addressing.setting(Place.POD, key, "1", is_optional=True)
        for key in (f"ipv4/conf/{ifname}/arp_notify", f"ipv6/conf/{ifname}/ndisc_notify")
    ]


def result(call: Call, mac: str, dns: Dns, *, is_addressed: bool) -> Result:
    """Return the result with the one link of the container. Raises CniError."""
    given = call.addressing or Result()
    if is_addressed and not given.ips:
        raise CniError(Code.INTERNAL, "IPAM plugin returned missing IP config")
    return Result(
        interfaces=(Interface(call.ifname, mac, call.netns),),
        ips=of_first(given.ips),
        routes=given.routes,
        dns=dns or given.dns,
    )


def of_first(ips: Sequence[Ip]) -> tuple[Ip, ...]:
    """Say of all addresses that they are on the result's first link."""
    return tuple(Ip(ip.address, ip.gateway, 0) for ip in ips)


def planned(call: Call, kind: str, index: int, mac: str, mtu: int) -> dict[Place, tuple[Link, ...]]:
    """Tell later plugins of the chain about the link."""
    return {Place.POD: (Link(index, call.ifname, kind, mac, mtu, links.UP),)}


def check(call: Call, observed: Observed, kind: str) -> Link:
    """Compare the link, its addresses and routes with the result; returns the link."""
    previous, pod = checking.previous(call), checking.pod(observed, call)
    own = addressing.of_sandbox(previous, call.ifname, call.netns)
    if own is None:
        raise checking.fail(f"prevResult names no {call.ifname} in {call.netns}")
    link = checking.link(pod, own, kind=kind)
    checking.addresses(pod, call.ifname, previous.ips)
    checking.all_routes(pod, previous.routes)
    return link


def remove(_options: object, call: Call, _observed: Observed) -> tuple[Operation, ...]:
    """Remove the container's link."""
    return (DeleteLink(Place.POD, call.ifname),)
