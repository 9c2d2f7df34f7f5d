"""Routes that callers of ``bitts.routes.v1`` want: made, written down, and put back.

The journal has the wish (as the entry's result) and what takes the route back. The kernel drops
routes with their link; a look every few seconds puts back what is missing. Blocks.
"""

import ipaddress
import socket
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass

from bitts.cni import validation
from bitts.cni.errors import CniError
from bitts.net import routes
from bitts.net.routes import IpAddress, IpNetwork, Route

from cni_daemon import callers, scene
from cni_daemon.executor import Executor, OperationError
from cni_daemon.faults import Reached
from cni_daemon.journal import Journal
from cni_daemon.model import Place, Step
from cni_daemon.operations import RemoveRoute
from cni_daemon.records import Entry, Key, Phase
from cni_daemon.routing import ReplaceRoute
from cni_daemon.scene import Scene

_TABLE_LIMIT = 1 << 32


class RouteError(ValueError):
    """A wish makes no sense; the text names the field."""


@dataclass(frozen=True, slots=True)
class Wish:
    """A route as a caller names it: texts as they came, 0 and empty for nothing said."""

    owner: str
    destination: str
    gateway: str = ""
    device: str = ""
    table: int = 0
    metric: int = 0
    mtu: int = 0

    @property
    def key(self) -> Key:
        """What names it in the journal. Raises RouteError."""
        return callers.route(self.owner, str(self.network), self.table or routes.MAIN)

    @property
    def network(self) -> IpNetwork:
        """The destination. Raises RouteError."""
        try:
            return ipaddress.ip_network(self.destination)
        except ValueError as error:
            raise RouteError(f"destination: {error}") from None

    def checked(self) -> "Wish":
        """Return the wish, or raise RouteError naming the field that is wrong."""
        try:
            validation.container_id(self.owner)
        except CniError:
            raise RouteError("owner: letters, digits and _ . - are needed") from None
        if not self.device and not self.gateway:
            raise RouteError("gateway or device is needed")
        if self.device:
            try:
                validation.interface_name(self.device)
            except CniError as error:
                raise RouteError(f"device: {error.message}") from None
        if not 0 <= self.table < _TABLE_LIMIT:
            raise RouteError("table must be between 0 and 4294967295")
        gateway = self._gateway()
        if gateway is not None and gateway.version != self.network.version:
            raise RouteError("gateway and destination must be of one IP version")
        return self

    def _gateway(self) -> IpAddress | None:
        try:
            return ipaddress.ip_address(self.gateway) if self.gateway else None
        except ValueError as error:
            raise RouteError(f"gateway: {error}") from None

    def route(self) -> Route:
        """Return the kernel's route. Raises RouteError where there is no such link."""
        try:
            index = socket.if_nametoindex(self.device) if self.device else 0
        except OSError:
            raise RouteError(f"device: no link {self.device!r}") from None
        return Route(
            destination=self.network,
            gateway=self._gateway(),
            index=index,
            table=self.table or routes.MAIN,
            scope=routes.UNIVERSE if self.gateway else routes.LINK,
            priority=self.metric,
            mtu=self.mtu,
            protocol=routes.OURS,
        )


class Keeper:
    """Makes routes and keeps them."""

    def __init__(self, journal: Journal, executor: Executor, reached: Reached) -> None:
        self._journal = journal
        self._executor = executor
        self._reached = reached

    def add(self, wish: Wish) -> None:
        """Make a route, in the place of what the owner wanted there before.

        Raises RouteError, OperationError, OSError; nothing is left then.
        """
        route = wish.checked().route()
        former = self._journal.entry(wish.key)
        if former is not None:
            problems = self._executor.undo(former.undo[::-1], Scene())
            if problems:
                raise problems[0]
        undo = RemoveRoute(Place.HOST, route)
        self._journal.plan(Entry(wish.key, Phase.BEGUN, undo=(undo,)))
        self._reached("route planned")
        try:
            self._executor.perform([Step(ReplaceRoute(Place.HOST, route))], Scene())
        except OperationError:
            self._journal.gone(wish.key)
            raise
        self._reached("route made")
        self._journal.done(wish.key, asdict(wish))
        self._reached("done written")

    def missing(self, present: Iterable[Route]) -> list[Entry]:
        """Return the entries whose route the kernel does not have."""
        there = {(each.destination, each.table, each.gateway) for each in present}
        return [
            entry
            for entry in self._journal.entries()
            if callers.is_route(entry) and _place(of_entry(entry)) not in there
        ]

    def restore(self, entry: Entry) -> None:
        """Make the route of an entry again. Raises RouteError, OperationError, OSError."""
        wish = of_entry(entry)
        self._executor.perform([Step(ReplaceRoute(Place.HOST, wish.route()))], Scene())
        undo = RemoveRoute(Place.HOST, wish.route())
        if entry.undo != (undo,):  # the link is another one by now
            self._journal.plan(Entry(entry.key, Phase.BEGUN, undo=(undo,)))
            self._journal.done(entry.key, asdict(wish))


def _place(wish: Wish) -> tuple[IpNetwork, int, IpAddress | None]:
    gateway = ipaddress.ip_address(wish.gateway) if wish.gateway else None
    return wish.network, wish.table or routes.MAIN, gateway


def of_entry(entry: Entry) -> Wish:
    """Return the wish behind an entry."""
    known: Mapping[str, object] = entry.result
    return Wish(**{name: known[name] for name in Wish.__slots__ if name in known})  # type: ignore[arg-type] # as written


def held() -> list[Route]:
    """Return the kernel's routes that carry our mark, in every table. Raises NetlinkError."""
    found = (routes.decode(each) for each in scene.host_route().dump(routes.every()))
    return [each for each in found if each is not None and each.protocol == routes.OURS]
