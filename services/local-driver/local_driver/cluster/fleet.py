"""All nodes that the controller serves: one link each, found by name or by an ID of theirs."""

import asyncio
import contextlib
import functools
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TypeVar

from bitts.core import ledger, logs, process
from bitts.rpc import endpoints, tls
from bitts.rpc.codes import Code, RpcError

from local_driver import announced, names, places
from local_driver.cluster.book import Book
from local_driver.cluster.links import Expected, NodeLink
from local_driver.cluster.roster import Address, Roster
from local_driver.options import Options

T = TypeVar("T")

ROSTER_INTERVAL = 1.0
"""Seconds between two looks at the list of nodes."""

FIRST_WAIT = 3.0
"""Seconds at the start for the nodes to be tried, so that the first calls find them."""

AT_ONCE = 16
"""Nodes that are asked at the same time."""

_log = logs.get("nodes")


class Fleet:
    """The links. ``running`` keeps their tasks."""

    def __init__(
        self,
        options: Options,
        roster: Roster,
        book: Book,
        record: ledger.Ledger,
        running: process.Process,
    ) -> None:
        self._options = options
        self._roster = roster
        self._book = book
        self._ledger = record
        self._running = running
        link = options.roles.link
        self._credentials = tls.Credentials(tls.Files(link.certificate, link.key, link.authority))
        self._expected = Expected(
            options.driver_name, announced.rpcs(announced.controller(options.services))
        )
        self._addresses: dict[str, Address] = {}
        self._links: dict[str, NodeLink] = {}
        self._by_place: dict[str, NodeLink] = {}
        self._keepers: dict[str, asyncio.Task[None]] = {}

    async def begin(self) -> None:
        """Take in the list of nodes and try each once; raises OSError for our certificates."""
        await self._credentials.context(is_server=False)
        await self._follow()
        waiting = [link.attempted() for link in self._links.values()]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FIRST_WAIT):
                await asyncio.gather(*waiting)

    async def watch(self) -> None:
        """Follow the list of nodes, until cancelled."""
        while True:
            await asyncio.sleep(ROSTER_INTERVAL)
            await self._follow()

    async def _follow(self) -> None:
        wanted = await asyncio.to_thread(self._roster.current)
        for node in [one for one, address in self._addresses.items() if wanted.get(one) != address]:
            self._drop(node)
        for node, address in wanted.items():
            if node not in self._links:
                self._take(node, address)
        for node in self._book.nodes():
            if node not in wanted:
                self._book.leave(node)

    def _take(self, node: str, address: Address) -> None:
        name = self._options.roles.link.name_of(node)
        endpoint = endpoints.TlsEndpoint(*address, self._credentials, name)
        link = NodeLink(node, endpoint, self._expected, self._book, self._ledger)
        self._addresses[node] = address
        self._links[node] = self._by_place[places.of_node(node)] = link
        self._keepers[node] = self._running.start(f"node {node}", link.keep())

    def _drop(self, node: str) -> None:
        _log.info("Node is no longer served at its address", node=node)
        del self._addresses[node], self._links[node], self._by_place[places.of_node(node)]
        self._keepers.pop(node).cancel()

    @property
    def nodes(self) -> list[str]:
        """The names of all nodes, sorted."""
        return sorted(self._links)

    @property
    def links(self) -> list[NodeLink]:
        """The links to all nodes, by name."""
        return [self._links[node] for node in self.nodes]

    def segments(self, node: str) -> Mapping[str, str]:
        """Return the topology of a node, which follows from its name."""
        return {names.topology_key(self._options.driver_name): node}

    def require_listed(self, segments: Mapping[str, str]) -> None:
        """Raise RpcError UNAVAILABLE where a topology is that of a node that is not listed."""
        for node in segments.values():
            if segments == self.segments(node):
                self.link(node)

    def link(self, node: str) -> NodeLink:
        """Return a node's link; raises RpcError UNAVAILABLE for one that is not listed."""
        found = self._links.get(node)
        if found is None:
            raise RpcError(
                Code.UNAVAILABLE, f"node {node!r} is in neither --nodes nor --nodes-file: add it"
            )
        return found

    def owner(self, record_id: str, field: str) -> NodeLink:
        """Return the link to the node that an ID is of.

        What is no ID of ours is any node's to refuse: it does so as the driver of one node does.
        Raises RpcError UNAVAILABLE for an ID of a node that is not listed, since what it names
        may be there.
        """
        place = places.of_id(record_id)
        if not place:
            return self.any()
        found = self._by_place.get(place)
        if found is None:
            raise RpcError(
                Code.UNAVAILABLE,
                f"{field}: {record_id} is of a node that is in neither --nodes nor --nodes-file: "
                "add it",
            )
        return found

    def any(self) -> NodeLink:
        """Return the link to a node that is here; raises RpcError UNAVAILABLE without one."""
        found = next((link for link in self.links if link.is_here), None)
        if found is None:
            known = ", ".join(self.nodes) or "none is listed"
            raise RpcError(Code.UNAVAILABLE, f"no node is here ({known})")
        return found

    async def each(
        self, links: Iterable[NodeLink], ask: Callable[[NodeLink], Awaitable[T]]
    ) -> dict[str, T | RpcError]:
        """Ask several nodes at once; return answers, or what went wrong, by node."""
        room = asyncio.Semaphore(AT_ONCE)

        async def one(link: NodeLink) -> T | RpcError:
            async with room:
                try:
                    return await ask(link)
                except RpcError as error:
                    return error

        asked = list(links)
        answers = await asyncio.gather(*map(functools.partial(one), asked))
        return {link.node: answer for link, answer in zip(asked, answers, strict=True)}
