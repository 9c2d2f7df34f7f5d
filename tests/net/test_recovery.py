"""The daemon killed at every instant of ADD and DEL: nothing leaks, no address is given twice."""

import pathlib
import shutil

import pytest
from cni_daemon import records
from support import cnidaemon, netns, processes

pytestmark = pytest.mark.root


def config(daemon: cnidaemon.Daemon) -> dict[str, object]:
    return daemon.config(
        "bridge", isDefaultGateway=True, ipMasq=True, macspoofchk=True, ipam="host-local"
    )


def instants(daemon: cnidaemon.Daemon, pod: str, command: str) -> list[str]:
    """Carry out a command and return the instants that were passed on the way."""
    record = daemon.folder / "instants"
    daemon.stop()
    daemon.start(f"--fault=crash-at=0:{record}")
    record.write_text("")
    assert daemon.call(command, config(daemon), pod=pod).status == 0
    return record.read_text().splitlines()


@pytest.fixture
def node(
    namespaces: netns.Namespaces, spawner: processes.Processes, short_dir: pathlib.Path
) -> cnidaemon.Daemon:
    """A daemon with one attachment that stands throughout and must not be touched."""
    made = cnidaemon.Daemon(spawner, namespaces.make("node"), short_dir)
    made.start()
    standing = namespaces.make("standing")
    assert made.call("ADD", config(made), pod=standing, container="stays").status == 0
    return made


def crashed(daemon: cnidaemon.Daemon, number: int) -> None:
    """Start the daemon so that it dies at the instant ``number``."""
    daemon.stop()
    daemon.start(f"--fault=crash-at={number}")


def test_an_add_cut_off_anywhere_is_carried_out_once_after_all(
    node: cnidaemon.Daemon, namespaces: netns.Namespaces
) -> None:
    """The shim asks again, so the runtime never hears of the crash."""
    before = cnidaemon.leftovers(node.host)
    pod = namespaces.make("pod")
    passed = instants(node, pod, "ADD")
    assert node.call("DEL", config(node), pod=pod).status == 0
    assert len(passed) > 15, passed
    for number in range(1, len(passed) + 1):
        crashed(node, number)
        call = node.begin("ADD", config(node), pod=pod)
        node.await_crash()
        node.start()
        outcome = call()
        assert outcome.status == 0, (passed[number - 1], outcome.stdout)
        given = outcome.document["ips"][0]["address"]
        assert set(node.addresses()) == {"10.88.0.2", given.split("/")[0]}, passed[number - 1]
        assert node.call("DEL", config(node), pod=pod).status == 0
        assert cnidaemon.leftovers(node.host) == before, passed[number - 1]
        assert set(node.addresses()) == {"10.88.0.2"}, passed[number - 1]


def test_an_add_cut_off_anywhere_whose_caller_died_too_leaves_nothing(
    node: cnidaemon.Daemon, namespaces: netns.Namespaces
) -> None:
    before = cnidaemon.leftovers(node.host)
    pod = namespaces.make("pod")
    passed = instants(node, pod, "ADD")
    assert node.call("DEL", config(node), pod=pod).status == 0
    for number in range(1, len(passed)):  # at the last one it is done, and a DEL will come
        crashed(node, number)
        call = node.begin("ADD", config(node), pod=pod)
        node.await_crash()
        call.kill()
        node.start()
        assert cnidaemon.leftovers(node.host) == before, passed[number - 1]
        assert set(node.addresses()) == {"10.88.0.2"}, passed[number - 1]
        assert "eth0" not in netns.links(pod)


def test_a_del_cut_off_anywhere_is_finished(
    node: cnidaemon.Daemon, namespaces: netns.Namespaces
) -> None:
    before = cnidaemon.leftovers(node.host)
    pod = namespaces.make("pod")
    assert node.call("ADD", config(node), pod=pod).status == 0
    passed = instants(node, pod, "DEL")
    assert len(passed) >= 4, passed
    for number in range(1, len(passed) + 1):
        node.stop()
        node.start()
        assert node.call("ADD", config(node), pod=pod).status == 0
        crashed(node, number)
        call = node.begin("DEL", config(node), pod=pod)
        node.await_crash()
        call.kill()
        node.start()
        assert cnidaemon.leftovers(node.host) == before, passed[number - 1]
        assert set(node.addresses()) == {"10.88.0.2"}, passed[number - 1]


def test_what_stands_survives_a_crash_and_goes_by_its_del(
    node: cnidaemon.Daemon, namespaces: netns.Namespaces
) -> None:
    pod = namespaces.make("pod")
    previous = node.call("ADD", config(node), pod=pod).document
    node.kill()
    node.start()
    checked = {**config(node), "prevResult": previous}
    assert node.call("CHECK", checked, pod=pod).status == 0
    again = node.call("ADD", config(node), pod=pod)
    assert "a DEL must come first" in again.error
    namespaces.remove(pod)
    assert node.call("DEL", config(node), pod=pod).status == 0
    assert set(node.addresses()) == {"10.88.0.2"}


