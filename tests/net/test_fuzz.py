"""A sample of malformed requests: each gets a well-formed error, and memory stays flat.

``BITTS_FUZZ`` is how many; the soak run sends a million.
"""

import json
import os
import random
import socket
import struct

import pytest
from bitts.cni.environment import Command
from cni_daemon import protocol
from support import cnidaemon

pytestmark = pytest.mark.root

COUNT = int(os.environ.get("BITTS_FUZZ", "2000"))
GROWTH = 12.0
"""Megabytes that memory may grow by: caches fill, threads start."""

VALUES = ["", "x", "../..", "a" * 300, "eth0", "/run/netns/none", "\u2028", "0", "-1", "{}", "null"]
PIECES: list[object] = [
    None, True, 0, -1, 1e300, 2**70, "", "bridge", "host-local", "1.0.0", "1.1.0", [], {}, [[]],
    [{}], {"type": "host-local"}, {"type": "static", "addresses": [{}]}, "10.0.0.0/8", "::1/0",
    [[{"subnet": "10.0.0.0/24", "rangeStart": "x"}]], {"ips": [{"address": "1"}]}, "\x00",
]  # fmt: skip
KEYS = [
    "cniVersion", "name", "type", "ipam", "prevResult", "bridge", "mtu", "vlan", "vlanTrunk",
    "args", "ranges", "subnet", "addresses", "plugins", "capabilities", "dns", "routes",
    "runtimeConfig", "cni.dev/valid-attachments", "isGateway", "hairpinMode", "NAME",
]  # fmt: skip


def document(drawn: random.Random) -> bytes:
    """Return a configuration that is wrong in some place, or no JSON at all."""
    made: dict[str, object] = {"cniVersion": "1.1.0", "name": "fuzz", "type": "bridge"}
    for _ in range(drawn.randrange(5)):
        made[drawn.choice(KEYS)] = drawn.choice(PIECES)
    if drawn.random() < 0.3:
        made["ipam"] = {drawn.choice(KEYS): drawn.choice(PIECES) for _ in range(3)}
    text = json.dumps(made).encode()
    if drawn.random() < 0.2:
        cut = drawn.randrange(len(text))
        text = text[:cut] + drawn.randbytes(drawn.randrange(4)) + text[cut + 1 :]
    return text


def request(drawn: random.Random) -> bytes:
    """Return a request that must be refused, or carried out without touching anything."""
    if drawn.random() < 0.1:
        return drawn.randbytes(drawn.randrange(24, 200))
    environ = {
        "CNI_COMMAND": drawn.choice([*Command, "x", ""]),
        "CNI_CONTAINERID": drawn.choice(["c1", *VALUES]),
        "CNI_NETNS": drawn.choice(["/run/netns/none", "/etc/passwd", "", "\udcff", "/"]),
        "CNI_IFNAME": drawn.choice(["eth0", *VALUES]),
        "CNI_PATH": drawn.choice(["/none", "", ":::"]),
        "CNI_ARGS": drawn.choice(["", "IP=1", "a=b;c", "IgnoreUnknown=1;X=\u00e9", ";;"]),
    }
    plugin = drawn.choice(
        ["bridge", "ptp", "loopback", "host-local", "static", "bitts", "x", "../y"]
    )
    frame = protocol.encode(protocol.Frame("00" * 16, plugin, environ, document(drawn)))
    if drawn.random() < 0.1:
        at = drawn.randrange(protocol.HEADER.size, len(frame))
        frame = frame[:at] + bytes([drawn.randrange(256)]) + frame[at + 1 :]
    return frame


def ask(path: str, data: bytes) -> tuple[int, str]:
    """Send one request and return its answer."""
    with socket.socket(socket.AF_UNIX) as caller:
        caller.settimeout(30)
        caller.connect(path)
        caller.sendall(data)
        caller.shutdown(socket.SHUT_WR)  # a frame that announces more than it has ends here
        received = b""
        while chunk := caller.recv(1 << 16):
            received += chunk
    if not received:
        return -1, ""
    size, status = struct.unpack_from("<IB", received)
    assert len(received) == 5 + size
    return status, received[5:].decode()


def resident(pid: int) -> float:
    """Return resident memory in megabytes."""
    with open(f"/proc/{pid}/status", encoding="ascii") as status:
        line = next(each for each in status if each.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


def test_malformed_requests_get_errors_and_cost_no_memory(daemon: cnidaemon.Daemon) -> None:
    assert daemon.process is not None
    drawn = random.Random(int(os.environ.get("BITTS_SEED", "1")))
    refused = 0
    before = 0.0
    for number in range(COUNT):
        status, text = ask(str(daemon.socket), request(drawn))
        if status == 1:
            found = json.loads(text)
            assert isinstance(found["code"], int)
            assert found["msg"], found
            assert "Unexpected" not in found["msg"]
            refused += 1
        elif status == 0 and text:
            json.loads(text)
        if number == COUNT // 4:
            before = resident(daemon.process.pid)
    assert refused > COUNT // 2
    assert resident(daemon.process.pid) - before < GROWTH
    assert [line for line in daemon.log().splitlines() if "Unexpected failure" in line] == []
    assert cnidaemon.leftovers(daemon.host) == []
