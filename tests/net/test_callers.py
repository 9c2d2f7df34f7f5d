"""libcni as the caller, strangers as delegates, and many containers at once."""

import concurrent.futures
import json
import pathlib
import shutil
import subprocess
from collections.abc import Iterator

import pytest
from support import cnidaemon, netns, peers

pytestmark = pytest.mark.root


def cnitool(
    daemon: cnidaemon.Daemon, verb: str, pod: str, *, capabilities: object = None
) -> subprocess.CompletedProcess[str]:
    """Run upstream's cnitool on the network ``tnet`` of the daemon's folder."""
    environ = {
        "NETCONFPATH": str(daemon.folder / "net.d"),
        "CNI_PATH": str(daemon.plugins),
        "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
        "CAP_ARGS": json.dumps(capabilities or {}),
    }
    return subprocess.run(
        ["nsenter", f"--net={daemon.host}", "--", str(peers.plugin("cnitool")), verb, "tnet", pod],
        capture_output=True,
        text=True,
        env=environ,
        timeout=60,
        check=False,
    )


@pytest.fixture
def network(daemon: cnidaemon.Daemon) -> Iterator[cnidaemon.Daemon]:
    """A daemon whose folder holds a network list as runtimes read it."""
    folder = daemon.folder / "net.d"
    folder.mkdir()
    bridge = daemon.config("bridge", isDefaultGateway=True, ipam="host-local")
    plugin = {key: value for key, value in bridge.items() if key not in {"name", "cniVersion"}}
    plugin["capabilities"] = {"ips": True}
    document = {
        "cniVersion": "1.1.0", "name": "tnet", "plugins": [plugin, {"type": "loopback"}],
    }  # fmt: skip
    (folder / "10-tnet.conflist").write_text(json.dumps(document))
    yield daemon
    shutil.rmtree("/var/lib/cni/results", ignore_errors=True)


def test_cnitool_attaches_checks_and_detaches(
    network: cnidaemon.Daemon, namespaces: netns.Namespaces
) -> None:
    pod = namespaces.make("pod")
    added = cnitool(network, "add", pod, capabilities={"ips": ["10.88.0.77"]})
    assert added.returncode == 0, added.stderr
    assert json.loads(added.stdout)["ips"][0]["address"] == "10.88.0.77/24"
    for verb in ("check", "status", "del", "del"):
        done = cnitool(network, verb, pod)
        assert done.returncode == 0, (verb, done.stdout, done.stderr)
    assert cnidaemon.leftovers(network.host) == []
    assert network.addresses() == {}


def test_an_error_reaches_cnitool_in_words(
    network: cnidaemon.Daemon, namespaces: netns.Namespaces
) -> None:
    outcome = cnitool(network, "add", namespaces.make("pod"), capabilities={"ips": ["10.9.9.9"]})
    assert outcome.returncode != 0
    assert "failed to allocate all requested IPs: 10.9.9.9" in outcome.stdout + outcome.stderr


def test_a_stranger_s_ipam_plugin_is_run_as_libcni_would(
    daemon: cnidaemon.Daemon, namespaces: netns.Namespaces
) -> None:
    """The reference's host-local under another name: it writes where ours would."""
    strangers = daemon.folder / "strangers"
    strangers.mkdir()
    shutil.copy(peers.plugin("host-local"), strangers / "their-ipam")
    pod = namespaces.make("pod")
    config = daemon.config("bridge", isGateway=True, ipam="host-local")
    config["ipam"]["type"] = "their-ipam"
    about = {"pod": pod, "path": f"{daemon.plugins}:{strangers}"}
    added = daemon.call("ADD", config, **about)
    assert added.status == 0, added.stdout
    assert added.document["ips"][0]["address"] == "10.88.0.2/24"
    assert set(daemon.addresses()) == {"10.88.0.2"}
    later = {**config, "prevResult": added.document}
    assert daemon.call("CHECK", later, **about).status == 0
    assert daemon.call("STATUS", config, **about).status == 0
    assert daemon.call("DEL", later, **about).status == 0
    assert daemon.addresses() == {}
    config["ipam"]["ranges"] = [[{"subnet": "10.88.0.1/24"}]]
    refused = daemon.call("ADD", config, **about)
    assert refused.error.startswith("999: invalid range set 0: Network has host bits set")
    assert cnidaemon.leftovers(daemon.host) == []


