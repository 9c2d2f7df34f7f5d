"""The one place where operations take effect; runs in worker threads, blocking.

Neighbouring operations on the same socket go out as one batch. A batch of rtnetlink is no
transaction, so a failure takes back *every* step of the plan, in reverse, whether it had run
or not: undo operations bear that. ``undo`` itself never stops at a problem: it tries the rest
and reports.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import TypeAlias, cast

from bitts.core import logs
from bitts.net import addresses, conntrack, iptables, links, lookups, nftables, sysctls
from bitts.net.departures import Departure, Departures
from bitts.net.errors import NamespaceError, NetlinkError
from bitts.net.nftables import Element, Goto
from bitts.net.sockets import Socket

from cni_daemon import (
    delegates,
    devices,
    encoding,
    handing,
    leaving_links,
    routing,
    scene,
    traffic,
    vlangateways,
    zones,
)
from cni_daemon import operations as op
from cni_daemon.dhcp import giving
from cni_daemon.dhcp.operations import ReleaseLease
from cni_daemon.encoding import ElementOperation, RouteOperation
from cni_daemon.faults import Reached
from cni_daemon.ipam import stores
from cni_daemon.model import Place, Step
from cni_daemon.scene import Scene

Problem: TypeAlias = NetlinkError | NamespaceError | OSError | delegates.DelegateError
PROBLEMS = (NetlinkError, NamespaceError, OSError, delegates.DelegateError)

DAD_TIMEOUT = 5.0
"""Seconds that duplicate address detection may take, as the reference plugins wait."""

_DAD_INTERVAL = 0.05
_AFTER_LINKS = (op.ReleaseAddresses, op.RunDelegate, devices.RemoveIdleGateway)
"""What must not happen while the links are still there: somebody else may get the address.

