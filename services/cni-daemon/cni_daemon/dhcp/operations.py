"""What takes a lease back, as a value; it belongs to ``operations``, which has the codec."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ReleaseLease:
    """Tell the DHCP server that an address is free; never fails, for a lease ends by itself.

    It leaves the container's link for the ``hop`` (a MAC address) from which the lease came, so
    that nobody need be asked for the way while the link is about to go.
    """

    place: str
    ifname: str
    address: str
    server: str
    hop: str
    mac: str
    client_id: str
