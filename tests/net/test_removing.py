"""DEL of what the journal does not know, and DEL that cannot be carried out now."""

import contextlib
import fcntl
import json
import os
import pathlib
import signal
from collections.abc import Iterator
from typing import Any

import pytest
from support import cnidaemon, netns, waiting

pytestmark = pytest.mark.root


def attached_by_others(
    daemon: cnidaemon.Daemon, pod: str, ifname: str = "eth0", container: str = "c1"
) -> None:
    """Leave what the reference plugins leave: a link in the pod and an address on disk."""
    netns.run(pod, "ip", "link", "add", ifname, "type", "veth", "peer", "name", "other")
    reserve(daemon, "10.88.0.2", ifname, container)


def reserve(daemon: cnidaemon.Daemon, address: str, ifname: str, container: str = "c1") -> None:
    folder = daemon.ipam / "tnet"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / address).write_text(f"{container}\r\n{ifname}")


@pytest.mark.parametrize("plugin", ["bridge", "loopback", "macvlan", "host-device"])
def test_a_del_that_names_the_nodes_own_namespace_leaves_the_node_alone(
    plugin: str, daemon: cnidaemon.Daemon
) -> None:
    attached_by_others(daemon, daemon.host)
    netns.run(daemon.host, "ip", "link", "set", "lo", "up")
    keys: dict[str, Any] = {} if plugin == "loopback" else {"ipam": "host-local"}
    if plugin == "host-device":
        keys["device"] = "eth0"
        netns.run(daemon.host, "ip", "link", "set", "eth0", "alias", "ens1")
    removed = daemon.call("DEL", daemon.config(plugin, **keys), pod=daemon.host)
    assert removed.status == 0, removed.error
    present = netns.links(daemon.host)
    assert "eth0" in present
    assert "UP" in present["lo"]["flags"]
    assert bool(daemon.addresses()) == (plugin == "loopback")


def test_a_caller_may_insist_that_the_nodes_namespace_is_meant(daemon: cnidaemon.Daemon) -> None:
    attached_by_others(daemon, daemon.host)
    config = daemon.config("bridge", ipam="host-local")
    removed = daemon.call("DEL", config, pod=daemon.host, environ={"CNI_NETNS_OVERRIDE": "true"})
    assert removed.status == 0, removed.error
    assert "eth0" not in netns.links(daemon.host)


@pytest.mark.parametrize(
    ("plugin", "keys"),
    [
        ("bridge", {"hairpinMode": True, "promiscMode": True}),
        ("bridge", {"mtu": "large"}),
        ("ptp", {"mtu": "large"}),
        ("macvlan", {"mode": "strange"}),
    ],
)
def test_what_would_be_refused_is_removed_all_the_same(
    plugin: str, keys: dict[str, Any], daemon: cnidaemon.Daemon, pod: str
) -> None:
    attached_by_others(daemon, pod)
    config = daemon.config(plugin, **keys, ipam="host-local")
    assert daemon.call("ADD", config, pod=pod, container="c2").status == 1
    removed = daemon.call("DEL", config, pod=pod)
    assert removed.status == 0, removed.error
    assert "eth0" not in netns.links(pod)
    assert daemon.addresses() == {}
    assert "Removing what is not served" in daemon.log()


@pytest.mark.parametrize(
    ("plugin", "keys"),
    [
        ("firewall", {"ingressPolicy": "strange"}),
        (
            "portmap",
            {
                "conditionsV4": ["-s", "10.0.0.0/8"],
                "runtimeConfig": {"portMappings": [{"hostPort": 80, "containerPort": 80}]},
            },
        ),
        ("route-override", {"addecmproutes": [{"dst": "10.0.0.0/8"}]}),
        ("sbr", {"table": "many"}),
        ("tuning", {"mtu": "large"}),
        ("vrf", {"vrfname": ""}),
    ],
)
def test_a_refused_plugin_that_made_no_link_removes_none(
    plugin: str, keys: dict[str, Any], daemon: cnidaemon.Daemon, pod: str
) -> None:
    attached_by_others(daemon, pod)
    removed = daemon.call("DEL", daemon.config(plugin, **keys), pod=pod)
    assert removed.status == 0, removed.error
    assert "eth0" in netns.links(pod)
    assert daemon.addresses() != {}


def test_an_intent_that_would_be_refused_is_carried_out(daemon: cnidaemon.Daemon, pod: str) -> None:
    attached_by_others(daemon, pod)
    config = daemon.config("bridge", hairpinMode=True, promiscMode=True, ipam="host-local")
    daemon.stop()
    assert daemon.call("DEL", config, pod=pod).status == 0
    assert len(daemon.intents) == 1
    daemon.start()
    waiting.until_blocking(lambda: daemon.intents == [], "the intent")
    assert daemon.addresses() == {}
    assert "eth0" not in netns.links(pod)


