"""The plugins that the daemon serves, by the name under which runtimes call them."""

from collections.abc import Mapping

from cni_daemon.plugins import (
    bandwidth,
    bridge,
    dummy,
    firewall,
    host_device,
    ipvlan,
    loopback,
    macvlan,
    portmap,
    ptp,
    route_override,
    sbr,
    tap,
    tuning,
    vlan,
    vrf,
)
from cni_daemon.plugins.interface import AnyPlugin

ALL: Mapping[str, AnyPlugin] = {
    module.PLUGIN.type: module.PLUGIN
    for module in (
        bandwidth,
        bridge,
        dummy,
        firewall,
        host_device,
        ipvlan,
        loopback,
        macvlan,
        portmap,
        ptp,
        route_override,
        sbr,
        tap,
        tuning,
        vlan,
        vrf,
    )
}
