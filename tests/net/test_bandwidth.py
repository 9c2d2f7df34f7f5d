"""bandwidth in real namespaces: the same qdiscs as the reference's, and traffic that obeys."""

import json
import pathlib
import re
import socket
import threading
import time
from typing import Any

import pytest
from support import cnichains, cnidaemon, netns, peers

pytestmark = pytest.mark.root

MBIT = 1_000_000
BOTH = {"ingressRate": 80 * MBIT, "ingressBurst": 8 * MBIT,
        "egressRate": 40 * MBIT, "egressBurst": 4 * MBIT}  # fmt: skip


def chain(daemon: cnidaemon.Daemon, limits: dict[str, int], **keys: Any) -> cnichains.Chain:
    shaped = {"type": "bandwidth", "runtimeConfig": {"bandwidth": limits}, **keys}
    return cnichains.Chain(daemon, [cnichains.bridge(daemon), shaped])


def disciplines(host: str) -> list[dict[str, Any]]:
    """Return every discipline but the default ones, and the filters, without what is random."""
    found = []
    for each in netns.as_json(host, "tc", "-j", "qdisc", "show"):
        if each["kind"] not in {"noqueue", "pfifo_fast"}:
            each["dev"] = re.sub(r"veth.*", "VETH", each["dev"])
            found.append(each)
    for link in netns.links(host):
        text = netns.run(host, "tc", "filter", "show", "dev", link, "ingress")
        found.append({"filters": text.count("match 00000000/00000000 at 0")})
    return sorted(found, key=json.dumps)


@pytest.mark.parametrize(
    "limits",
    [
        BOTH,
        {"ingressRate": 10 * MBIT, "ingressBurst": MBIT},
        {"egressRate": 100_000, "egressBurst": 80_000},
        {"egressRate": 8_000 * MBIT, "egressBurst": 2**31},
        {"ingressRate": 50_000 * MBIT, "ingressBurst": 2**32 - 1},
    ],
    ids=json.dumps,
)
def test_both_make_the_same(
    daemon: cnidaemon.Daemon, namespaces: netns.Namespaces, limits: dict[str, int],
    tmp_path: pathlib.Path,
) -> None:  # fmt: skip
    pod, theirs = namespaces.make("pod"), namespaces.make("theirs")
    ours = chain(daemon, limits)
    result = ours.add(pod)
    ours.check(pod, result)
    node = namespaces.make("node2")
    previous: Any = None
    for plugin in ours.plugins:
        document = ours.document(plugin, previous)
        if "ipam" in document:
            document["ipam"] = {**document["ipam"], "dataDir": str(tmp_path)}
        program = peers.plugin(plugin["type"])
        folder = tmp_path / "bin"
        folder.mkdir(exist_ok=True)
        for name in ("bridge", "bandwidth", "host-local"):
            if not (folder / name).exists():
                (folder / name).symlink_to(peers.plugin(name))
        done = cnidaemon.execute(folder / program.name, "ADD", document, host=node, pod=theirs)
        assert done.status == 0, done.stdout
        previous = done.document
    assert disciplines(daemon.host) == disciplines(node)
    names = [re.sub(r"veth.*", "VETH", each["name"]) for each in result["interfaces"]]
    assert names == [re.sub(r"veth.*", "VETH", each["name"]) for each in previous["interfaces"]]
    checked = ours.document(ours.plugins[1], result)
    judge = cnidaemon.execute(
        peers.plugin("bandwidth"), "CHECK", checked, host=daemon.host, pod=pod
    )
    assert judge.status == 0, judge.stdout
    assert ours.remove(pod) == []
    assert cnidaemon.leftovers(daemon.host) == []


def speed(sender: str, receiver: str, address: str, amount: int = 1_500_000) -> float:
    """Send so many bytes; returns bits per second."""
    server = netns.inside(receiver, lambda: socket.create_server(("0.0.0.0", 5001)))
    taken: list[int] = []

    def drain() -> None:
        connection, _ = server.accept()
        with connection:
            while data := connection.recv(1 << 16):
                taken.append(len(data))

    thread = threading.Thread(target=drain)
    thread.start()

    def send() -> float:
        with socket.create_connection((address, 5001), timeout=60) as connection:
            begun = time.monotonic()
            connection.sendall(bytes(amount))
            connection.shutdown(socket.SHUT_WR)
            connection.recv(1)
            return time.monotonic() - begun

    with server:
        took = netns.inside(sender, send)
        thread.join(120)
    assert sum(taken) == amount
    return amount * 8 / took


