"""Which nodes may hold a new volume, in which order they are tried, and when to wait. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bitts.rpc.codes import Code, RpcError

from local_driver import placement
from local_driver.volumes import Requirement

NOT_MADE = frozenset(
    {
        Code.INVALID_ARGUMENT,
        Code.NOT_FOUND,
        Code.OUT_OF_RANGE,
        Code.FAILED_PRECONDITION,
        Code.RESOURCE_EXHAUSTED,
        Code.UNIMPLEMENTED,
    }
)
"""Codes with which a node says that it has not made a volume, and is not about to."""

UNDER_WAY = frozenset({Code.ABORTED, Code.CANCELLED, Code.DEADLINE_EXCEEDED, Code.UNAVAILABLE})
"""Codes after which a node may still be at work on a volume, or about to begin."""

ELSEWHERE = frozenset({Code.RESOURCE_EXHAUSTED, Code.INVALID_ARGUMENT})
"""Codes after which another node may do: no room there, or no such backend."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A node. ``has_been_heard``: what it holds is known, now or as of when it was last here."""

    node: str
    segments: Mapping[str, str]
    is_here: bool
    has_been_heard: bool
    reason: str = ""


def tiers(candidates: Sequence[Candidate], requirement: Requirement) -> list[list[str]]:
    """Return the nodes to try for a volume that none is known to hold, the better ones first.

    Nodes of one tier are equally good; those that are away are left out. Raises RpcError:
    RESOURCE_EXHAUSTED when no node lies in the requisite topologies; UNAVAILABLE when all that
    do are away, or when one of them is away that was never heard: it may hold the volume.
    """
    fitting = [one for one in candidates if placement.allowed(requirement, one.segments)]
    if not fitting:
        wanted = "; ".join(
            ",".join(f"{key}={value}" for key, value in sorted(term.items()))
            for term in requirement.requisite
        )
        code = Code.RESOURCE_EXHAUSTED if candidates else Code.UNAVAILABLE
        served = ", ".join(one.node for one in candidates) or "no node"
        raise RpcError(
            code,
            f"accessibility_requirements: wanted is {wanted or 'any node'}; served is {served}",
        )
    for one in fitting:
        if not one.is_here and not one.has_been_heard:
            raise RpcError(
                Code.UNAVAILABLE,
                f"node {one.node} is away and may hold the volume, as it was never heard: start "
                f"its driver or take it out of the list ({one.reason})",
            )
    here = [one for one in fitting if one.is_here]
    if not here:
        away = "; ".join(f"{one.node}: {one.reason}" for one in fitting)
        raise RpcError(Code.UNAVAILABLE, f"every node for the volume is away: {away}")
    by_rank: dict[int, list[str]] = {}
    for one in here:
        by_rank.setdefault(placement.rank(one.segments, requirement.preferred), []).append(one.node)
    return [by_rank[rank] for rank in sorted(by_rank)]


def verdict(refusals: Sequence[RpcError]) -> RpcError:
    """Return what a client is told whom every node has refused.

    A lack of room goes before a wrong wish: upon it, a scheduler looks for another node.
    """
    full = [one for one in refusals if one.code is Code.RESOURCE_EXHAUSTED]
    return full[0] if full else refusals[0]
