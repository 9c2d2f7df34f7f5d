"""Take leases back: a RELEASE from the container's link, as long as it is there. Blocks."""

import contextlib

from bitts.core import logs
from bitts.net.errors import NamespaceError

from cni_daemon.dhcp import client
from cni_daemon.dhcp.operations import ReleaseLease
from cni_daemon.model import Place
from cni_daemon.scene import Scene


def back(wanted: ReleaseLease, where: Scene) -> None:
    """Send a RELEASE; never fails, for a lease ends by itself."""
    try:
        with where.inside(Place.POD):
            opened = client.raw_socket(wanted.ifname)
        with contextlib.closing(opened):
            client.release(wanted, opened)
    except (OSError, NamespaceError) as error:
        logs.get("dhcp").info("A lease is left to end by itself", address=wanted.address, err=error)