def test_traffic_obeys_in_each_direction(
    daemon: cnidaemon.Daemon, namespaces: netns.Namespaces
) -> None:
    """The limit is far below what the machine can do, so a wide margin decides safely."""
    pod = namespaces.make("pod")
    limits = {"ingressRate": 20 * MBIT, "ingressBurst": 400_000,
              "egressRate": 10 * MBIT, "egressBurst": 400_000}  # fmt: skip
    result = chain(daemon, limits).add(pod)
    address = result["ips"][0]["address"].split("/")[0]
    assert speed(daemon.host, pod, address) < 40 * MBIT
    assert speed(pod, daemon.host, "10.88.0.1") < 20 * MBIT


def test_containerd_s_endless_burst_does_not_wrap_around(
    daemon: cnidaemon.Daemon, namespaces: netns.Namespaces
) -> None:
    """The reference makes a bucket of 193 MB in which packets may wait 275 seconds."""
    pod = namespaces.make("pod")
    limits = {"ingressRate": 10 * MBIT, "ingressBurst": 2**32 - 1}
    shaped = chain(daemon, limits)
    result = shaped.add(pod)
    (found,) = [d for d in disciplines(daemon.host) if d.get("kind") == "tbf"]
    assert found["options"]["burst"] == pytest.approx(343_597_383, rel=0.01)
    shaped.check(pod, result)


def test_the_plugin_s_own_limits_hide_the_runtime_s(
    daemon: cnidaemon.Daemon, namespaces: netns.Namespaces
) -> None:
    pod = namespaces.make("pod")
    own = chain(daemon, BOTH, ingressRate=MBIT, ingressBurst=MBIT)
    result = own.add(pod)
    assert len(result["interfaces"]) == 3
    (found,) = [d for d in disciplines(daemon.host) if d.get("kind") == "tbf"]
    assert found["options"]["rate"] == MBIT // 8


def test_check_finds_other_limits(daemon: cnidaemon.Daemon, namespaces: netns.Namespaces) -> None:
    pod = namespaces.make("pod")
    result = chain(daemon, BOTH).add(pod)
    other = chain(daemon, {**BOTH, "egressRate": 41 * MBIT})
    assert "Rate doesn't match" in other.attempt("CHECK", pod, previous=result).error
    netns.run(daemon.host, "tc", "qdisc", "del", "dev", result["interfaces"][1]["name"], "root")
    shaped = chain(daemon, BOTH)
    assert "Failed to find qdisc" in shaped.attempt("CHECK", pod, previous=result).error


@pytest.mark.parametrize(
    ("keys", "previous", "expected"),
    [
        ({"ingressRate": 1}, {}, "if rate is set, burst must also be set"),
        ({"egressBurst": 1}, {}, "if burst is set, rate must also be set"),
        ({"ingressRate": 1, "ingressBurst": 2**35}, {}, "burst cannot be more than 4GB"),
        (BOTH, None, "must be called as chained plugin"),
        (BOTH, {}, "no interfaces provided"),
        (BOTH, {"interfaces": [{"name": "veth1"}]}, "container interface eth0 has no veth peer"),
    ],
)
def test_mistakes_are_told_as_the_reference_tells_them(
    daemon: cnidaemon.Daemon, namespaces: netns.Namespaces, keys: dict[str, Any], previous: Any,
    expected: str,
) -> None:  # fmt: skip
    pod, node = namespaces.make("pod"), namespaces.make("theirs")
    config = daemon.config("bandwidth", **keys)
    if previous is not None:
        config["prevResult"] = {"cniVersion": "1.1.0", **previous}
    assert expected in daemon.call("ADD", config, pod=pod).error
    theirs = cnidaemon.execute(peers.plugin("bandwidth"), "ADD", config, host=node, pod=pod)
    assert expected in theirs.error