Nor can a VLAN be idle as long as they are in it."""

_LEAVING = (op.DeleteLink, devices.HandBack, traffic.RemoveSource)
"""What takes away a link, and with it its addresses, or what is allowed to an address."""


_Leaving: TypeAlias = tuple[list[op.DeleteLink], Departure]


class OperationError(Exception):
    """A step failed; everything done before has been taken back, or is in ``leftovers``."""

    def __init__(self, operation: op.Operation, cause: Problem) -> None:
        super().__init__(str(cause))
        self.operation = operation
        self.cause = cause


def _forget_it(_laid: op.Once) -> None:
    return None


class Executor:
    """Carries out plans. ``reached`` is told after each operation (faults listen there).

    ``note`` is told of each foundation that was laid.
    """

    def __init__(
        self, book: stores.Stores, reached: Reached, note: Callable[[op.Once], None] = _forget_it
    ) -> None:
        self._stores = book
        self._reached = reached
        self._note = note
        self._departures = Departures()
        self.was_flushed = False
        """Whether rules had to be laid anew since somebody last set this back."""
        self.unsettled = 0
        """How often foundations had to be forgotten."""
        self._settled: dict[str, tuple[op.Simple, ...]] = {}

    @property
    def settled(self) -> frozenset[str]:
        """The keys of foundations that were laid."""
        return frozenset(self._settled)

    def unsettle(self, keys: Iterable[str]) -> None:
        """Forget foundations that somebody else has removed."""
        self.unsettled += 1
        for key in list(keys):
            self._settled.pop(key, None)

    def perform(self, steps: Sequence[Step], where: Scene) -> None:
        """Carry out all steps; raises OperationError, having taken back nothing."""
        todo = [step.do for step in steps if step.do is not None]
        for batch in self._batches(todo):
            self._perform(batch, where)

    def lay(self, foundation: Sequence[op.Operation], where: Scene) -> None:
        """Carry out foundations. Raises OperationError."""
        for operation in foundation:
            if isinstance(operation, op.Once):
                if operation.key not in self._settled:
                    self.lay(operation.operations, where)
                    self._settled[operation.key] = operation.operations
                    self._note(operation)
            else:
                self._perform([operation], where)

    def undo(self, operations: Sequence[op.Operation], where: Scene) -> list[OperationError]:
        """Carry out undo operations in the given order; missing things are no problem.

        Links of the host go side by side, and are waited for before an address is given back:
        as long as one stands that should have gone, its addresses are not given back at all.
        """
        problems: list[OperationError] = []
        leaving: list[_Leaving] = []
        todo = [each for each in operations if where.has_pod or _place(each) != Place.POD]
        for batch in self._undo_batches(leaving_links.together(todo)):
            first = batch[0]
            found = [each for each in batch if leaving_links.is_host_link(each)]
            if found:
                going = self._departures.begin({each.index: each.name for each in found})
                leaving.append((found, going))
            if isinstance(first, _AFTER_LINKS) or self._reached.wants_every_step:
                problems += self._departed(leaving)
            if isinstance(first, _AFTER_LINKS) and is_link_left(problems):
                continue
            if not found:
                problems += self._taken_back(batch, where)
        return [*problems, *self._departed(leaving)]

    def _undo_batches(self, todo: Sequence[op.Operation]) -> Iterable[list[op.Operation]]:
        """Only elements, and links, go together: of other refusals, each is told on its own."""
        for batch in self._batches(todo):
            if isinstance(batch[0], encoding.ELEMENT_OPERATIONS):
                yield batch
                continue
            for is_leaving, group in groupby(batch, key=leaving_links.is_host_link):
                listed = [*group]
                yield from [listed] if is_leaving else [[each] for each in listed]

    def _departed(self, leaving: list[_Leaving]) -> list[OperationError]:
        """Wait for links that are leaving; there are none then."""
        problems: list[OperationError] = []
        for found, departure in leaving:
            failed = departure.wait()
            for each in found:
                error = failed.get(each.index)
                if error is not None and not error.is_missing:
                    problems.append(OperationError(each, error))
            self._tell(found)
        leaving.clear()
        return problems

    def _taken_back(self, batch: list[op.Operation], where: Scene) -> list[OperationError]:
        try:
            self._perform(batch, where)
        except OperationError as error:
            if not _is_done(error.cause):
                return [error]
        return []

    def close(self) -> None:
        """Let the kernel end what it clears up."""
        self._departures.close()

    def _batches(self, todo: Sequence[op.Operation]) -> Iterable[list[op.Operation]]:
        if self._reached.wants_every_step:
            return ([operation] for operation in todo)
        return encoding.batches(todo)

    def _perform(self, batch: list[op.Operation], where: Scene) -> None:
        first = batch[0]
        try:
            if encoding.is_route(batch):
                _send(batch, where)
            elif encoding.is_element(batch):
                self._change_sets([_guarded(each) for each in batch])
            elif isinstance(first, op.SetSysctl):
                _set(cast("Sequence[op.SetSysctl]", batch), where)
            else:
                for operation in batch:
                    first = operation
                    self._act(operation, where)
        except PROBLEMS as error:
            if isinstance(error, OSError) and _is_netlink(first):
                scene.discard_sockets()
            raise OperationError(first, error) from error
        self._tell(batch)

    def _tell(self, done: Iterable[op.Operation]) -> None:
        if self._reached.wants_every_step:
            for operation in done:
                self._reached(encoding.describe(operation))

    def _act(self, operation: op.Operation, where: Scene) -> None:
        match operation:
            case op.AwaitAddresses(place, index):
                _await_addresses(where.route(place), index)
            case op.ApplyRules(script):
                nftables.apply(script)
            case op.ReleaseAddresses(directory, container_id, ifname):
                self._stores.at(directory).release(container_id, ifname)
            case op.RunDelegate(kind, stdin, environment):
                delegates.run(kind, stdin.encode(), dict(environment))
            case traffic.LayIptables(version, chains, rules):
                iptables.ensure(version, chains, rules)
            case traffic.ForgetFlows(services):
                _forget(services)
            case ReleaseLease():
                giving.back(operation, where)
            case traffic.AllowLoopbackSources(address):
                _allow_loopback_sources(address, where)
            case (
                devices.MakeTap()
                | devices.HandOver()
                | devices.HandBack()
                | devices.RemoveIdleVrf()
            ):
                handing.act(operation, where)
            case devices.ShareGateway() | devices.RemoveIdleGateway():
                vlangateways.act(operation)
            case traffic.AddSource() | traffic.RemoveSource():
                zones.act(operation)
            case _:
                raise TypeError(f"nobody carries out {operation!r}")

    def _change_sets(self, batch: Sequence[ElementOperation]) -> None:
        batch = [each for each in batch if each.elements]
        if not batch:
            return
        failed = scene.host_netfilter().transact([encoding.element_message(o) for o in batch])
        if not failed:
            return
        error = NetlinkError(failed[0].error, encoding.describe(batch[0]), failed[0].text)
        if error.is_taken:
            raise _taken(batch, error)
        if not error.is_missing:
            raise error
        if all(isinstance(each, op.RemoveElements) for each in batch):
            _remove_singly(cast("Sequence[op.RemoveElements]", batch))
            return
        self._restore_rules()  # somebody flushed the rule set: lay it anew, once
        again = scene.host_netfilter().transact([encoding.element_message(o) for o in batch])
        if again:
            raise NetlinkError(again[0].error, encoding.describe(batch[0]), again[0].text)

    def _restore_rules(self) -> None:
        self.was_flushed = True
        for operations in list(self._settled.values()):
            for operation in operations:
                if isinstance(operation, op.ApplyRules):
                    nftables.apply(operation.script)
                elif isinstance(operation, op.AddElements):
                    scene.host_netfilter().transact([encoding.element_message(operation)])
                elif isinstance(operation, traffic.LayIptables):  # it may be gone, too
                    iptables.ensure(operation.version, operation.chains, operation.rules)


def _guarded(operation: ElementOperation) -> ElementOperation:
    """Reduce a removal to entries that lead where they should: others are somebody else's."""
    if isinstance(operation, op.AddElements):
        return operation
    kept = [
        Element(each.key)
        for each in operation.elements
        # Nobody else claims a container's own address: what leads to a chain is not contested.
        if each.data is None or isinstance(each.data, Goto) or _leads(operation, each)
    ]
    return op.RemoveElements(operation.container, tuple(kept))


