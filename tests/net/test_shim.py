"""The shim and the daemon's socket: broken, slow, foolish and malicious callers and daemons."""

import json
import os
import pathlib
import socket
import stat
import struct
import subprocess
import threading

import pytest
from cni_daemon import protocol, requests
from cni_daemon.installing import Installation, install
from cni_daemon.protocol import Frame
from support import cnidaemon, netns, waiting

pytestmark = pytest.mark.root

CONFIG = {"cniVersion": "1.0.0", "name": "n", "type": "bridge"}


def answer(
    daemon: cnidaemon.Daemon, data: bytes, *, ends: bool = False
) -> tuple[int, dict[str, object]]:
    """Send bytes to the daemon and return status and document of its answer."""
    with socket.socket(socket.AF_UNIX) as caller:
        caller.settimeout(80)
        caller.connect(str(daemon.socket))
        caller.sendall(data)
        if ends:
            caller.shutdown(socket.SHUT_WR)
        received = b""
        while chunk := caller.recv(1 << 16):
            received += chunk
    size, status = struct.unpack_from("<IB", received)
    assert len(received) == 5 + size
    return status, json.loads(received[5:] or b"{}")


def frame(document: object = CONFIG, **environ: str) -> bytes:
    variables = {
        "CNI_COMMAND": "ADD", "CNI_CONTAINERID": "c1", "CNI_NETNS": "/run/netns/none",
        "CNI_IFNAME": "eth0", "CNI_PATH": "/x", **environ,
    }  # fmt: skip
    return protocol.encode(Frame("ab" * 16, "bridge", variables, json.dumps(document).encode()))


def test_the_socket_is_root_s_alone(daemon: cnidaemon.Daemon) -> None:
    assert stat.S_IMODE(daemon.socket.stat().st_mode) == 0o600
    daemon.socket.chmod(0o666)
    reply = subprocess.run(
        [
            "setpriv", "--reuid=65534", "--clear-groups", "python3", "-c",
            "import socket,sys; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); "
            "s.settimeout(60); print(s.recv(4096)[5:].decode())",
            str(daemon.socket),
        ],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert "only root may ask" in reply.stdout or "Permission denied" in reply.stderr


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", 5),
        (protocol.HEADER.pack(b"BCN1", 1 << 31, b"n" * 16), 5),
        (protocol.HEADER.pack(b"BCN1", 3, b"n" * 16) + b"abc", 5),
        (frame(CNI_CONTAINERID="../../etc"), 4),
        (frame(CNI_IFNAME="a/b"), 4),
        (frame({**CONFIG, "name": "../x"}), 7),
        (frame(CNI_NETNS="/etc/passwd"), 999),
        (frame(CNI_NETNS="/dev/zero"), 999),
        (frame(CNI_NETNS="/proc/self/ns/mnt"), 999),
        (frame([[]]), 6),
    ],
)
def test_foolish_callers_get_an_error_object(
    daemon: cnidaemon.Daemon, data: bytes, code: int
) -> None:
    status, document = answer(daemon, data)
    assert (status, document["code"]) == (1, code)
    assert cnidaemon.leftovers(daemon.host) == []


def test_a_caller_that_says_nothing_holds_nobody_up(
    daemon: cnidaemon.Daemon, namespaces: netns.Namespaces
) -> None:
    silent = [socket.socket(socket.AF_UNIX) for _ in range(20)]
    for each in silent:
        each.connect(str(daemon.socket))
        each.send(b"BC")
    pod = namespaces.make("pod")
    config = daemon.config("bridge", ipam="host-local")
    assert daemon.call("ADD", config, pod=pod).status == 0
    for each in silent:
        each.close()
    assert daemon.call("DEL", config, pod=pod).status == 0


def test_an_add_whose_caller_has_gone_is_undone(
    daemon: cnidaemon.Daemon, namespaces: netns.Namespaces
) -> None:
    pod = namespaces.make("pod")
    config = daemon.config("bridge", isGateway=True, ipam="host-local")
    data = frame(config, CNI_NETNS=pod)
    with socket.socket(socket.AF_UNIX) as caller:
        caller.connect(str(daemon.socket))
        caller.sendall(data)
    assert daemon.process is not None
    said = ("Undoing an ADD", "A caller went")  # when it was done already, or not begun yet
    daemon.process.wait_ready_blocking(lambda: any(w in daemon.log() for w in said), "undoing")
    waiting.until_blocking(lambda: not daemon.addresses(), "release")
    waiting.until_blocking(lambda: cnidaemon.leftovers(daemon.host) == [], "removal")


