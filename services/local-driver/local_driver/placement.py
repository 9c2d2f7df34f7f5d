"""On which node a volume goes, and whether there is room. Pure.

A node's own driver knows one node, itself; the controller of several ranks them in the same way.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bitts.rpc.codes import Code, RpcError

from local_driver.volumes import Requirement

Segments = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Pool:
    """The bytes of one node's storage.

    ``limit`` is what the operator allows in all, None for as much as the file system has.
    ``promised`` is the sum of the volumes' capacities, whether written to or not.
    """

    limit: int | None
    filesystem_size: int
    filesystem_free: int
    promised: int


@dataclass(frozen=True, slots=True)
class Candidate:
    """A node that could hold a volume; ``available`` is in bytes."""

    node: str
    segments: Segments
    available: int


def available(pool: Pool) -> int:
    """Return how many bytes a new volume may have.

    With a limit, promises alone count, so an operator may promise more than there is. Without
    one, a promise must fit into the file system beside all others and into what is free now.
    """
    if pool.limit is not None:
        return max(0, pool.limit - pool.promised)
    return max(0, min(pool.filesystem_free, pool.filesystem_size - pool.promised))


def matches(term: Segments, segments: Segments) -> bool:
    """Whether a node with ``segments`` lies in the topology ``term``."""
    return all(segments.get(key) == value for key, value in term.items())


def allowed(requirement: Requirement, segments: Segments) -> bool:
    """Whether the requisite topologies, if there are any, contain a node with ``segments``."""
    return not requirement.requisite or any(
        matches(term, segments) for term in requirement.requisite
    )


def choose(candidates: Sequence[Candidate], requirement: Requirement, size: int) -> Candidate:
    """Return the node for a volume of ``size`` bytes.

    Preferred topologies are tried in their order; then the emptiest of what is left. Raises
    RpcError RESOURCE_EXHAUSTED, upon which a scheduler looks for another node.
    """
    reachable = [node for node in candidates if allowed(requirement, node.segments)]
    if not reachable:
        wanted = "; ".join(_text(term) for term in requirement.requisite)
        here = "; ".join(_text(node.segments) for node in candidates)
        raise _exhausted(
            f"accessibility_requirements: wanted is {wanted}; this driver serves {here}"
        )
    roomy = [node for node in reachable if node.available >= size]
    if not roomy:
        most = max(node.available for node in reachable)
        raise _exhausted(f"required_bytes: {size} bytes are needed, {most} are available")
    return min(
        roomy, key=lambda node: (rank(node.segments, requirement.preferred), -node.available)
    )


def rank(segments: Segments, preferred: Sequence[Segments]) -> int:
    """Return how far down the list of preferred topologies a node comes; their number if not."""
    for place, term in enumerate(preferred):
        if matches(term, segments):
            return place
    return len(preferred)


def _text(segments: Segments) -> str:
    return ",".join(f"{key}={value}" for key, value in sorted(segments.items())) or "anywhere"


def _exhausted(text: str) -> RpcError:
    return RpcError(Code.RESOURCE_EXHAUSTED, text)