def test_after_a_reboot_everything_is_released(node: cnidaemon.Daemon) -> None:
    node.kill()
    journal = node.state / "journal"
    lines = journal.read_bytes().splitlines(keepends=True)
    lines[0] = records.seal(records.head("another boot"))
    journal.write_bytes(b"".join(lines))
    node.start()
    assert node.addresses() == {}
    assert cnidaemon.leftovers(node.host) == []


def test_a_del_while_the_daemon_is_away_is_carried_out_later(
    node: cnidaemon.Daemon, namespaces: netns.Namespaces
) -> None:
    before = cnidaemon.leftovers(node.host)
    pod = namespaces.make("pod")
    assert node.call("ADD", config(node), pod=pod).status == 0
    node.kill()
    for _ in range(2):
        outcome = node.call("DEL", config(node), pod=pod)
        assert (outcome.status, outcome.stdout) == (0, "")
    assert len(node.intents) == 2
    process = node.start()
    process.wait_ready_blocking(lambda: not node.intents, "intents carried out")
    assert cnidaemon.leftovers(node.host) == before


@pytest.mark.parametrize(
    ("command", "code"), [("ADD", 11), ("CHECK", 11), ("GC", 11), ("STATUS", 50)]
)
def test_other_verbs_tell_that_the_daemon_is_away(
    node: cnidaemon.Daemon, command: str, code: int
) -> None:
    node.kill()
    outcome = node.call(command, config(node), pod="/run/netns/x")
    assert outcome.status == 1
    assert outcome.document["code"] == code


def test_a_del_that_cannot_be_written_down_fails(node: cnidaemon.Daemon) -> None:
    node.kill()
    shutil.rmtree(node.state / "intents")
    outcome = node.call("DEL", config(node))
    assert outcome.document["code"] == 11


def test_gc_detaches_what_is_not_valid(
    node: cnidaemon.Daemon, namespaces: netns.Namespaces
) -> None:
    pod = namespaces.make("pod")
    before = cnidaemon.leftovers(node.host)
    assert node.call("ADD", config(node), pod=pod).status == 0
    assert node.call("GC", config(node)).status == 0  # says nothing about what is valid
    assert len(node.addresses()) == 2
    (node.ipam / "tnet" / "10.88.0.99").write_bytes(b"forgotten\r\neth0")
    valid = [{"containerID": "stays", "ifname": "eth0"}]
    collected = node.call("GC", {**config(node), "cni.dev/valid-attachments": valid})
    assert collected.status == 0, collected.stdout
    assert set(node.addresses()) == {"10.88.0.2"}
    assert cnidaemon.leftovers(node.host) == before
    assert "eth0" not in netns.links(pod)


def test_status_tells_that_no_address_is_left(daemon: cnidaemon.Daemon) -> None:
    wanted = daemon.config("bridge", ipam="host-local")
    wanted["ipam"]["ranges"] = [[{"subnet": "10.88.0.0/30"}]]
    assert daemon.call("STATUS", wanted).status == 0
    folder = daemon.ipam / "tnet"
    folder.mkdir(parents=True)
    (folder / "10.88.0.2").write_bytes(b"somebody\r\neth0")
    outcome = daemon.call("STATUS", wanted)
    assert outcome.error.startswith("50: no IP addresses available")


def test_status_and_gc_need_nothing_that_only_an_attachment_says(
    daemon: cnidaemon.Daemon, namespaces: netns.Namespaces
) -> None:
    """Runtimes ask both without ``runtimeConfig``, and take a node that fails for not ready."""
    offered = daemon.config("bridge", ipam="host-local", capabilities={"ipRanges": True})
    del offered["ipam"]["ranges"]
    pod = namespaces.make("pod")
    given = {**offered, "runtimeConfig": {"ipRanges": [[{"subnet": "10.88.0.0/24"}]]}}
    assert daemon.call("ADD", given, pod=pod).status == 0
    device = daemon.config("host-device", capabilities={"deviceID": True})
    for config in (offered, device, daemon.config("vrf"), as_list(offered, device)):
        asked = {key: value for key, value in config.items() if key != "runtimeConfig"}
        assert daemon.call("STATUS", asked).error == ""
        valid = [{"containerID": "c1", "ifname": "eth0"}]
        assert daemon.call("GC", {**asked, "cni.dev/valid-attachments": valid}).error == ""
    assert list(daemon.addresses()) == ["10.88.0.2"]
    assert daemon.call("GC", {**offered, "cni.dev/valid-attachments": []}).error == ""
    assert daemon.addresses() == {}
    missing = daemon.config("bridge", ipam={"type": "nowhere"})
    assert 'failed to find plugin "nowhere"' in daemon.call("STATUS", missing).error
    assert daemon.call("STATUS", daemon.config("ptp")).error == "999: no plugin name provided"


def as_list(*configs: dict[str, object]) -> dict[str, object]:
    """Return configurations as one call."""
    plugins = [
        {k: v for k, v in each.items() if k not in {"name", "cniVersion"}} for each in configs
    ]
    return {"cniVersion": "1.1.0", "name": "tnet", "type": "bitts", "plugins": plugins}
