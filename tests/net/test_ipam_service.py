"""Addresses for callers: never given twice, whoever crashes, and seen as they change."""

import pathlib
from collections.abc import Iterator

import pytest
from bitts.rpc import ipam
from support import cnidaemon, daemoncalls, netns

pytestmark = pytest.mark.root

SETS = [ipam.RangeSet(ranges=[ipam.Range(subnet="10.88.0.0/24")])]
SMALL = [ipam.RangeSet(ranges=[ipam.Range(subnet="10.88.0.0/30")])]


@pytest.fixture
def caller(daemon: cnidaemon.Daemon) -> Iterator[daemoncalls.Caller]:
    with daemoncalls.Caller(daemon.folder / "bitts-cni-daemon.sock") as made:
        yield made


def attach(daemon: cnidaemon.Daemon, pod: str, container: str) -> str:
    config = daemon.config("bridge", ipam="host-local")
    outcome = daemon.call("ADD", config, pod=pod, container=container)
    assert outcome.status == 0, outcome.stdout
    return str(outcome.document["ips"][0]["address"])


def addresses(found: ipam.Allocation) -> list[str]:
    return [each.address for each in found.addresses]


def test_calls_and_attachments_take_from_one_pool(
    daemon: cnidaemon.Daemon, caller: daemoncalls.Caller, namespaces: netns.Namespaces
) -> None:
    pods = [namespaces.make("a"), namespaces.make("b")]
    assert attach(daemon, pods[0], "c0") == "10.88.0.2/24"
    taken = caller.allocate("balancer")  # the ranges are those that the network had
    assert addresses(taken) == ["10.88.0.3/24"]
    assert taken.addresses[0].gateway == "10.88.0.1"
    assert addresses(caller.allocate("balancer")) == ["10.88.0.3/24"], "asked again"
    assert attach(daemon, pods[1], "c1") == "10.88.0.4/24"
    wanted = caller.allocate("other", requested=["10.88.0.77"])
    assert addresses(wanted) == ["10.88.0.77/24"]
    listed = {each.owner: (addresses(each), each.source) for each in caller.allocations("tnet")}
    attached, called = ipam.AllocationSource.ATTACHMENT, ipam.AllocationSource.CALL
    assert listed == {
        "c0": (["10.88.0.2/24"], attached), "balancer": (["10.88.0.3/24"], called),
        "c1": (["10.88.0.4/24"], attached), "other": (["10.88.0.77/24"], called),
    }  # fmt: skip
    assert caller.allocations("elsewhere") == []
    assert caller.release("balancer") == 1
    assert caller.release("balancer") == 0
    assert set(daemon.addresses()) == {"10.88.0.2", "10.88.0.4", "10.88.0.77"}


def test_what_is_wrong_is_refused_by_name(
    daemon: cnidaemon.Daemon, caller: daemoncalls.Caller, namespaces: netns.Namespaces
) -> None:
    folder = str(daemon.ipam)
    with pytest.raises(daemoncalls.Refused, match=r"INVALID_ARGUMENT: sets: network 'tnet'"):
        caller.allocate("x")
    for about in (
        {"network": "../etc", "sets": SETS},
        {"interface": "a/b", "sets": SETS},
        {"sets": [ipam.RangeSet(ranges=[ipam.Range(subnet="10.0.0.0/33")])]},
        {"sets": SETS, "requested": ["nonsense"]},
    ):
        with pytest.raises(daemoncalls.Refused, match="INVALID_ARGUMENT"):
            caller.allocate("x", data_dir=folder, **about)
    with pytest.raises(daemoncalls.Refused, match="INVALID_ARGUMENT"):
        caller.allocate("no/slash", data_dir=folder, sets=SETS)
    caller.allocate("one", data_dir=folder, sets=SMALL)
    with pytest.raises(daemoncalls.Refused, match=r"RESOURCE_EXHAUSTED: .*no IP addresses"):
        caller.allocate("two", data_dir=folder, sets=SMALL)
    assert [each.owner for each in caller.allocations()] == ["one"]
    pod = namespaces.make("pod")
    attach(daemon, pod, "c1")
    with pytest.raises(daemoncalls.Refused, match="ALREADY_EXISTS"):
        caller.allocate("c1", interface="eth0")
    assert len(daemon.addresses()) == 2