def test_the_reference_plugins_take_over_and_hand_back(
    daemon: cnidaemon.Daemon, namespaces: netns.Namespaces, tmp_path: pathlib.Path
) -> None:
    """Addresses given by one are known to the other; each can detach what the other attached."""
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    for name in ("bridge", "host-local"):
        (theirs / name).symlink_to(peers.plugin(name))
    config = daemon.config("bridge", isGateway=True, ipam="host-local")
    first, second = namespaces.make("a"), namespaces.make("b")

    def reference(command: str, **about: str) -> cnidaemon.Outcome:
        return cnidaemon.execute(theirs / "bridge", command, config, host=daemon.host, **about)

    assert reference("ADD", pod=first, container="a").status == 0
    ours = daemon.call("ADD", config, pod=second, container="b")
    assert ours.document["ips"][0]["address"] == "10.88.0.3/24"
    assert daemon.call("DEL", config, pod=first, container="a").status == 0
    assert set(daemon.addresses()) == {"10.88.0.3"}
    assert "eth0" not in netns.links(first)
    assert reference("DEL", pod=second, container="b").status == 0
    assert daemon.addresses() == {}
    assert daemon.call("DEL", config, pod=second, container="b").status == 0
    assert cnidaemon.leftovers(daemon.host) == []


def test_many_containers_at_once_get_addresses_of_their_own(
    daemon: cnidaemon.Daemon, namespaces: netns.Namespaces
) -> None:
    config = daemon.config("bridge", isDefaultGateway=True, ipMasq=True, ipam="host-local")
    pods = {f"c{number}": namespaces.make("m") for number in range(40)}

    def at_once(command: str) -> list[cnidaemon.Outcome]:
        with concurrent.futures.ThreadPoolExecutor(20) as pool:
            calls = [
                pool.submit(daemon.call, command, config, pod=pod, container=name)
                for name, pod in pods.items()
            ]
            return [each.result() for each in calls]

    added = at_once("ADD")
    assert [each.status for each in added] == [0] * len(pods), added
    given = {each.document["ips"][0]["address"] for each in added}
    assert len(given) == len(pods)
    macs = {each.document["interfaces"][0]["mac"] for each in added}
    assert len(macs) == 1  # one bridge, although all found none at first
    removed = at_once("DEL")
    assert [each.status for each in removed] == [0] * len(pods), removed
    assert cnidaemon.leftovers(daemon.host) == []
    assert daemon.addresses() == {}


def test_two_interfaces_of_one_container_beside_each_other(
    daemon: cnidaemon.Daemon, namespaces: netns.Namespaces
) -> None:
    """containerd attaches ``lo`` and ``eth0`` at once, against the specification."""
    pod = namespaces.make("pod")
    bridge = daemon.config("bridge", isGateway=True, ipam="host-local")
    loopback = {"cniVersion": "0.3.1", "name": "cni-loopback", "type": "loopback"}
    calls = [
        daemon.begin("ADD", bridge, pod=pod),
        daemon.begin("ADD", loopback, pod=pod, ifname="lo"),
    ]
    outcomes = [call() for call in calls]
    assert [each.status for each in outcomes] == [0, 0], outcomes
    assert outcomes[1].document["ips"][0]["address"] == "127.0.0.1/8"
    assert daemon.call("DEL", loopback, pod=pod, ifname="lo").status == 0
    assert daemon.call("DEL", bridge, pod=pod).status == 0
    assert cnidaemon.leftovers(daemon.host) == []
