"""A sample of malformed requests: each gets a well-formed error, and memory stays flat.

``BITTS_FUZZ`` is how many; the soak run sends a million. One in ten goes to a real container.
"""

import json
import os
import random
import socket
import struct
from typing import Any

import pytest
from cni_daemon import protocol
from support import cnidaemon, cnifuzz, cnilinks, netns

pytestmark = pytest.mark.root

COUNT = int(os.environ.get("BITTS_FUZZ", "2000"))
SEED = int(os.environ.get("BITTS_SEED", "1"))
MOST = 10_000
"""Requests that go to a real container at most: each costs the kernel some 20 ms."""

GROWTH = 12.0
"""Megabytes that memory may grow by: caches fill, threads start."""


def ask(path: str, data: bytes) -> tuple[int, str]:
    """Send one request and return its answer."""
    with socket.socket(socket.AF_UNIX) as caller:
        caller.settimeout(120)
        caller.connect(path)
        caller.sendall(data)
        if not is_whole(data):  # it may announce more than it has; else: a caller who has gone
            caller.shutdown(socket.SHUT_WR)
        received = b""
        while chunk := caller.recv(1 << 16):
            received += chunk
    if not received:
        return -1, ""
    size, status = struct.unpack_from("<IB", received)
    assert len(received) == 5 + size
    return status, received[5:].decode()


def is_whole(data: bytes) -> bool:
    """Say whether bytes are one frame."""
    try:
        protocol.decode(data)
    except protocol.FrameError:
        return False
    return True


def checked(status: int, text: str, about: object = "") -> Any:
    """Return an answer's document, which must be a well-formed result or error."""
    found: Any = json.loads(text) if text else None
    if status == 1:
        assert isinstance(found["code"], int), (found, about)
        assert found["msg"], (found, about)
        assert "internal error" not in found["msg"], (found, about)
    return found


def resident(pid: int) -> float:
    """Return resident memory in megabytes."""
    with open(f"/proc/{pid}/status", encoding="ascii") as status:
        line = next(each for each in status if each.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


def unexpected(daemon: cnidaemon.Daemon) -> list[str]:
    """Return what the daemon logged that it should have told its callers in words."""
    words = ("Unexpected failure", "internal error", "Traceback")
    return [line for line in daemon.log().splitlines() if any(word in line for word in words)]


def test_malformed_requests_get_errors_and_cost_no_memory(daemon: cnidaemon.Daemon) -> None:
    assert daemon.process is not None
    drawn = random.Random(SEED)
    refused = 0
    before = 0.0
    for number in range(COUNT):
        data = cnifuzz.request(drawn)
        status, text = ask(str(daemon.socket), data)
        checked(status, text, data)
        refused += status == 1
        if number == COUNT // 4:
            before = resident(daemon.process.pid)
    assert refused > COUNT // 2
    assert resident(daemon.process.pid) - before < GROWTH
    assert unexpected(daemon) == []
    assert cnidaemon.leftovers(daemon.host) == []


class Live:
    """A container beside a node with links to share, attached and detached as configured."""

    def __init__(self, daemon: cnidaemon.Daemon, pod: str, drawn: random.Random) -> None:
        self._daemon = daemon
        self._pod = pod
        self._drawn = drawn
        self.attached: set[str] = set()

    def call(self, command: str, config: dict[str, Any], number: int) -> tuple[int, Any]:
        """Send one request about the container."""
        ifname = "eth0" if config["type"] in cnifuzz.CHAINED else "net1"
        environ = {
            "CNI_COMMAND": command, "CNI_CONTAINERID": f"c{number}", "CNI_NETNS": self._pod,
            "CNI_IFNAME": ifname, "CNI_PATH": "/none", "CNI_ARGS": "",
        }  # fmt: skip
        nonce = self._drawn.randbytes(16).hex()
        frame = protocol.Frame(nonce, config["type"], environ, json.dumps(config).encode())
        status, text = ask(str(self._daemon.socket), protocol.encode(frame))
        return status, checked(status, text, config)

    def attempt(self, number: int) -> None:
        """Attach as some configuration says; what comes of it is looked at, and goes again."""
        config = cnifuzz.live(self._drawn, self._pod, str(self._daemon.ipam))
        status, found = self.call("ADD", config, number)
        if status == 0:
            self.attached.add(config["type"])
            self.call("CHECK", {**config, "prevResult": found}, number)
        gone, found = self.call("DEL", config, number)
        assert gone == 0 or status, (found, config)  # what was attached can be detached


def seen(daemon: cnidaemon.Daemon, pod: str) -> Any:
    """Return what must be as before; bridges stay, and nobody's fuzz is on them."""
    return [
        {name: (link.get("ifalias"), link["address"], link.get("master"))
         for name, link in netns.links(each).items()
         if link.get("linkinfo", {}).get("info_kind") != "bridge" and name != "eth0"}
        for each in (daemon.host, pod)
    ]  # fmt: skip


def test_what_is_carried_out_in_a_real_container_goes_again(
    daemon: cnidaemon.Daemon, namespaces: netns.Namespaces
) -> None:
    pod = namespaces.make("pod")
    cnilinks.prepare(daemon.host, pod)
    netns.run(pod, "ip", "link", "add", "eth0", "type", "veth", "peer", "name", "eth1")
    netns.run(pod, "ip", "addr", "add", "10.66.0.2/24", "dev", "eth0")
    before = seen(daemon, pod)
    live = Live(daemon, pod, random.Random(SEED))
    for number in range(min(COUNT // 10, MOST)):
        live.attempt(number)
    assert {"bridge", "ptp", "tap", "loopback", "tuning", "sbr"} <= live.attached
    assert unexpected(daemon) == []
    assert daemon.call("GC", {**daemon.config("bridge", name="fuzz"),
                              "cni.dev/valid-attachments": []}).status == 0  # fmt: skip
    assert seen(daemon, pod) == before
    assert not any("10.77" in each or "fd77" in each for each in cnidaemon.leftovers(daemon.host))
