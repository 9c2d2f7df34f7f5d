"""What the network demo asks for, and its verdicts."""

from typing import Any

import pytest
from bitts_console.network import plan
from bitts_console.network.plan import Fetched


def test_only_what_the_runtime_offers_is_declared_as_a_capability() -> None:
    asked = plan.configuration("/a", plan.published())
    assert asked["capabilities"] == {"portMappings": True, "bandwidth": True}
    assert plan.configuration("/a", {})["capabilities"] == {}


def test_the_address_of_a_result_comes_without_its_prefix() -> None:
    assert plan.address({"ips": [{"address": "10.88.7.2/24"}]}) == "10.88.7.2"


@pytest.mark.parametrize(("server", "ok"), [("server", True), ("client", False), ("", False)])
def test_the_published_port_must_lead_to_its_container(server: str, ok: bool) -> None:
    assert plan.port_mapping(Fetched(server, 0, 1.0), "server").ok is ok


@pytest.mark.parametrize(
    ("limited", "free", "size", "ok"),
    [
        pytest.param(105e6, 3e9, plan.SIZE, True, id="limited in one direction"),
        pytest.param(3e9, 3e9, plan.SIZE, False, id="no limit"),
        pytest.param(90e6, 95e6, plan.SIZE, False, id="both slow"),
        pytest.param(105e6, 3e9, plan.SIZE - 1, False, id="bytes missing"),
    ],
)
def test_a_limit_holds_in_its_direction_only(
    limited: float, free: float, size: int, ok: bool
) -> None:
    found = [Fetched("x", size, size * 8 / rate) for rate in (limited, free)]
    assert plan.bandwidth(*found).ok is ok


@pytest.mark.parametrize(("code", "ok"), [(11, True), (5, False), (None, False)])
def test_an_add_without_a_daemon_is_to_be_tried_again(code: object, ok: bool) -> None:
    assert plan.refused(code).ok is ok


SET = {"set": {"name": "pods", "elem": ["10.88.7.2"]}}


@pytest.mark.parametrize(
    ("links", "entries", "files", "left"),
    [
        pytest.param([{"ifname": "bitts-demo0"}], [{"set": {"name": "p"}}], [], "", id="clean"),
        pytest.param([{"ifname": "vethab"}], [], [], "link vethab", id="veth"),
        pytest.param([{"ifname": "x", "ifalias": "bitts-cni n"}], [], [], "link x", id="alias"),
        pytest.param([], [SET], [], "set element 10.88.7.2", id="element"),
        pytest.param([], [], ["10.88.7.2"], "file 10.88.7.2", id="address"),
    ],
)
def test_whatever_an_attachment_made_counts_as_left_over(
    links: list[dict[str, Any]], entries: list[dict[str, Any]], files: list[str], left: str
) -> None:
    verdict = plan.traces(links, {"nftables": entries}, files)
    assert verdict.ok is (left == "")
    assert left in verdict.text
