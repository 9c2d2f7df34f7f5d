"""The plugins that the daemon serves, by the name under which runtimes call them."""

from collections.abc import Mapping

from cni_daemon.plugins import (
    bandwidth,
    bridge,
    firewall,
    loopback,
    macvlan,
    portmap,
    ptp,
    route_override,
    sbr,
    tuning,
)
from cni_daemon.plugins.interface import AnyPlugin

ALL: Mapping[str, AnyPlugin] = {
    module.PLUGIN.type: module.PLUGIN
    for module in (
        bandwidth,
        bridge,
        firewall,
        loopback,
        macvlan,
        portmap,
        ptp,
        route_override,
        sbr,
        tuning,
    )
}
