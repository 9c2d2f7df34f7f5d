"""Leases for attachments that are being made, in worker threads: first the link, then the lease.

A plan needs the address, and the address comes through the link. So the plan is made twice,
with the same draws: once for an address that nobody has, of which only the steps before it are
carried out, and once more for the real one, of which the rest is. That both begin with the same
steps is checked.
"""

import asyncio
import concurrent.futures
import contextlib
import ipaddress
import threading
from collections.abc import Coroutine, Iterator, Sequence
from dataclasses import dataclass, replace

from bitts.cni.errors import CniError, Code
from bitts.cni.results import Ip, Result
from bitts.net import links
from bitts.net.errors import NetlinkError
from bitts.net.links import Change

from cni_daemon.chain import Stage
from cni_daemon.dhcp import client
from cni_daemon.dhcp.client import Client, DhcpError
from cni_daemon.dhcp.leases import Lease
from cni_daemon.dhcp.operations import ReleaseLease
from cni_daemon.ipam.dhcp import Options
from cni_daemon.model import Draws, Observed, Place, Plan, Step
from cni_daemon.operations import (
    AddAddress,
    ChangeLink,
    MakeBridge,
    Once,
    Operation,
    SetSysctl,
)
from cni_daemon.scene import Scene

NOBODY = Result(ips=(Ip(ipaddress.ip_interface("0.0.0.0/32")),))
"""The addressing of a rehearsal."""

AT_ONCE = 32
"""Requests that wait for a server at a time: one that is silent must not keep the others, which
have as many threads again, from being served."""

PLACE_TIMEOUT = 1.0
"""Seconds to wait for a place among them."""

_MARGIN = 5.0
"""Seconds for the event loop to notice that time is up."""

_ABOUT_LINKS = (MakeBridge, ChangeLink, SetSysctl)


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """A plan for an address that nobody has: its first steps, and what it was made from."""

    steps: tuple[Step, ...]
    observed: Observed
    draws: "Noted"

    def continued(self, stage: Stage) -> Plan:
        """Return the plan for the real address without the steps that are done.

        Raises CniError for a plugin whose first steps depend on the address.
        """
        call = replace(stage.call, draws=self.draws.again())
        plan = stage.plugin.plan(stage.options, call, self.observed)
        count = len(self.steps)
        if plan.steps[:count] != self.steps:
            text = f"dhcp: {stage.plugin.type} cannot make its link before it has an address"
            raise CniError(Code.UNSUPPORTED_FIELD, text)
        return replace(plan, steps=plan.steps[count:])


def rehearse(stage: Stage, observed: Observed) -> Rehearsal:
    """Plan for the address of nobody (``stage`` has it)."""
    draws = Noted(stage.call.draws)
    plan = stage.plugin.plan(stage.options, replace(stage.call, draws=draws), observed)
    return Rehearsal(before_addresses(plan.steps), observed, draws)


def before_addresses(steps: Sequence[Step]) -> tuple[Step, ...]:
    """Return the steps that make the link: all before the first that gives it an address."""
    first = next((i for i, each in enumerate(steps) if isinstance(each.do, AddAddress)), None)
    return tuple(steps if first is None else steps[:first])


def about_links(foundation: Sequence[Operation]) -> tuple[Operation, ...]:
    """Return of a foundation what has nothing to do with addresses."""
    return tuple(
        each
        for each in foundation
        if isinstance(each, _ABOUT_LINKS)
        or (isinstance(each, Once) and all(isinstance(o, ChangeLink) for o in each.operations))
    )


class Noted(Draws):
    """Draws that are remembered, so that they can be had again."""

    def __init__(self, inner: Draws) -> None:
        self._inner = inner
        self._drawn: list[object] = []

    def again(self) -> Draws:
        """Return draws that begin with the same ones."""
        return _Again(self._inner, list(self._drawn))

    def link_name(self) -> str:
        """Return a name, and remember it."""
        self._drawn.append(drawn := self._inner.link_name())
        return drawn

    def index(self) -> int:
        """Return an index, and remember it."""
        self._drawn.append(drawn := self._inner.index())
        return drawn

    def mac(self) -> str:
        """Return a MAC address, and remember it."""
        self._drawn.append(drawn := self._inner.mac())
        return drawn


class _Again(Draws):
    """The same draws once more, and fresh ones after them."""

    def __init__(self, inner: Draws, drawn: list[object]) -> None:
        self._inner = inner
        self._drawn = drawn[::-1]

    def link_name(self) -> str:
        return str(self._drawn.pop()) if self._drawn else self._inner.link_name()

    def index(self) -> int:
        drawn = self._drawn.pop() if self._drawn else self._inner.index()
        assert isinstance(drawn, int)
        return drawn

    def mac(self) -> str:
        return str(self._drawn.pop()) if self._drawn else self._inner.mac()


class Leasing:
    """Gets leases: the exchange runs on the event loop, the calling thread waits for it."""

    def __init__(self, loop: asyncio.AbstractEventLoop, timeout: float) -> None:
        self._loop = loop
        self._timeout = timeout
        self._places = threading.BoundedSemaphore(AT_ONCE)

    def acquire(self, where: Scene, ifname: str, options: Options) -> Lease:
        """Return a lease for a link, which is switched on. Blocks. Raises CniError, OSError."""
        try:
            channel = where.route(Place.POD)
            link = links.decode(channel.query(links.get(name=ifname), f"looking at {ifname}"))
            if not link.is_up:
                channel.perform([links.change(link.index, Change(flags=links.UP))])
            with where.inside(Place.POD):
                opened = client.raw_socket(ifname)
        except NetlinkError as error:
            raise CniError(Code.INTERNAL, f"dhcp: {error}") from None
        with contextlib.closing(opened), self._place():
            asking = Client(link.mac, options.client_id, options.provided, options.parameters)
            return self._run(client.acquire(asking, opened, self._timeout))

    @contextlib.contextmanager
    def _place(self) -> Iterator[None]:
        """Be one of those that wait for a server, soon or not at all."""
        if not self._places.acquire(timeout=PLACE_TIMEOUT):
            text = f"dhcp: {AT_ONCE} containers wait for a server already"
            raise CniError(Code.TRY_AGAIN_LATER, text)
        try:
            yield
        finally:
            self._places.release()

    def _run(self, exchange: Coroutine[None, None, Lease]) -> Lease:
        future = asyncio.run_coroutine_threadsafe(exchange, self._loop)
        try:
            return future.result(self._timeout + _MARGIN)
        except DhcpError as error:
            raise CniError(Code.TRY_AGAIN_LATER, f"dhcp: {error}") from None
        except (concurrent.futures.TimeoutError, concurrent.futures.CancelledError):
            future.cancel()
            raise CniError(Code.TRY_AGAIN_LATER, "dhcp: the daemon is ending") from None


def release_of(lease: Lease, ifname: str) -> ReleaseLease:
    """Return what takes a lease back."""
    return ReleaseLease(
        Place.POD, ifname, lease.address, lease.server, lease.hop, lease.mac, lease.client_id
    )
