"""CreateVolume for several nodes: the same name is the same volume on the same node, always.

A client repeats a CreateVolume until it has an answer, perhaps with other topologies, and the
answer may have been lost on its way from the node, or with this process. So a node is sent a
CreateVolume only after that is on disk, and a repeated one goes to that node first, until it
says that nothing was made. Where nothing is on disk (the state was lost, another controller
was at work) every node that may be chosen is asked whether it has the volume.
"""

import contextlib
import functools
from collections.abc import Sequence

from bitts.csi import v1
from bitts.rpc.codes import Code, RpcError

from local_driver import placement, places, requests
from local_driver.cluster import choosing, known
from local_driver.cluster.book import Book
from local_driver.cluster.choosing import Candidate
from local_driver.cluster.fleet import Fleet
from local_driver.cluster.links import NodeLink
from local_driver.operations import Operations
from local_driver.volumes import Requirement


class Creator:
    """Finds the node for a volume and has it made there."""

    def __init__(self, fleet: Fleet, book: Book, operations: Operations) -> None:
        self._fleet = fleet
        self._book = book
        self._operations = operations

    async def create(self, request: v1.CreateVolumeRequest) -> v1.CreateVolumeResponse:
        """Return the volume asked for; raises RpcError, OSError."""
        name = requests.name(request.name)
        work = functools.partial(self._create, places.digest(name), request)
        return await self._operations.run(name, "CreateVolume", work)

    async def _create(
        self, digest: str, request: v1.CreateVolumeRequest
    ) -> v1.CreateVolumeResponse:
        for node in self._book.holders(digest, self._fleet.nodes):
            try:
                return await self._at(node, digest, request)
            except RpcError as error:
                if error.code not in choosing.NOT_MADE or await self._fleet.link(node).has(digest):
                    raise
        source = requests.source(request.volume_content_source)
        if source is not None and places.of_id(source.content_id):
            field = "volume_content_source"
            return await self._at(self._fleet.owner(source.content_id, field).node, digest, request)
        requirement = requests.requirement(request.accessibility_requirements)
        tiers = await self._tiers(requirement)
        every = [node for tier in tiers for node in tier]
        found = await self._find(digest, every) if len(every) > 1 else ""
        if found:
            return await self._at(found, digest, request)
        return await self._at_first(tiers, digest, request)

    async def _tiers(self, requirement: Requirement) -> list[list[str]]:
        """Choose among the nodes; those that are away get a chance if it depends on them."""
        try:
            return choosing.tiers(self._candidates(), requirement)
        except RpcError as error:
            if error.code is not Code.UNAVAILABLE:
                raise
        away = [
            link
            for link in self._fleet.links
            if not link.is_here and placement.allowed(requirement, self._fleet.segments(link.node))
        ]
        await self._fleet.each(away, NodeLink.reached)
        return choosing.tiers(self._candidates(), requirement)

    def _candidates(self) -> list[Candidate]:
        return [
            Candidate(
                link.node,
                self._fleet.segments(link.node),
                link.is_here,
                self._book.has_heard(link.node),
                link.reason,
            )
            for link in self._fleet.links
        ]

    async def _find(self, digest: str, nodes: Sequence[str]) -> str:
        """Return the node that has the volume; raises RpcError unless all can say."""
        links = [self._fleet.link(node) for node in nodes]
        answers = await self._fleet.each(links, lambda link: link.has(digest))
        found = ""
        for node, answer in answers.items():
            if isinstance(answer, RpcError):
                raise answer
            found = node if answer else found
        return found

    async def _at_first(
        self, tiers: Sequence[Sequence[str]], digest: str, request: v1.CreateVolumeRequest
    ) -> v1.CreateVolumeResponse:
        """Have the first node make it that can; raises what the best of them said."""
        refusals: list[RpcError] = []
        for tier in tiers:
            for node in await self._by_room(tier, request, refusals):
                try:
                    return await self._at(node, digest, request)
                except RpcError as error:
                    if error.code not in choosing.ELSEWHERE:
                        raise
                    refusals.append(error)
        raise choosing.verdict(refusals)

    async def _by_room(
        self,
        nodes: Sequence[str],
        request: v1.CreateVolumeRequest,
        refusals: list[RpcError],
    ) -> list[str]:
        """Return equally good nodes by room, the emptiest first, without those that cannot."""
        if len(nodes) == 1:
            return list(nodes)
        wish = v1.GetCapacityRequest(
            volume_capabilities=request.volume_capabilities, parameters=request.parameters
        )

        async def room(link: NodeLink) -> int:
            reply = await link.call(lambda stubs: stubs.controller.get_capacity, wish)
            return reply.available_capacity

        answers = await self._fleet.each([self._fleet.link(node) for node in nodes], room)
        refusals += [one for one in answers.values() if isinstance(one, RpcError)]
        rooms = {node: one for node, one in answers.items() if not isinstance(one, RpcError)}
        return sorted(rooms, key=lambda node: -rooms[node])

    async def _at(
        self, node: str, digest: str, request: v1.CreateVolumeRequest
    ) -> v1.CreateVolumeResponse:
        """Have one node make it; raises RpcError, and then the intent tells whether it may."""
        link = self._fleet.link(node)
        await link.reached()  # an intent for a node that is away would bind the volume to it
        async with self._book.intents.sending(digest, node):
            try:
                reply = await link.call(lambda stubs: stubs.controller.create_volume, request)
            except RpcError as error:
                if error.code in choosing.NOT_MADE or await self._denies(link, digest, error):
                    self._book.intents.settle(digest)
                raise
            self._book.learn(node, known.volume_of(reply.volume))
            self._book.intents.settle(digest)
            return reply

    async def _denies(self, link: NodeLink, digest: str, error: RpcError) -> bool:
        """Whether a node whose answer says too little says that it has not made the volume."""
        if error.code in choosing.UNDER_WAY:
            return False
        with contextlib.suppress(RpcError):
            return not await link.has(digest)
        return False
