"""route-override in real namespaces: what is left of a container's routes, and of its result."""

from typing import Any

import pytest
from support import cnichains, cnidaemon, netns

pytestmark = pytest.mark.root

ROUTES = [{"dst": "192.0.2.0/24"}, {"dst": "198.51.100.0/24", "gw": "10.88.0.9"}]
CONNECTED = "10.88.0.0/24 None"


def attached(daemon: cnidaemon.Daemon, pod: str, **keys: Any) -> tuple[cnichains.Chain, Any]:
    first = cnichains.bridge(daemon)
    first["ipam"]["routes"] = ROUTES
    chain = cnichains.Chain(daemon, [first, {"type": "route-override", **keys}])
    return chain, chain.add(pod)


def table(pod: str) -> list[str]:
    found = netns.as_json(pod, "ip", "-4", "-j", "route", "show")
    return sorted(f"{each['dst']} {each.get('gateway')}" for each in found)


@pytest.mark.parametrize(
    ("keys", "expected", "told"),
    [
        (
            {"flushroutes": True, "addroutes": [{"dst": "203.0.113.0/24", "gw": "10.88.0.5"}]},
            [CONNECTED, "203.0.113.0/24 10.88.0.5"],
            [{"dst": "203.0.113.0/24", "gw": "10.88.0.5"}],
        ),
        (
            {"flushgateway": True},
            [CONNECTED, "192.0.2.0/24 10.88.0.1", "198.51.100.0/24 10.88.0.9"],
            ROUTES,
        ),
        (
            {"delroutes": [{"dst": "192.0.2.0/24"}, {"dst": "10.99.0.0/24"}]},
            [CONNECTED, "198.51.100.0/24 10.88.0.9", "default 10.88.0.1"],
            [ROUTES[1], {"dst": "0.0.0.0/0", "gw": "10.88.0.1"}],
        ),
        (
            {"delroutes": [{"dst": "192.0.2.0/24"}], "args": {"cni": {"delroutes": [ROUTES[1]]}},
             "addroutes": [{"dst": "0.0.0.0/0", "gw": "10.88.0.7"}]},
            [CONNECTED, "192.0.2.0/24 10.88.0.1", "default 10.88.0.7"],
            [ROUTES[0], {"dst": "0.0.0.0/0", "gw": "10.88.0.1"},
             {"dst": "0.0.0.0/0", "gw": "10.88.0.7"}],
        ),
    ],
    ids=["flush", "gateway", "remove", "override"],
)  # fmt: skip
def test_routes_go_and_come(
    daemon: cnidaemon.Daemon, namespaces: netns.Namespaces, keys: dict[str, Any],
    expected: list[str], told: list[dict[str, str]],
) -> None:  # fmt: skip
    pod = namespaces.make("pod")
    chain, result = attached(daemon, pod, **keys)
    assert table(pod) == sorted(expected)
    assert result["routes"] == told
    gateway = "0.0.0.0" if keys.get("flushgateway") else "10.88.0.1"
    assert result["ips"][0]["gateway"] == gateway
    override = chain.document(chain.plugins[1], result)
    assert daemon.call("CHECK", override, pod=pod).status == 0
    assert chain.remove(pod, result) == []


def test_what_was_taken_away_comes_back_when_only_this_is_undone(
    daemon: cnidaemon.Daemon, namespaces: netns.Namespaces
) -> None:
    pod = namespaces.make("pod")
    chain, result = attached(daemon, pod, flushroutes=True, flushgateway=True)
    assert table(pod) == [CONNECTED]
    document = chain.document(chain.plugins[1], result)
    assert daemon.call("DEL", document, pod=pod).status == 0
    assert "default 10.88.0.1" in table(pod)
    assert len(table(pod)) == 4


def test_check_finds_a_route_that_came_back(
    daemon: cnidaemon.Daemon, namespaces: netns.Namespaces
) -> None:
    pod = namespaces.make("pod")
    chain, result = attached(daemon, pod, delroutes=[ROUTES[0]])
    netns.run(pod, "ip", "route", "add", "192.0.2.0/24", "via", "10.88.0.1")
    document = chain.document(chain.plugins[1], result)
    error = daemon.call("CHECK", document, pod=pod).error
    assert "route is not removed: 192.0.2.0/24" in error
    document["skipcheck"] = True
    assert daemon.call("CHECK", document, pod=pod).status == 0


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({}, "Required prevResult missing"),
        ({"addecmproutes": [{"dst": "10.0.0.0/8", "gws": []}]}, "addecmproutes is not served"),
        ({"addroutes": [{"dst": "x"}]}, "failed to load netconf: addroutes[0].dst: invalid CIDR"),
    ],
)
def test_mistakes_are_told(
    daemon: cnidaemon.Daemon, namespaces: netns.Namespaces, keys: dict[str, Any], expected: str
) -> None:
    pod = namespaces.make("pod")
    error = daemon.call("ADD", daemon.config("route-override", **keys), pod=pod).error
    assert expected in error


def test_a_route_by_a_gateway_of_the_other_family_is_refused(
    daemon: cnidaemon.Daemon, namespaces: netns.Namespaces
) -> None:
    pod = namespaces.make("pod")
    previous = cnichains.Chain(daemon, [cnichains.bridge(daemon)]).add(pod)
    keys = {"addroutes": [{"dst": "::/0", "gw": "10.88.0.7"}], "prevResult": previous}
    config = daemon.config("route-override", **keys)
    outcome = daemon.call("ADD", config, pod=pod)
    assert "addroutes: ::/0 is IPv6, its gateway 10.88.0.7 is not" in outcome.error
    assert daemon.call("DEL", config, pod=pod).status == 0
