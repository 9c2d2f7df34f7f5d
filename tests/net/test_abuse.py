"""What nobody should do to a daemon, and somebody will."""

import concurrent.futures
import os
import pathlib
import signal
import socket
import struct
from typing import Any

import pytest
from cni_daemon import protocol
from cni_daemon.protocol import Frame
from support import cnidaemon, netns, processes, waiting

pytestmark = pytest.mark.root

LETTERS = set(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789")
MARKS = set(b"_.-")


def ended(daemon: cnidaemon.Daemon, *flags: str) -> str:
    """Start another daemon that must refuse to serve; returns what it said."""
    another = daemon.spawn(*flags)
    waiting.until_blocking(lambda: not another.alive, "the end of the other one")
    assert another.exit_code == 1
    return another.output()


@pytest.mark.parametrize(
    "differs", [(), ("socket",), ("state",), ("socket", "state")], ids="+".join
)
def test_a_second_daemon_of_a_node_is_refused_and_disturbs_nothing(
    daemon: cnidaemon.Daemon, namespaces: netns.Namespaces, differs: tuple[str, ...]
) -> None:
    pod = namespaces.make("pod")
    config = daemon.config("bridge", isGateway=True, ipMasq=True, ipam="host-local")
    assert daemon.call("ADD", config, pod=pod).status == 0
    before = cnidaemon.leftovers(daemon.host)
    flags = {"socket": "--socket={}/2.sock", "state": "--state-dir={}/2"}
    for _ in range(3):
        said = ended(daemon, *(flags[each].format(daemon.folder) for each in differs))
        assert "another cni-daemon" in said
        assert "stop it first" in said
    assert cnidaemon.leftovers(daemon.host) == before
    assert daemon.call("DEL", config, pod=pod).status == 0
    daemon.kill()
    daemon.start()


SQUAT = """
import socket
held = socket.socket(socket.AF_UNIX)
held.bind("\\0bitts cni-daemon")
held.listen()
print("there", flush=True)
held.accept()[0].recv(1)
held.accept()
"""


def test_a_stranger_s_use_of_our_name_keeps_no_daemon_away(
    daemon: cnidaemon.Daemon, spawner: processes.Processes
) -> None:
    """Anybody on the node may have it: only a daemon of root is one."""
    daemon.stop()
    nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    command = ["/usr/bin/nsenter", f"--net={daemon.host}", "--", *nobody, "/usr/bin/python3", "-c"]
    squatter = spawner.spawn([*command, SQUAT], name="squatter")
    squatter.wait_ready_blocking(lambda: "there" in squatter.output(), "the stranger")
    daemon.start()
    assert "Somebody else uses our name" in daemon.log()


@pytest.mark.parametrize("kind", ["file", "folder", "link"])
def test_what_is_no_socket_is_not_replaced_by_one(daemon: cnidaemon.Daemon, kind: str) -> None:
    daemon.stop()
    target = daemon.folder / "precious"
    target.write_text("precious")
    match kind:
        case "file":
            daemon.socket.write_text("precious")
        case "folder":
            daemon.socket.mkdir()
        case _:
            daemon.socket.symlink_to(target)
    assert "something else than a socket is there" in ended(daemon)
    assert daemon.socket.is_dir() or daemon.socket.read_text() == "precious"


def odd(folder: pathlib.Path, kind: str) -> str:
    """Make something at a path that is no network namespace."""
    path = folder / kind
    match kind:
        case "pipe":
            os.mkfifo(path)
        case "file":
            path.write_text("x")
        case "folder":
            path.mkdir()
        case "loop":
            path.symlink_to(path)
        case "nowhere":
            path.symlink_to(folder / "missing")
        case "socket":
            with socket.socket(socket.AF_UNIX) as made:
                made.bind(str(path))
        case "device":
            return "/dev/random"
        case "mount":
            return "/proc/self/ns/mnt"
        case "long":
            return "/" + "x" * 5000
        case "relative":
            return "../../etc"
        case "below":
            (folder / "plain").write_text("x")
            return f"{folder}/plain/ns"
    return str(path)


@pytest.mark.parametrize(
    "kind",
    ["pipe", "file", "folder", "loop", "nowhere", "socket", "device", "mount", "long", "relative",
     "below"],
)  # fmt: skip
def test_what_is_no_namespace_is_refused_at_once_and_keeps_no_container_from_going(
    daemon: cnidaemon.Daemon, kind: str
) -> None:
    path = odd(daemon.folder, kind)
    config = daemon.config("bridge", isGateway=True, ipam="host-local")
    assert daemon.call("ADD", config, pod=path).error.startswith("999: failed to open netns")
    (daemon.ipam / "tnet").mkdir(parents=True)
    (daemon.ipam / "tnet" / "10.88.0.9").write_bytes(b"c1\r\neth0")
    assert daemon.call("DEL", config, pod=path).status == 0
    assert daemon.addresses() == {}
    assert cnidaemon.leftovers(daemon.host) == []


def test_a_link_to_a_namespace_is_one(
    daemon: cnidaemon.Daemon, namespaces: netns.Namespaces
) -> None:
    pod, path = namespaces.make("pod"), daemon.folder / "link"
    path.symlink_to(pod)
    config = daemon.config("bridge", isGateway=True, ipam="host-local")
    added = daemon.call("ADD", config, pod=str(path))
    assert added.status == 0, added.error
    assert "eth0" in netns.links(pod)
    assert daemon.call("DEL", config, pod=str(path)).status == 0


def answered(daemon: cnidaemon.Daemon, data: bytes) -> bytes:
    with socket.socket(socket.AF_UNIX) as caller:
        caller.settimeout(20)
        caller.connect(str(daemon.socket))
        caller.sendall(data)
        received = b""
        while chunk := caller.recv(1 << 16):
            received += chunk
    size, _ = struct.unpack_from("<IB", received)
    assert len(received) == 5 + size
    return received[5:]


def request(name: str, value: bytes) -> bytes:
    """Return an ADD as bytes of which one variable is ``value``."""
    variables = {
        "CNI_COMMAND": "ADD", "CNI_CONTAINERID": "c1", "CNI_NETNS": "/run/netns/none",
        "CNI_IFNAME": "eth0", "CNI_PATH": "/x", name: value.decode(errors="surrogateescape"),
    }  # fmt: skip
    stdin = b'{"cniVersion": "1.0.0", "name": "n", "type": "bridge"}'
    return protocol.encode(Frame("ab" * 16, "bridge", variables, stdin))


@pytest.mark.parametrize("place", ["first", "within", "last"])
def test_a_container_id_holds_no_byte_but_those_of_the_specification(
    daemon: cnidaemon.Daemon, place: str
) -> None:
    for number in range(1, 256):
        odd_one = bytes([number])
        value = {"first": odd_one + b"c", "within": b"c" + odd_one + b"c", "last": b"c" + odd_one}
        said = answered(daemon, request("CNI_CONTAINERID", value[place]))
        accepted = number in LETTERS or (number in MARKS and place != "first")
        assert (b'"code": 4' not in said) == accepted, (number, said)
        assert b'"code"' in said


def test_an_interface_s_name_holds_no_byte_that_would_end_or_split_it(
    daemon: cnidaemon.Daemon,
) -> None:
    for number in range(1, 256):
        said = answered(daemon, request("CNI_IFNAME", b"e" + bytes([number])))
        refused = number <= 32 or number == 127 or bytes([number]) in b"/:" or number >= 128
        assert (b'"code": 4' in said) == refused, (number, said)


def at_once(daemon: cnidaemon.Daemon, *calls: tuple[str, dict[str, Any]], pod: str) -> list[Any]:
    running = [daemon.begin(command, config, pod=pod) for command, config in calls]
    with concurrent.futures.ThreadPoolExecutor(len(running)) as pool:
        return list(pool.map(lambda call: call(), running))


def test_of_many_who_attach_the_same_one_wins(
    daemon: cnidaemon.Daemon, namespaces: netns.Namespaces
) -> None:
    pod = namespaces.make("pod")
    config = daemon.config("bridge", isGateway=True, ipMasq=True, ipam="host-local")
    for _ in range(5):
        outcomes = at_once(daemon, *[("ADD", config)] * 8, pod=pod)
        errors = [each.error for each in outcomes if each.status]
        assert len(errors) == 7
        assert all("a DEL must come first" in each for each in errors), errors
        assert len(daemon.addresses()) == 1
        assert daemon.call("DEL", config, pod=pod).status == 0
        assert daemon.addresses() == {}
    assert cnidaemon.leftovers(daemon.host) == []


def test_who_attaches_while_others_detach_the_same_gets_all_or_nothing(
    daemon: cnidaemon.Daemon, namespaces: netns.Namespaces
) -> None:
    pod = namespaces.make("pod")
    config = daemon.config("bridge", isGateway=True, ipMasq=True, ipam="host-local")
    for _ in range(8):
        outcomes = at_once(daemon, *[("ADD", config), ("DEL", config)] * 4, pod=pod)
        assert not [each.error for each in outcomes[1::2] if each.status]
        odd_ones = [e.error for e in outcomes[::2] if e.status and "DEL must come" not in e.error]
        assert not odd_ones
        has_link = "eth0" in netns.links(pod)
        assert has_link == bool(daemon.addresses())
        assert has_link == bool(cnidaemon.leftovers(daemon.host))
    assert daemon.call("DEL", config, pod=pod).status == 0
    assert cnidaemon.leftovers(daemon.host) == []


def test_an_orderly_end_leaves_no_call_without_its_answer(
    daemon: cnidaemon.Daemon, namespaces: netns.Namespaces
) -> None:
    config = daemon.config("bridge", isGateway=True, ipMasq=True, ipam="host-local")
    pods = {f"c{number}": namespaces.make("p") for number in range(12)}
    for command in ("ADD", "DEL"):
        running = [
            daemon.begin(command, config, pod=pod, container=name) for name, pod in pods.items()
        ]
        assert daemon.process is not None
        process = daemon.process
        process.send_signal(signal.SIGTERM)
        waiting.until_blocking(lambda: not process.alive, "the end")  # noqa: B023
        assert process.exit_code == 0, process.output()
        daemon.start()
        outcomes = [call() for call in running]
        assert [each.error for each in outcomes if each.status] == []
        if command == "ADD":
            given = {each.document["ips"][0]["address"].split("/")[0] for each in outcomes}
            assert given == set(daemon.addresses())
            assert len(given) == len(pods)
    waiting.until_blocking(lambda: not daemon.addresses(), "what was left for later")
    waiting.until_blocking(lambda: cnidaemon.leftovers(daemon.host) == [], "nothing left")


def test_a_state_folder_that_cannot_be_written_is_named(
    daemon: cnidaemon.Daemon, spawner: processes.Processes
) -> None:
    daemon.stop()
    (daemon.state / "journal").unlink()
    (daemon.state / "journal").mkdir()
    assert f"--state-dir {daemon.state}" in ended(daemon)
