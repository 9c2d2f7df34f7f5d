"""firewall beside a real firewalld: addresses are sources of a zone, and none is left there."""

import contextlib
import pathlib
from collections.abc import Iterator
from typing import Any

import pytest
from support import cluster, cnichains, cnidaemon, cnilinks, firewalls, netns, processes, waiting

pytestmark = [pytest.mark.root, pytest.mark.xdist_group("firewalld")]

BOTH = ["10.88.0.2/32", "fd00:88::2/128"]


@pytest.fixture(scope="module")
def firewall(tmp_path_factory: pytest.TempPathFactory) -> Iterator[firewalls.Firewall]:
    """A node's namespace with a firewalld that runs, for all tests."""
    folder = cluster.short_directory()
    spawner = processes.Processes(tmp_path_factory.mktemp("firewalld"))
    made = netns.Namespaces()
    try:
        found = firewalls.Firewall(spawner, made.make("node"), folder)
        found.start()
        yield found
    except firewalls.UnavailableError as error:
        pytest.skip(str(error))
    finally:
        spawner.close()
        made.close()
        cluster.remove_tree(folder)


@pytest.fixture
def node(
    firewall: firewalls.Firewall,
    spawner: processes.Processes,
    short_dir: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[cnidaemon.Daemon]:
    """A daemon on that node, where no earlier test has left anything in firewalld."""
    if firewall.sources():
        firewall.stop()
    if not firewall.is_running():
        firewall.start()
    monkeypatch.setenv("DBUS_SYSTEM_BUS_ADDRESS", firewall.address)
    made = cnidaemon.Daemon(spawner, firewall.host, short_dir)
    made.start("--upkeep-interval=200ms")
    yield made
    assert firewall.sources() == []
    with contextlib.suppress(waiting.DeadlineError):
        waiting.until_blocking(lambda: cnidaemon.leftovers(firewall.host) == [], "nothing left")
    assert cnidaemon.leftovers(firewall.host) == []


@pytest.fixture
def pod(namespaces: netns.Namespaces) -> str:
    return namespaces.make("pod")


def chain(node: cnidaemon.Daemon, *, dual: bool = False, **keys: Any) -> cnichains.Chain:
    return cnichains.Chain(node, [cnichains.bridge(node, dual=dual), {"type": "firewall", **keys}])


def elements(node: cnidaemon.Daemon) -> str:
    return netns.run(node.host, "nft", "list", "ruleset")


def test_addresses_are_sources_of_the_zone_as_with_the_reference(
    node: cnidaemon.Daemon, firewall: firewalls.Firewall, pod: str, tmp_path: pathlib.Path
) -> None:
    guarded = chain(node, dual=True)
    result = guarded.add(pod)
    assert firewall.sources() == BOTH
    guarded.check(pod, result)
    assert guarded.remove(pod) == []
    assert firewall.sources() == []
    reference = cnilinks.reference(tmp_path / "reference", "firewall") / "firewall"
    document = guarded.document({"type": "firewall"}, result)
    about = {"host": node.host, "pod": pod,
             "environ": {"DBUS_SYSTEM_BUS_ADDRESS": firewall.address}}  # fmt: skip
    assert cnidaemon.execute(reference, "ADD", document, **about).status == 0
    assert firewall.sources() == BOTH
    removed = node.call("DEL", document, pod=pod)  # which it did not attach itself
    assert removed.status == 0, removed.error


def test_what_is_in_a_zone_that_trusts_is_forwarded(
    node: cnidaemon.Daemon, firewall: firewalls.Firewall, namespaces: netns.Namespaces, pod: str
) -> None:
    far, bare = namespaces.make("far"), namespaces.make("bare")
    other = cnichains.bridge(node, bridge="cni1")
    other["ipam"]["ranges"] = [[{"subnet": "10.89.0.0/24"}]]
    without = cnichains.Chain(node, [cnichains.bridge(node)])
    apart = cnichains.Chain(node, [other])
    apart.add(far, container="far")
    without.add(bare, container="bare")
    guarded = chain(node)
    guarded.add(pod)
    assert netns.inside(pod, lambda: cnichains.reaches("10.89.0.2"))
    assert not netns.inside(bare, lambda: cnichains.reaches("10.89.0.2"))
    assert [guarded.remove(pod), without.remove(bare, container="bare")] == [[], []]
    assert apart.remove(far, container="far") == []


def test_whether_it_runs_is_seen_at_each_attachment(
    node: cnidaemon.Daemon, firewall: firewalls.Firewall, namespaces: netns.Namespaces
) -> None:
    pods = {name: namespaces.make(name) for name in ("a", "b", "c", "d", "e")}
    guarded = chain(node)
    guarded.add(pods["a"], container="a")
    guarded.add(pods["b"], container="b")
    assert len(firewall.sources()) == 2
    firewall.stop()
    guarded.add(pods["c"], container="c")
    assert "10.88.0.4" in elements(node)
    firewall.start()
    guarded.add(pods["d"], container="d")
    chosen = chain(node, backend="iptables")
    result = chosen.add(pods["e"], container="e")
    chosen.check(pods["e"], result, container="e")
    waiting.until_blocking(lambda: len(firewall.sources()) == 3, "the first two to be back")
    assert "10.88.0.4/32" not in firewall.sources()
    assert "10.88.0.6/32" not in firewall.sources()
    for name, path in pods.items():
        assert guarded.remove(path, container=name) == []


def test_a_list_that_is_attached_as_one_sees_it_too(
    node: cnidaemon.Daemon, firewall: firewalls.Firewall, namespaces: netns.Namespaces
) -> None:
    document = cnichains.as_one(chain(node))
    pods = {f"pod-{number}": namespaces.make("pod") for number in range(6)}

    def add(*names: str) -> None:
        for name in names:
            added = node.call("ADD", document, pod=pods[name], container=name)
            assert added.status == 0, added.error

    add("pod-0", "pod-1", "pod-2", "pod-3")  # alike, so the last ones go by a template
    assert len(firewall.sources()) == 4
    firewall.stop()
    add("pod-4")
    assert "10.88.0.6" in elements(node)
    firewall.start()
    add("pod-5")
    waiting.until_blocking(lambda: len(firewall.sources()) == 5, "the first four to be back")
    for name, path in pods.items():
        assert node.call("DEL", document, pod=path, container=name).status == 0


def test_what_it_forgets_comes_back(
    node: cnidaemon.Daemon, firewall: firewalls.Firewall, pod: str
) -> None:
    guarded = chain(node, dual=True, backend="firewalld")
    result = guarded.add(pod)
    for forget in (firewall.reload, firewall.stop):
        forget()
        if not firewall.is_running():
            firewall.start()
        waiting.until_blocking(lambda: firewall.sources() == BOTH, "the sources to be back")
    guarded.check(pod, result)
    assert guarded.remove(pod) == []


def test_a_container_goes_while_firewalld_is_away(
    node: cnidaemon.Daemon, firewall: firewalls.Firewall, namespaces: netns.Namespaces, pod: str
) -> None:
    guarded = chain(node)
    guarded.add(pod)
    firewall.stop()
    wanting = chain(node, backend="firewalld")
    other = namespaces.make("other")
    refused = wanting.attempt("ADD", other, container="other")
    assert wanting.remove(other, container="other") == []
    assert guarded.remove(pod) == []
    firewall.start()
    assert "start it, or remove backend" in refused.error


def test_check_finds_what_is_missing(
    node: cnidaemon.Daemon, firewall: firewalls.Firewall, pod: str
) -> None:
    guarded = chain(node, backend="firewalld", firewalldZone="work")
    result = guarded.add(pod)
    assert firewall.sources("work") == ["10.88.0.2/32"]
    other = chain(node, backend="firewalld", firewalldZone="home")
    wrong = other.attempt("CHECK", pod, previous=result)
    assert "forwarding for 10.88.0.2 is not allowed any more" in wrong.error
    assert guarded.remove(pod) == []
    assert firewall.sources("work") == []


@pytest.mark.parametrize(
    ("zone", "expected"),
    [
        ("none", 'firewalldZone "none": firewalld: INVALID_ZONE: none: make it with'),
        ("work", "ZONE_CONFLICT: '10.88.0.2/32' already bound to a zone: take it out of the other"),
    ],
)
def test_a_zone_that_cannot_be_is_told_with_what_to_do(
    node: cnidaemon.Daemon, firewall: firewalls.Firewall, pod: str, zone: str, expected: str
) -> None:
    occupied = chain(node, firewalldZone="home")
    first = occupied.add(pod, container="first")
    document = occupied.document({"type": "firewall", "firewalldZone": zone}, first)
    refused = node.call("ADD", document, pod=pod, container="second")
    assert expected in refused.error
    assert node.call("DEL", document, pod=pod, container="second").status == 0
    assert firewall.sources("home") == ["10.88.0.2/32"]
    assert occupied.remove(pod, container="first") == []


def test_bridges_are_closed_to_each_other_all_the_same(
    node: cnidaemon.Daemon, firewall: firewalls.Firewall, pod: str
) -> None:
    guarded = chain(node, ingressPolicy="same-bridge")
    guarded.add(pod)
    assert firewall.sources() == ["10.88.0.2/32"]
    listed = netns.run(node.host, "nft", "list", "set", "inet", "bitts_cni", "closed_bridges")
    assert '"cni0"' in listed
    assert guarded.remove(pod) == []
    node.stop()  # it would put the table back
    netns.run(node.host, "nft", "delete", "table", "inet", "bitts_cni")


def test_killed_when_a_source_was_just_added_nothing_is_left(
    node: cnidaemon.Daemon, firewall: firewalls.Firewall, pod: str
) -> None:
    record = node.folder / "instants"
    guarded = chain(node)
    node.stop()
    node.start(f"--fault=crash-at=0:{record}")
    guarded.add(pod)
    assert guarded.remove(pod) == []
    passed = record.read_text().splitlines()
    number = next(i for i, each in enumerate(passed, 1) if "changing zone trusted" in each)
    node.stop()
    node.start(f"--fault=crash-at={number}")
    document = guarded.document(guarded.plugins[0])
    added = node.call("ADD", document, pod=pod)
    cut_off = node.begin("ADD", guarded.document(guarded.plugins[1], added.document), pod=pod)
    node.await_crash()
    cut_off.kill()
    assert len(firewall.sources()) == 1
    node.start()
    assert firewall.sources() == []
    assert guarded.remove(pod) == []


def test_the_firewalld_of_another_namespace_is_not_asked(
    firewall: firewalls.Firewall, spawner: processes.Processes, short_dir: pathlib.Path,
    namespaces: netns.Namespaces, pod: str, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setenv("DBUS_SYSTEM_BUS_ADDRESS", firewall.address)
    elsewhere = cnidaemon.Daemon(spawner, namespaces.make("elsewhere"), short_dir)
    elsewhere.start()
    chain(elsewhere).add(pod)
    assert firewall.sources() == []
    assert "10.88.0.2" in elements(elsewhere)
    other = namespaces.make("other")
    refused = chain(elsewhere, backend="firewalld").attempt("ADD", other, container="other")
    assert "does not run in the node's network namespace" in refused.error