def test_gc_of_a_runtime_frees_nothing_of_callers(
    daemon: cnidaemon.Daemon, caller: daemoncalls.Caller
) -> None:
    caller.allocate("balancer", sets=SETS, data_dir=str(daemon.ipam))
    config = {**daemon.config("bridge", ipam="host-local"), "cni.dev/valid-attachments": []}
    assert daemon.call("GC", config).status == 0
    assert set(daemon.addresses()) == {"10.88.0.2"}


def test_an_allocation_cut_off_anywhere_is_whole_or_gone(
    daemon: cnidaemon.Daemon, caller: daemoncalls.Caller
) -> None:
    folder = str(daemon.ipam)
    caller.allocate("first", sets=SETS, data_dir=folder)
    for number, is_whole in ((1, False), (2, False), (3, True)):
        daemon.stop()
        daemon.start(f"--fault=crash-at={number}")
        with pytest.raises(daemoncalls.Refused, match="UNAVAILABLE"):
            caller.allocate("second", sets=SETS, data_dir=folder)
        daemon.await_crash()
        daemon.start()
        assert len(daemon.addresses()) == (2 if is_whole else 1), number
        assert len(caller.allocations()) == len(daemon.addresses()), number
    assert caller.allocate("second").owner == "second"
    assert len(daemon.addresses()) == 2


def test_a_watch_begins_with_everything_and_goes_on_with_changes(
    daemon: cnidaemon.Daemon, caller: daemoncalls.Caller, namespaces: netns.Namespaces
) -> None:
    pod = namespaces.make("pod")
    attach(daemon, pod, "c0")
    kinds = ipam.EventKind
    request = ipam.WatchRequest(network="tnet")
    with caller.stream("/bitts.ipam.v1.Ipam/Watch", request, ipam.Event) as events:
        first, synced = next(events), next(events)
        assert (first.kind, addresses(first.allocation)) == (kinds.PRESENT, ["10.88.0.2/24"])
        assert synced.kind == kinds.SYNCED
        caller.allocate("balancer")
        second = next(events)
        assert (second.kind, second.allocation.owner) == (kinds.PRESENT, "balancer")
        assert daemon.call("DEL", daemon.config("bridge", ipam="host-local"), pod=pod,
                           container="c0").status == 0  # fmt: skip
        gone = next(events)
        assert (gone.kind, gone.allocation.owner) == (kinds.GONE, "c0")
        revisions = [each.revision.number for each in (first, synced, second, gone)]
        assert revisions == sorted(revisions)
        assert len({each.revision.epoch for each in (first, synced, second, gone)}) == 1


def test_a_watch_ends_with_the_daemon_and_begins_anew_in_another_epoch(
    daemon: cnidaemon.Daemon, caller: daemoncalls.Caller
) -> None:
    caller.allocate("balancer", sets=SETS, data_dir=str(daemon.ipam))
    request = ipam.WatchRequest()
    epochs: list[str] = []
    for _ in range(2):
        with caller.stream("/bitts.ipam.v1.Ipam/Watch", request, ipam.Event) as events:
            first, _ = next(events), next(events)
            assert first.allocation.owner == "balancer"
            epochs.append(first.revision.epoch)
            daemon.kill()
            with pytest.raises(daemoncalls.Refused, match="UNAVAILABLE"):
                next(events)
        daemon.start()
        assert len(caller.allocations()) == 1
    assert epochs[0] != epochs[1]


def test_the_socket_is_for_its_owner_alone(daemon: cnidaemon.Daemon) -> None:
    path: pathlib.Path = daemon.folder / "bitts-cni-daemon.sock"
    assert path.stat().st_mode & 0o777 == 0o600


def test_what_is_known_of_an_attachment_is_told(
    daemon: cnidaemon.Daemon, caller: daemoncalls.Caller, namespaces: netns.Namespaces
) -> None:
    attach(daemon, namespaces.make("pod"), "c0")
    found = caller.known("tnet/c0")
    assert [(each.decision, each.reason) for each in found.objects] == [
        ("bridge eth0 attached", "ADD")
    ]
    assert "its removal does: DeleteLink" in found.findings[0].text
