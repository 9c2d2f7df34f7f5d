"""The IPAM plugins that the daemon serves itself; others are run as programs."""

from collections.abc import Mapping

from cni_daemon.ipam import dhcp, host_local, static
from cni_daemon.ipam.interface import AnyIpam

ALL: Mapping[str, AnyIpam] = {
    module.IPAM.type: module.IPAM for module in (host_local, static, dhcp)
}
