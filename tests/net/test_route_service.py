"""Routes for callers: made, kept, and seen as they change."""

import pathlib
from collections.abc import Iterator

import pytest
from bitts.rpc import routes
from support import cnidaemon, daemoncalls, netns, processes, waiting

pytestmark = pytest.mark.root

OTHER_NODE = {"destination": "10.99.0.0/24", "gateway": "192.0.2.2"}


@pytest.fixture
def node(
    namespaces: netns.Namespaces, spawner: processes.Processes, short_dir: pathlib.Path
) -> cnidaemon.Daemon:
    """A daemon on a node with an uplink."""
    flags = ("--upkeep-interval=50ms",)
    made = cnidaemon.Daemon(spawner, namespaces.make("node"), short_dir, *flags)
    made.start()
    uplink(made.host)
    return made


def uplink(host: str) -> None:
    netns.run(host, "ip", "link", "add", "uplink", "type", "veth", "peer", "name", "far")
    netns.run(host, "ip", "addr", "add", "192.0.2.1/24", "dev", "uplink")
    for name in ("uplink", "far"):
        netns.run(host, "ip", "link", "set", name, "up")


@pytest.fixture
def caller(node: cnidaemon.Daemon) -> Iterator[daemoncalls.Caller]:
    with daemoncalls.Caller(node.folder / "bitts-cni-daemon.sock") as made:
        yield made


def kernel(host: str) -> list[str]:
    """Return the routes that carry our mark."""
    lines = netns.run(host, "ip", "route", "show", "table", "all", "proto", "177").splitlines()
    return sorted(" ".join(line.split()) for line in lines)


def test_a_route_is_made_listed_replaced_and_taken_back(
    node: cnidaemon.Daemon, caller: daemoncalls.Caller
) -> None:
    assert caller.add_route("mesh", **OTHER_NODE, metric=50, mtu=1400).device == ""
    assert kernel(node.host) == ["10.99.0.0/24 via 192.0.2.2 dev uplink metric 50 mtu 1400"]
    listed = caller.routes()
    assert [(each.destination, each.device, each.table) for each in listed] == [
        ("10.99.0.0/24", "uplink", 254)
    ]
    caller.add_route("mesh", destination="10.99.0.0/24", gateway="192.0.2.3")
    assert kernel(node.host) == ["10.99.0.0/24 via 192.0.2.3 dev uplink"]
    caller.add_route("mesh", destination="fd00:99::/64", device="uplink")
    assert len(caller.routes()) == 2
    assert caller.remove_route("mesh", "10.99.0.0/24") == 1
    assert caller.remove_route("mesh", "10.99.0.0/24") == 0
    assert [each.destination for each in caller.routes()] == ["fd00:99::/64"]


def test_what_is_wrong_is_refused_by_name(
    node: cnidaemon.Daemon, caller: daemoncalls.Caller
) -> None:
    for about, message in (
        ({"destination": "10.99.0.1/24", "device": "uplink"}, "destination: "),
        ({"destination": "10.99.0.0/24"}, "gateway or device is needed"),
        ({"destination": "10.99.0.0/24", "gateway": "x"}, "gateway: "),
        ({"destination": "10.99.0.0/24", "gateway": "fd00::1"}, "one IP version"),
        ({"destination": "10.99.0.0/24", "device": "none"}, "no link 'none'"),
    ):
        with pytest.raises(daemoncalls.Refused, match=f"INVALID_ARGUMENT: .*{message}"):
            caller.add_route("mesh", **about)
    with pytest.raises(daemoncalls.Refused, match="INVALID_ARGUMENT: owner"):
        caller.add_route("../mesh", **OTHER_NODE)
    with pytest.raises(daemoncalls.Refused, match="FAILED_PRECONDITION"):
        caller.add_route("mesh", destination="10.99.0.0/24", gateway="203.0.113.1")
    assert kernel(node.host) == []


def test_a_route_comes_back_and_survives_the_daemon(
    node: cnidaemon.Daemon, caller: daemoncalls.Caller
) -> None:
    caller.add_route("mesh", **OTHER_NODE)
    made = kernel(node.host)
    netns.run(node.host, "ip", "route", "del", "10.99.0.0/24")
    waiting.until_blocking(lambda: kernel(node.host) == made, "route put back")
    node.kill()
    assert kernel(node.host) == made
    netns.run(node.host, "ip", "link", "del", "uplink")
    assert kernel(node.host) == []
    node.start()
    uplink(node.host)  # another link of that name
    waiting.until_blocking(lambda: kernel(node.host) == made, "route by the new link")
    assert caller.remove_route("mesh", "10.99.0.0/24") == 1
    assert kernel(node.host) == []


def test_a_route_cut_off_anywhere_is_whole_or_gone(
    node: cnidaemon.Daemon, caller: daemoncalls.Caller
) -> None:
    for number, is_whole in ((1, False), (2, False), (3, False), (4, True)):
        node.stop()
        node.start(f"--fault=crash-at={number}")
        with pytest.raises(daemoncalls.Refused, match="UNAVAILABLE"):
            caller.add_route("mesh", **OTHER_NODE)
        node.await_crash()
        node.start("--upkeep-interval=1h")
        assert bool(kernel(node.host)) is is_whole, number


def test_a_watch_tells_of_changes_whoever_makes_them(
    node: cnidaemon.Daemon, caller: daemoncalls.Caller
) -> None:
    kinds = routes.EventKind
    caller.add_route("mesh", **OTHER_NODE)
    with caller.stream(
        "/bitts.routes.v1.Routes/Watch", routes.WatchRequest(), routes.Event
    ) as events:
        first, synced = next(events), next(events)
        assert (first.kind, first.route.gateway) == (kinds.PRESENT, "192.0.2.2")
        assert synced.kind == kinds.SYNCED
        ours = ("ip", "route", "add", "10.98.0.0/24", "via", "192.0.2.9", "proto", "177")
        netns.run(node.host, *ours)
        netns.run(node.host, "ip", "route", "add", "10.97.0.0/24", "via", "192.0.2.9")
        second = next(events)
        assert (second.kind, second.route.destination) == (kinds.PRESENT, "10.98.0.0/24")
        netns.run(node.host, "ip", "link", "del", "uplink")  # the kernel says nothing of routes
        gone = {next(events).route.destination for _ in range(2)}
        assert gone == {"10.99.0.0/24", "10.98.0.0/24"}
