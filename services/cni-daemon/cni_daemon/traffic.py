"""Operations on traffic rather than on links: what flows are forgotten, let through, slowed.

They belong to ``operations``, which has the list of all kinds and their codec.
"""

import ipaddress
from dataclasses import dataclass

from bitts.net.conntrack import Service
from bitts.net.iptables import Rule
from bitts.net.tc import Bucket

IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address


@dataclass(frozen=True, slots=True)
class ForgetFlows:
    """Forget tracked flows to services, so that they meet the rules anew; never fails."""

    services: tuple[Service, ...]


@dataclass(frozen=True, slots=True)
class AllowLoopbackSources:
    """Let packets from 127.0.0.0/8 leave by the host link that leads to an address.

    Without a way there nothing is done. It stays: others use the link too.
    """

    address: IpAddress


@dataclass(frozen=True, slots=True)
class LayIptables:
    """Make chains and rules of iptables that are missing, where iptables is in use."""

    version: int
    chains: tuple[str, ...]
    rules: tuple[Rule, ...]


@dataclass(frozen=True, slots=True)
class ShapeLink:
    """Let a host link send no faster than a bucket allows."""

    index: int
    bucket: Bucket


@dataclass(frozen=True, slots=True)
class OpenIngress:
    """Make the place where filters meet what arrives at a host link."""

    index: int


@dataclass(frozen=True, slots=True)
class CloseIngress:
    """Remove that place, with its filters."""

    index: int


@dataclass(frozen=True, slots=True)
class RedirectIngress:
    """Send what arrives at a host link through another one first."""

    index: int
    target: int


@dataclass(frozen=True, slots=True)
class AddSource:
    """Put an address of a container into a zone of firewalld, where it may be already."""

    zone: str
    source: str


@dataclass(frozen=True, slots=True)
class RemoveSource:
    """Take an address out of its zone. One that ``may_fail`` is only thought to be there."""

    zone: str
    source: str
    may_fail: bool = False


ZoneOperation = AddSource | RemoveSource
TcOperation = ShapeLink | OpenIngress | CloseIngress | RedirectIngress
