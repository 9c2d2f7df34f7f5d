"""Tests of one group run in one worker: pytest-xdist knows them by the end of their names."""

import pytest


@pytest.mark.xdist_group("together")
def test_a_group_reaches_whoever_hands_out_the_tests(request: pytest.FixtureRequest) -> None:
    is_handed_out = hasattr(request.config, "workerinput")
    assert request.node.nodeid.endswith("@together") is is_handed_out
