"""Operations on links that netlink alone does not make, or that belong to somebody else.

They belong to ``operations``, which has the list of all kinds and their codec; ``handing`` has
the effects.
"""

import ipaddress
from dataclasses import dataclass

from bitts.net.links import End
from bitts.net.taps import Tap

IpInterface = ipaddress.IPv4Interface | ipaddress.IPv6Interface


@dataclass(frozen=True, slots=True)
class MakeTap:
    """Make a tap device; ``context`` is the SELinux context that makes it, empty for our own.

    One with a context is made by the ``ip`` program, under a ``passing`` name on the host.
    """

    place: str
    tap: Tap
    context: str = ""
    passing: str = ""

    @property
    def name(self) -> str:
        """The name that the container will know it by."""
        return self.tap.name


@dataclass(frozen=True, slots=True)
class HandOver:
    """Move a link of the host, found by ``index``, into the container, as ``ifname``.

    Its name on the host is kept in its alias, as the reference keeps it.
    """

    name: str
    index: int
    ifname: str
    new_index: int


@dataclass(frozen=True, slots=True)
class HandBack:
    """Move a link from the container to the host, under its old name, switched off.

    ``name``, ``index`` and ``alias`` are what it was; an empty name: see the link's alias. One
    that fell back to the host when the container's namespace died is looked for there.
    """

    ifname: str
    name: str = ""
    index: int = 0
    alias: str = ""


@dataclass(frozen=True, slots=True)
class RemoveIdleVrf:
    """Remove a VRF of the container when no link is left in it."""

    name: str
    place: str = "pod"


DeviceOperation = MakeTap | HandOver | HandBack | RemoveIdleVrf


@dataclass(frozen=True, slots=True)
class ShareGateway:
    """Give a VLAN of a bridge its gateway on the host, if it has none, and these addresses.

    The gateway is one end of a pair, whose other end is a port of the bridge in that VLAN. It is
    made where nothing has its name; ``dropped`` are addresses that it must not have.
    """

    bridge: int
    vlan: int
    gateway: End
    port: End
    addresses: tuple[IpInterface, ...]
    dropped: tuple[IpInterface, ...] = ()
    mtu: int = 0
    preserves_default: bool = False


@dataclass(frozen=True, slots=True)
class RemoveIdleGateway:
    """Remove the gateway of a VLAN if it is ours and no container's port is left in the VLAN."""

    name: str
    vlan: int


GatewayOperation = ShareGateway | RemoveIdleGateway