def test_the_same_request_again_is_answered_by_the_same_result(
    daemon: cnidaemon.Daemon, namespaces: netns.Namespaces
) -> None:
    pod = namespaces.make("pod")
    config = daemon.config("bridge", ipam="host-local")
    data = frame(config, CNI_NETNS=pod)
    first, second = answer(daemon, data), answer(daemon, data)
    assert first == second
    assert first[0] == 0


@pytest.fixture
def deaf(short_dir: pathlib.Path) -> tuple[pathlib.Path, pathlib.Path]:
    """A shim for a socket at which a test listens itself; returns both paths."""
    path = short_dir / "s"
    install(Installation(short_dir / "bin", str(path), str(short_dir / "st"), ("bridge",)))
    return path, short_dir / "bin" / "bridge"


def listening(path: pathlib.Path) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()
    return listener


def test_a_broken_connection_is_tried_again_under_the_same_name(
    deaf: tuple[pathlib.Path, pathlib.Path],
) -> None:
    path, shim = deaf
    names: list[bytes] = []

    def serve(listener: socket.socket) -> None:
        for attempt in range(3):
            connection, _ = listener.accept()
            data = b""
            while len(data) < protocol.HEADER.size:
                data += connection.recv(1 << 16)
            names.append(data[8:24])
            if attempt == 1:
                connection.send(b"\xff\0\0")  # a part of an answer
            if attempt == 2:
                connection.send(protocol.answer(0, "{}"))
            connection.close()

    with listening(path) as listener:
        thread = threading.Thread(target=serve, args=(listener,))
        thread.start()
        outcome = cnidaemon.execute(shim, "ADD", CONFIG, pod="/x")
        thread.join(80)
    assert (outcome.status, outcome.stdout) == (0, "{}")
    assert len(set(names)) == 1
    assert len(names) == 3


def test_all_that_a_plugin_may_need_reaches_the_daemon(
    deaf: tuple[pathlib.Path, pathlib.Path],
) -> None:
    path, shim = deaf
    seen: list[Frame] = []

    def serve(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        data = connection.recv(1 << 16)
        while len(data) < protocol.HEADER.size + protocol.length(data[: protocol.HEADER.size]):
            data += connection.recv(1 << 16)
        seen.append(protocol.decode(data))
        connection.send(protocol.answer(7, "x" * 300_000))
        connection.close()

    environ = {"TRACEPARENT": "00-1-2-01", "SECRET": "hidden"}
    with listening(path) as listener:
        thread = threading.Thread(target=serve, args=(listener,))
        thread.start()
        outcome = cnidaemon.execute(
            shim, "ADD", json.dumps({"pad": "y" * 300_000}), pod="/x", environ=environ
        )
        thread.join(80)
    assert (outcome.status, len(outcome.stdout)) == (7, 300_000)
    assert seen[0].plugin == "bridge"
    assert seen[0].environment["TRACEPARENT"] == "00-1-2-01"
    assert "SECRET" not in seen[0].environment
    assert seen[0].environment["PATH"] == os.environ["PATH"]
    assert len(seen[0].stdin) > 300_000


def test_a_request_that_is_too_large_is_refused(deaf: tuple[pathlib.Path, pathlib.Path]) -> None:
    outcome = cnidaemon.execute(deaf[1], "ADD", "x" * (protocol.REQUEST_LIMIT + 10), pod="/x")
    assert outcome.document["code"] == 5


def test_an_intent_is_the_request_itself(deaf: tuple[pathlib.Path, pathlib.Path]) -> None:
    path, shim = deaf
    assert cnidaemon.execute(shim, "DEL", CONFIG, container="c7").status == 0
    (left,) = (path.parent / "st" / "intents").iterdir()
    assert stat.S_IMODE(left.stat().st_mode) == 0o600
    found = protocol.decode(left.read_bytes())
    assert found.nonce == left.name
    assert requests.read(found).invocation.container_id == "c7"
