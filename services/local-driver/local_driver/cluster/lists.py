"""Lists over all nodes: what those that are here say now, and what the others said last.

The first page of a list has every node tell anew; the following ones go on in what is known
then. The order is that of IDs, and a page's token is the last ID on it, so that a list goes on
after a restart and whatever comes and goes between two pages.
"""

from collections.abc import Sequence

from bitts.csi import v1
from bitts.rpc.codes import Code, RpcError

from local_driver import listing, places, requests
from local_driver.cluster import known
from local_driver.cluster.book import Book
from local_driver.cluster.fleet import Fleet
from local_driver.cluster.known import KnownVolume
from local_driver.cluster.links import NodeLink

UNREACHABLE = "NodeUnreachable"
"""Reason (CSI 1.13) of volumes whose node is away; the condition's text (1.12) begins with it."""


class Lists:
    """Answers the RPCs that are about many volumes or snapshots."""

    def __init__(self, fleet: Fleet, book: Book, *, has_health_rpcs: bool) -> None:
        self._fleet = fleet
        self._book = book
        self._has_health_rpcs = has_health_rpcs

    async def volumes(self, request: v1.ListVolumesRequest) -> v1.ListVolumesResponse:
        """Return a page of volumes; those of nodes that are away are there, as abnormal."""
        after = _position(request.starting_token)
        problems = await self._problems(self._fleet.links, is_first=not after)
        every = [
            (one.volume_id, (node, one))
            for node in self._fleet.nodes
            for one in self._book.volumes(node)
        ]
        page, token = listing.page_by_id(every, after, _limit(request.max_entries))
        entries = [self._entry(node, one, problems.get(node, "")) for node, one in page]
        return v1.ListVolumesResponse(entries=entries, next_token=token)

    def _entry(self, node: str, volume: KnownVolume, problem: str) -> v1.ListVolumesResponseEntry:
        return v1.ListVolumesResponseEntry(
            volume=known.volume_message(volume, self._fleet.segments(node)),
            status=v1.ListVolumesResponseVolumeStatus(
                published_node_ids=list(volume.attached),
                volume_condition=self._condition(volume, problem),
            ),
        )

    def _condition(self, volume: KnownVolume, problem: str) -> v1.VolumeCondition | None:
        if self._has_health_rpcs:
            return None
        text = problem or volume.problem
        return v1.VolumeCondition(abnormal=bool(text), message=text or "in order")

    def unreachable(
        self, link: NodeLink, volume: KnownVolume, error: RpcError
    ) -> v1.ControllerGetVolumeResponse:
        """Return what is known of a volume whose node is away."""
        entry = self._entry(link.node, volume, _unreachable(error))
        assert entry.status is not None
        return v1.ControllerGetVolumeResponse(
            volume=entry.volume,
            status=v1.ControllerGetVolumeResponseVolumeStatus(
                published_node_ids=entry.status.published_node_ids,
                volume_condition=entry.status.volume_condition,
            ),
        )

    async def snapshots(self, request: v1.ListSnapshotsRequest) -> v1.ListSnapshotsResponse:
        """Return a page of snapshots: all, of a volume, or one."""
        after = _position(request.starting_token)
        limit = _limit(request.max_entries)
        links = self._concerned(request)
        await self._problems(links, is_first=not after)
        every = [
            (one.snapshot_id, one)
            for link in links
            for one in self._book.snapshots(link.node)
            if request.snapshot_id in ("", one.snapshot_id)
            and request.source_volume_id in ("", one.source_id)
        ]
        page, token = listing.page_by_id(every, after, limit)
        entries = [
            v1.ListSnapshotsResponseEntry(snapshot=known.snapshot_message(one)) for one in page
        ]
        return v1.ListSnapshotsResponse(entries=entries, next_token=token)

    def _concerned(self, request: v1.ListSnapshotsRequest) -> list[NodeLink]:
        """Return the nodes whose snapshots can be meant: an ID is of one node."""
        wanted = {one for one in (request.snapshot_id, request.source_volume_id) if one}
        links = self._fleet.links
        return [
            link for link in links if {places.of_node(link.node)} >= set(map(places.of_id, wanted))
        ]

    async def health(
        self, request: v1.ControllerListVolumeHealthRequest
    ) -> v1.ControllerListVolumeHealthResponse:
        """Return a page of the volumes that are not well, in the way of CSI 1.13."""
        after, limit = _position(request.starting_token), _limit(request.max_entries)
        answers = await self._fleet.each(self._fleet.links, _unwell)
        every: list[tuple[str, v1.VolumeHealth]] = []
        for node, answer in answers.items():
            if not isinstance(answer, RpcError):
                every += [(one.volume_id, one) for one in answer]
                continue
            every += [
                (one.volume_id, unreachable_health(one.volume_id, answer))
                for one in self._book.volumes(node)
            ]
        page, token = listing.page_by_id(every, after, limit)
        return v1.ControllerListVolumeHealthResponse(entries=page, next_token=token)

    async def _problems(self, links: Sequence[NodeLink], *, is_first: bool) -> dict[str, str]:
        """Return why nodes could not tell anew, by node; nothing for those that could."""
        if is_first:
            answers = await self._fleet.each(links, NodeLink.refresh)
            failed = {node: one for node, one in answers.items() if isinstance(one, RpcError)}
            return {node: _unreachable(error) for node, error in failed.items()}
        away = [link for link in links if not link.is_here]
        return {link.node: f"{UNREACHABLE}: {link.reason}" for link in away}


async def _unwell(link: NodeLink) -> list[v1.VolumeHealth]:
    request = v1.ControllerListVolumeHealthRequest()
    found: list[v1.VolumeHealth] = []
    while True:
        reply = await link.call(
            lambda stubs: stubs.controller.controller_list_volume_health, request
        )
        found += reply.entries
        if not reply.next_token:
            return found
        request.starting_token = reply.next_token


def unreachable_health(volume_id: str, error: RpcError) -> v1.VolumeHealth:
    """Return the health of a volume whose node is away, in the way of CSI 1.13."""
    entry = v1.VolumeHealthVolumeHealthEntry(
        status=v1.VolumeHealthErrorType.INACCESSIBLE, reason=UNREACHABLE, message=error.message
    )
    return v1.VolumeHealth(volume_id=volume_id, health_statuses=[entry])


def _unreachable(error: RpcError) -> str:
    return f"{UNREACHABLE}: {error.message}"


def _position(token: str) -> str:
    """Read a token: the last ID of the page before; raises RpcError ABORTED for another text."""
    if token and not places.of_id(token):
        raise RpcError(
            Code.ABORTED, f"starting_token: {token!r} is none of ours: start again without"
        )
    return token


def _limit(max_entries: int) -> int:
    return requests.page(max_entries, "")[1]
