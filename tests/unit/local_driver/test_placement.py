"""Where a volume goes, and whether there is room."""

import pytest
from bitts.rpc.codes import Code, RpcError
from local_driver import placement
from local_driver.placement import Candidate, Pool
from local_driver.volumes import Requirement

KEY = "topology.example/node"


def node(name: str, available: int = 100) -> Candidate:
    return Candidate(name, {KEY: name}, available)


A, B = {KEY: "a"}, {KEY: "b"}


@pytest.mark.parametrize(
    ("pool", "expected"),
    [
        pytest.param(Pool(None, 1000, 800, 0), 800, id="what is free"),
        pytest.param(Pool(None, 1000, 800, 900), 100, id="what is not promised"),
        pytest.param(Pool(None, 1000, 800, 5000), 0, id="promised more than there is"),
        pytest.param(Pool(500, 1000, 10, 100), 400, id="a limit counts promises alone"),
        pytest.param(Pool(500, 1000, 800, 600), 0, id="beyond the limit"),
    ],
)
def test_available(pool: Pool, expected: int) -> None:
    assert placement.available(pool) == expected


@pytest.mark.parametrize(
    ("requirement", "expected"),
    [
        pytest.param(Requirement(), "b", id="the emptiest"),
        pytest.param(Requirement(requisite=(A,)), "a", id="requisite"),
        pytest.param(Requirement(requisite=(A, B), preferred=(A, B)), "a", id="preferred"),
        pytest.param(Requirement(preferred=(A,)), "a", id="preferred alone"),
        pytest.param(
            Requirement(requisite=(A, B), preferred=({KEY: "c"}, B)), "b", id="next preferred"
        ),
        pytest.param(Requirement(requisite=({},)), "b", id="anywhere"),
    ],
)
def test_topology_is_honoured(requirement: Requirement, expected: str) -> None:
    chosen = placement.choose([node("a", 50), node("b", 90)], requirement, 10)
    assert chosen.node == expected


def test_a_preferred_node_without_room_is_passed_over() -> None:
    requirement = Requirement(requisite=(A, B), preferred=(A,))
    assert placement.choose([node("a", 5), node("b")], requirement, 10).node == "b"


@pytest.mark.parametrize(
    ("requirement", "size", "words"),
    [
        pytest.param(Requirement(requisite=({KEY: "z"},)), 1, f"{KEY}=z", id="unknown node"),
        pytest.param(
            Requirement(requisite=({"zone": "1", **A},)), 1, "zone=1", id="a key that we lack"
        ),
        pytest.param(Requirement(), 101, "101 bytes are needed, 100 are available", id="no room"),
    ],
)
def test_a_place_that_cannot_be_had_is_resource_exhausted(
    requirement: Requirement, size: int, words: str
) -> None:
    with pytest.raises(RpcError) as caught:
        placement.choose([node("a")], requirement, size)
    assert caught.value.code is Code.RESOURCE_EXHAUSTED
    assert words in caught.value.message
