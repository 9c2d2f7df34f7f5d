"""The daemon killed at every instant at which a link is made, moved or given back.

What addresses, routes and the journal itself pass through is killed in ``test_recovery``. In the
test machine, where everything takes ten times longer, only what is new there is looked at.
"""

from typing import Any

import pytest
from support import cnidaemon, cnilinks, kernelkinds, netns

pytestmark = [pytest.mark.root, pytest.mark.slow]

CONFIGS: dict[str, dict[str, Any]] = {
    "tap": {"owner": 1},
    "host-device": {"device": "hd0"},
    "macvlan": {"master": "up0"},
    "vrf": {"vrfname": "blue", "prevResult": {"cniVersion": "1.1.0"}},
}


def kinds(*names: str) -> list[Any]:
    return [
        pytest.param(
            name,
            marks=pytest.mark.kernel(kinds=[name] if name in kernelkinds.KINDS else []),
            id=name,
        )
        for name in names
    ]


def seen(daemon: cnidaemon.Daemon, pod: str) -> Any:
    """Return what must be as before: links of both sides, names, aliases and masters."""
    return [
        {name: (link.get("ifalias"), link["address"], link.get("master"))
         for name, link in netns.links(each).items()}
        for each in (daemon.host, pod)
    ]  # fmt: skip


def ready(daemon: cnidaemon.Daemon, pod: str, kind: str) -> dict[str, Any]:
    """Prepare node and container; return the configuration."""
    cnilinks.prepare(daemon.host, pod)
    if kind == "vrf":
        netns.run(pod, "ip", "link", "add", "eth0", "type", "veth", "peer", "name", "eth1")
    return daemon.config(kind, **CONFIGS[kind])


def instants(
    daemon: cnidaemon.Daemon, command: str, config: dict[str, Any], pod: str
) -> list[tuple[int, str]]:
    """Carry out a command and return the instants that were passed, with their numbers."""
    record = daemon.folder / "instants"
    daemon.stop()
    daemon.start(f"--fault=crash-at=0:{record}")
    record.write_text("")
    outcome = daemon.call(command, config, pod=pod)
    assert outcome.status == 0, outcome.stdout
    return list(enumerate(record.read_text().splitlines(), 1))


def in_guest() -> list[tuple[int, str]]:
    """Return the one instant that is tried in the test machine: the first link is there."""
    return [(2, "a link was made")] if kernelkinds.IN_GUEST else []


def recorded(daemon: cnidaemon.Daemon, config: dict[str, Any], pod: str) -> list[tuple[int, str]]:
    """Return all instants of an ADD but the last, when it is done."""
    before = seen(daemon, pod)
    passed = instants(daemon, "ADD", config, pod)
    assert seen(daemon, pod) != before
    assert daemon.call("DEL", config, pod=pod).status == 0
    assert len(passed) >= 4, passed
    return passed[:-1]


@pytest.mark.parametrize("kind", kinds(*CONFIGS))
def test_an_add_cut_off_anywhere_leaves_nothing(
    daemon: cnidaemon.Daemon, namespaces: netns.Namespaces, kind: str
) -> None:
    pod = namespaces.make("pod")
    config = ready(daemon, pod, kind)
    before = seen(daemon, pod)
    for number, name in in_guest() or recorded(daemon, config, pod):
        daemon.stop()
        daemon.start(f"--fault=crash-at={number}")
        call = daemon.begin("ADD", config, pod=pod)
        daemon.await_crash()
        call.kill()
        daemon.start()
        assert seen(daemon, pod) == before, name


@pytest.mark.parametrize("kind", kinds("tap", "host-device"))
def test_a_del_cut_off_anywhere_is_finished(
    daemon: cnidaemon.Daemon, namespaces: netns.Namespaces, kind: str
) -> None:
    pod = namespaces.make("pod")
    config = ready(daemon, pod, kind)
    before = seen(daemon, pod)
    assert daemon.call("ADD", config, pod=pod).status == 0
    passed = instants(daemon, "DEL", config, pod)
    assert passed
    for number, name in passed:
        daemon.stop()
        daemon.start()
        assert daemon.call("ADD", config, pod=pod).status == 0
        daemon.stop()
        daemon.start(f"--fault=crash-at={number}")
        call = daemon.begin("DEL", config, pod=pod)
        daemon.await_crash()
        call.kill()
        daemon.start()
        assert seen(daemon, pod) == before, name


def test_gc_gives_devices_back(daemon: cnidaemon.Daemon, namespaces: netns.Namespaces) -> None:
    pod = namespaces.make("pod")
    for kind in ("tap", "host-device"):
        config = ready(daemon, pod, kind) if kind == "tap" else daemon.config(kind, device="hd0")
        before = seen(daemon, pod)
        assert daemon.call("ADD", config, pod=pod, ifname="net1").status == 0
        assert daemon.call("GC", {**config, "cni.dev/valid-attachments": []}).status == 0
        assert seen(daemon, pod) == before
