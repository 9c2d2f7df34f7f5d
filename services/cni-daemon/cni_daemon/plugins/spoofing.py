"""macspoofchk (pure): frames from a guarded port with another source address are dropped.

One bridge-family table with two sets: guarded ports, and the pairs of port and address that
may pass. Upstream lists its whole rule set on every ADD; here an attachment is two elements.
"""

from bitts.net import links, nftables
from bitts.net.nftables import Container, Element

from cni_daemon.model import Observed, Step
from cni_daemon.names import TABLE
from cni_daemon.operations import AddElements, ApplyRules, Once, RemoveElements

_KEY = "macspoofchk"
_NAME_SIZE = 16
_PORTS = Container(TABLE, "guarded", nftables.BRIDGE)
_PAIRS = Container(TABLE, "allowed", nftables.BRIDGE)
_SCRIPT = f"""
add table bridge {TABLE}
add set bridge {TABLE} guarded {{ type ifname; }}
add set bridge {TABLE} allowed {{ type ifname . ether_addr; }}
add chain bridge {TABLE} prerouting {{ type filter hook prerouting priority -300; policy accept; }}
flush chain bridge {TABLE} prerouting
add rule bridge {TABLE} prerouting iifname @guarded iifname . ether saddr != @allowed drop
"""


def foundation(observed: Observed) -> tuple[Once, ...]:
    """Return the rules if they are missing."""
    return () if _KEY in observed.settled else (Once(_KEY, (ApplyRules(_SCRIPT),)),)


def steps(port: str, mac: str) -> tuple[Step, ...]:
    """Return the steps that bind a port to one source address: first what may pass."""
    name = port.encode().ljust(_NAME_SIZE, b"\0")
    pair = (Element(nftables.concatenated(name, links.mac_bytes(mac))),)
    guarded = (Element(name),)
    return (
        Step(AddElements(_PAIRS, pair), RemoveElements(_PAIRS, pair)),
        Step(AddElements(_PORTS, guarded), RemoveElements(_PORTS, guarded)),
    )
