"""Which nodes are tried for a new volume."""

import pytest
from bitts.rpc.codes import Code, RpcError
from local_driver.cluster import choosing
from local_driver.cluster.choosing import Candidate
from local_driver.volumes import Requirement


def seg(node: str) -> dict[str, str]:
    return {"node": node}


def node(name: str, *, here: bool = True, heard: bool = True) -> Candidate:
    return Candidate(name, seg(name), here, heard, "" if here else "no route")


ABC = [node("a"), node("b"), node("c")]


@pytest.mark.parametrize(
    ("candidates", "requirement", "tiers"),
    [
        pytest.param(ABC, Requirement(), [["a", "b", "c"]], id="anywhere"),
        pytest.param(
            ABC, Requirement((), (seg("c"), seg("a"))), [["c"], ["a"], ["b"]], id="preferred first"
        ),
        pytest.param(
            ABC, Requirement((seg("b"), seg("c")), (seg("c"),)), [["c"], ["b"]], id="requisite only"
        ),
        pytest.param(
            [node("a", here=False), node("b")],
            Requirement((), (seg("a"),)),
            [["b"]],
            id="away and known to hold nothing",
        ),
        pytest.param(
            [node("a", here=False, heard=False), node("b")],
            Requirement((seg("b"),)),
            [["b"]],
            id="never heard and not wanted",
        ),
    ],
)
def test_nodes_are_tried_in_the_order_of_preference(
    candidates: list[Candidate], requirement: Requirement, tiers: list[list[str]]
) -> None:
    assert choosing.tiers(candidates, requirement) == tiers


@pytest.mark.parametrize(
    ("candidates", "requirement", "code", "text"),
    [
        pytest.param(
            ABC, Requirement((seg("z"),)), Code.RESOURCE_EXHAUSTED, "wanted is node=z", id="nowhere"
        ),
        pytest.param([], Requirement(), Code.UNAVAILABLE, "served is no node", id="no nodes"),
        pytest.param(
            [node("a", here=False), node("b", here=False)],
            Requirement(),
            Code.UNAVAILABLE,
            "every node for the volume is away: a: no route; b: no route",
            id="all away",
        ),
        pytest.param(
            [node("a", here=False, heard=False), node("b")],
            Requirement(),
            Code.UNAVAILABLE,
            "node a is away and may hold the volume",
            id="never heard",
        ),
    ],
)
def test_where_nobody_can_be_tried_the_reason_is_told(
    candidates: list[Candidate], requirement: Requirement, code: Code, text: str
) -> None:
    with pytest.raises(RpcError, match=text) as caught:
        choosing.tiers(candidates, requirement)
    assert caught.value.code is code


def test_a_lack_of_room_goes_before_a_wrong_wish() -> None:
    wrong, full = RpcError(Code.INVALID_ARGUMENT, "w"), RpcError(Code.RESOURCE_EXHAUSTED, "f")
    assert choosing.verdict([wrong, full]) is full
    assert choosing.verdict([wrong, RpcError(Code.UNAVAILABLE)]) is wrong