def test_an_intent_that_no_plugin_can_read_is_dropped(daemon: cnidaemon.Daemon, pod: str) -> None:
    config = daemon.config("bridge", ipam={"type": "host-local", "dataDir": 5})
    daemon.stop()
    assert daemon.call("DEL", config, pod=pod).status == 0
    daemon.start()
    waiting.until_blocking(lambda: daemon.intents == [], "the intent")


@pytest.fixture
def pod(namespaces: netns.Namespaces) -> str:
    """A container's namespace."""
    return namespaces.make("pod")


@pytest.fixture
def standing(daemon: cnidaemon.Daemon, pod: str) -> dict[str, Any]:
    """A configuration whose attachment cannot be removed: the kernel never deletes this link."""
    netns.run(daemon.host, "ip", "link", "add", "up0", "type", "veth", "peer", "name", "up1")
    config = daemon.config("macvlan", master="up0", ipam="host-local")
    assert daemon.call("ADD", config, pod=pod).status == 0
    netns.run(pod, "ip", "link", "delete", "eth0")
    netns.run(pod, "ip", "link", "set", "lo", "name", "eth0")
    return config


def test_an_address_is_not_given_back_while_its_link_stands(
    daemon: cnidaemon.Daemon, standing: dict[str, Any], pod: str
) -> None:
    removed = daemon.call("DEL", standing, pod=pod)
    assert removed.status == 1
    assert list(daemon.addresses()) == ["10.88.0.2"]
    collected = daemon.call("GC", {**standing, "cni.dev/valid-attachments": []})
    assert collected.status == 1
    assert list(daemon.addresses()) == ["10.88.0.2"]
    netns.run(pod, "ip", "link", "set", "eth0", "name", "lo")
    assert daemon.call("DEL", standing, pod=pod).status == 0
    assert daemon.addresses() == {}


def test_an_unknown_address_is_not_given_back_while_its_link_stands(
    daemon: cnidaemon.Daemon, pod: str
) -> None:
    netns.run(pod, "ip", "link", "set", "lo", "name", "eth0")
    reserve(daemon, "10.88.0.2", "eth0")
    config = daemon.config("bridge", ipam="host-local")
    assert daemon.call("DEL", config, pod=pod).status == 1
    assert list(daemon.addresses()) == ["10.88.0.2"]


@contextlib.contextmanager
def unopenable(path: pathlib.Path) -> Iterator[None]:
    """Put a file there that exists and that nobody can open now: it is leased to us."""
    target = os.readlink(path)
    path.unlink()
    former = signal.signal(signal.SIGIO, signal.SIG_IGN)  # how the kernel asks for it back
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        yield
    finally:
        os.close(descriptor)
        path.unlink()
        path.symlink_to(target)
        signal.signal(signal.SIGIO, former)


@pytest.mark.parametrize("is_known", [True, False])
def test_a_namespace_that_cannot_be_opened_is_not_taken_for_gone(
    is_known: bool, daemon: cnidaemon.Daemon, pod: str
) -> None:
    path = daemon.folder / "namespace"
    path.symlink_to(pod)
    netns.run(daemon.host, "ip", "link", "add", "up0", "type", "veth", "peer", "name", "up1")
    config = daemon.config("macvlan", master="up0", ipam="host-local")
    assert daemon.call("ADD", config, pod=str(path)).status == 0
    if not is_known:
        daemon.stop()
        for each in daemon.state.glob("journal*"):
            each.unlink()
        daemon.start()
    with unopenable(path):
        removed = daemon.call("DEL", config, pod=str(path))
    assert removed.status == 1
    assert "cannot open the network namespace" in removed.error
    assert list(daemon.addresses()) == ["10.88.0.2"]
    assert "eth0" in netns.links(pod)
    assert daemon.call("DEL", config, pod=str(path)).status == 0
    assert "eth0" not in netns.links(pod)
    assert daemon.addresses() == {}


def test_a_file_that_is_no_namespace_is_one_that_is_gone(
    daemon: cnidaemon.Daemon, pod: str
) -> None:
    path = daemon.folder / "namespace"
    path.symlink_to(pod)
    config = daemon.config("bridge", ipam="host-local")
    assert daemon.call("ADD", config, pod=str(path)).status == 0
    path.unlink()
    path.write_text(json.dumps({"left": "by a bind mount"}))
    removed = daemon.call("DEL", config, pod=str(path))
    assert removed.status == 0, removed.error
    assert daemon.addresses() == {}