def _leads(operation: op.RemoveElements, element: Element) -> bool:
    try:
        reply = scene.host_netfilter().query(nftables.get(operation.container, element.key))
    except NetlinkError as error:
        if error.is_missing:
            return False
        raise
    return element in nftables.decode(reply)


def _taken(batch: Sequence[ElementOperation], error: NetlinkError) -> NetlinkError:
    claims = [o.claim for o in batch if isinstance(o, op.AddElements) and o.claim]
    if not claims:
        return error
    what = f"{' or '.join(claims)} is taken by another container: free it or choose another"
    return NetlinkError(error.code, what)


def _forget(services: Iterable[conntrack.Service]) -> None:
    for service in services:
        try:
            conntrack.forget(scene.host_netfilter(), service)
        except NetlinkError as error:  # no harm but to flows that go on
            logs.get("executor").warning("Cannot forget flows", port=service.port, err=error)


def _allow_loopback_sources(address: traffic.IpAddress, where: Scene) -> None:
    index = lookups.toward(where.route(Place.HOST), address)
    if not index:
        return
    key = f"ipv4/conf/{links.name_of(index)}/route_localnet"
    if sysctls.read(key) != "1":
        sysctls.write(key, "1")


def _send(batch: Sequence[RouteOperation], where: Scene) -> None:
    place = encoding.place(batch[0])
    descriptor = -1 if where.descriptor is None else where.descriptor
    messages = [encoding.route_message(operation, descriptor) for operation in batch]
    failure: NetlinkError | None = None
    for operation, answer in zip(batch, where.route(place).attempt(messages), strict=True):
        if not answer.error or failure is not None:
            continue
        if isinstance(operation, routing.ReplaceRoute) and operation.is_optional:
            continue
        error = NetlinkError(answer.error, encoding.describe(operation), answer.text)
        if not (error.is_present and isinstance(operation, op.AddRoute) and operation.is_shared):
            failure = error
    if failure is not None:
        raise failure


def _remove_singly(batch: Sequence[op.RemoveElements]) -> None:
    """Remove elements one by one, since one that is missing fails a whole transaction."""
    channel = scene.host_netfilter()
    for operation in batch:
        for element in operation.elements:
            failed = channel.transact([nftables.remove(operation.container, [element])])
            if failed:
                error = NetlinkError(failed[0].error, encoding.describe(operation))
                if not error.is_missing:
                    raise error


def _set(batch: Sequence[op.SetSysctl], where: Scene) -> None:
    with where.inside(batch[0].place):
        for operation in batch:
            try:
                sysctls.write(operation.key, operation.value)
            except OSError:
                if not operation.is_optional:
                    raise


def _await_addresses(channel: Socket, index: int) -> None:
    deadline = time.monotonic() + DAD_TIMEOUT
    while True:
        found = [addresses.decode(each) for each in channel.dump(addresses.of_link(index))]
        flags = [each.flags for each in found if each is not None]
        if any(each & addresses.DAD_FAILED for each in flags):
            raise NetlinkError(98, "duplicate address detection failed")
        if not any(each & addresses.TENTATIVE for each in flags) or time.monotonic() > deadline:
            return
        time.sleep(_DAD_INTERVAL)


def _is_done(problem: Problem) -> bool:
    """Say whether an undo failed because there was nothing to undo."""
    if isinstance(problem, NetlinkError):
        return problem.is_missing
    return isinstance(problem, FileNotFoundError)


def is_link_left(problems: Iterable[OperationError]) -> bool:
    """Say whether a link that should have gone still stands."""
    return any(isinstance(each.operation, _LEAVING) for each in problems)


def _place(operation: op.Operation) -> str:
    return str(getattr(operation, "place", Place.HOST))


def _is_netlink(operation: op.Operation) -> bool:
    return isinstance(operation, (*encoding.ROUTE_OPERATIONS, *encoding.ELEMENT_OPERATIONS))
