"""Addresses for callers of ``bitts.ipam.v1``: taken and written down like those of a pod.

The steps are those of an ADD without a container: ``begin`` → take → ``done``; a crash between
them gives everything back at the next start. Blocks; call it in a thread, inside
``Engine.reserved``.
"""

import itertools
import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from bitts.cni import config, environment, results, versions
from bitts.cni.environment import Command
from bitts.cni.errors import CniError

from cni_daemon import callers
from cni_daemon.faults import Reached
from cni_daemon.ipam import host_local
from cni_daemon.ipam.host_local import Options
from cni_daemon.ipam.stores import Stores
from cni_daemon.journal import Journal
from cni_daemon.model import Call, Draws
from cni_daemon.operations import ReleaseAddresses
from cni_daemon.records import Entry, Phase

_VERSION = versions.CURRENT


class WishError(Exception):
    """What is asked for makes no sense; the text names the field."""


class TakenError(Exception):
    """The owner has an attachment of that name already, which is none of ours to change."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What a caller asks for. ``sets`` are documents of ranges as host-local has them."""

    network: str
    owner: str
    interface: str
    sets: Sequence[Sequence[dict[str, str]]] = ()
    requested: Sequence[str] = ()
    directory: str = ""


class Allocator:
    """Allocates on this node."""

    def __init__(self, journal: Journal, stores: Stores, reached: Reached) -> None:
        self._journal = journal
        self._stores = stores
        self._reached = reached

    def allocate(self, wish: Wish) -> Entry:
        """Return what the owner has, taking it first if need be.

        Raises WishError, TakenError, CniError when there is no address left, OSError.
        """
        key = callers.addresses(wish.network, wish.owner, wish.interface)
        standing = self._journal.entry(key)
        if standing is not None and standing.phase is Phase.DONE:
            return standing
        call, options = self._understood(wish)
        if any(_is_namesake(each, wish) for each in self._journal.entries()):
            raise TakenError(
                f"{wish.owner}/{wish.interface} has an attachment to {wish.network}: "
                "choose another owner or interface"
            )
        undo = ReleaseAddresses(options.directory, wish.owner, wish.interface)
        self._journal.begin(Entry(key, Phase.BEGUN, undo=(undo,)))
        self._reached("begin written")
        try:
            found = host_local.allocate(options, self._stores, call)
        except CniError:
            self._journal.gone(key)  # refused: it has given nothing
            raise
        self._reached("addresses allocated")
        document = results.encode(results.relabelled(found, _VERSION))
        self._journal.done(key, document)
        self._reached("done written")
        entry = self._journal.entry(key)
        assert entry is not None
        return entry

    def _understood(self, wish: Wish) -> tuple[Call, Options]:
        """Read a wish as the configuration that it stands for: one place checks both."""
        known = self._stores.of(wish.network)
        ranges = [list(each) for each in wish.sets]
        if not ranges and known is None:
            raise WishError(
                f"sets: network {wish.network!r} was not used since the daemon began: name ranges"
            )
        ipam: dict[str, object] = {"type": host_local.IPAM.type, "ranges": ranges}
        if wish.directory:
            ipam["dataDir"] = wish.directory
        document = {
            "cniVersion": _VERSION, "name": wish.network, "type": host_local.IPAM.type,
            "ipam": ipam, "args": {"cni": {"ips": list(wish.requested)}},
        }  # fmt: skip
        variables = {
            "CNI_COMMAND": "ADD", "CNI_CONTAINERID": wish.owner, "CNI_IFNAME": wish.interface,
            "CNI_NETNS": "-", "CNI_PATH": "-",
        }  # fmt: skip
        try:
            invocation = environment.read(variables)
            read = config.read_request(
                json.dumps(document).encode(), Command.ADD, tuple(versions.ALL)
            )
            call = Call(invocation, read, Draws(random.Random(0), itertools.count(1)))  # noqa: S311 - nothing is drawn
            if ranges:
                return call, host_local.parse(read, call)
            assert known is not None
            requested = tuple(results.parse_address(each) for each in wish.requested)
        except (CniError, ValueError) as error:
            raise WishError(str(error)) from None
        options = Options(directory=known.directory, sets=known.sets, requested=requested)
        if wish.directory:
            options = replace(options, directory=host_local.directory(read))
        return call, options


def _is_namesake(entry: Entry, wish: Wish) -> bool:
    key = entry.key
    named = (key.network, key.container_id, key.ifname)
    return named == (wish.network, wish.owner, wish.interface) and key.step != callers.ADDRESSES
