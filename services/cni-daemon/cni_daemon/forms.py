"""Which ADDs look alike (pure): the same request but for its container, and its host's ports.

A form is compared byte by byte, so nothing need be parsed to find that it is known. What is not
plain (a MAC or an IP address wished for, a namespace with an odd name) has no form and goes the
long way, on which every check is made; so does the first request of each form.
"""

import re
from dataclasses import dataclass

from bitts.cni.environment import Command

from cni_daemon.protocol import Frame

_SIZE = 16384
"""Bytes of a configuration that is worth remembering."""

_PORTS = 16
_PORT_LIMIT = 1 << 16
_PORT = re.compile(rb'("hostPort"\s*:\s*)([1-9][0-9]{0,4})(?=\s*[,}])')
_HAS_PORTS = b'"hostPort"'
_OVERRIDE = "CNI_NETNS_OVERRIDE"
_CONTAINER = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_.\-]{3,127}")
"""Shorter ones stand in other words too: whatever is cut out for them would be cut there."""

_NETNS = re.compile(r"/[a-zA-Z0-9_.\-/]{1,255}")
_ARGS = re.compile(r"IgnoreUnknown=(?:1|true)(?:;(?!MAC=|IP=|IgnoreUnknown=)[^;=]+=[^;=]*)*")
"""Arguments of which no plugin asks anything; runtimes send the pod's name in them."""


@dataclass(frozen=True, slots=True)
class Form:
    """What requests have in common; ``pieces`` is the configuration without its ports."""

    plugin: str
    ifname: str
    container_size: int
    pieces: tuple[bytes, ...]

    def frame(self, container_id: str, netns: str, nonce: str, ports: tuple[int, ...]) -> Frame:
        """Return a request of this form."""
        variables = {
            "CNI_COMMAND": Command.ADD.value, "CNI_CONTAINERID": container_id,
            "CNI_NETNS": netns, "CNI_IFNAME": self.ifname, "CNI_PATH": "/",
        }  # fmt: skip
        stdin = self.pieces[0]
        for port, piece in zip(ports, self.pieces[1:], strict=True):
            stdin += str(port).encode() + piece
        return Frame(nonce, self.plugin, variables, stdin)


@dataclass(frozen=True, slots=True)
class Order:
    """One request of a form, with what is its own."""

    form: Form
    container_id: str
    netns: str
    nonce: str
    ports: tuple[int, ...] = ()


def read(frame: Frame) -> Order | None:
    """Return a request as one of a form, None where it has none."""
    about, stdin = frame.environment, frame.stdin
    if about.get("CNI_COMMAND") != "ADD" or len(stdin) > _SIZE or _OVERRIDE in about:
        return None
    container_id, netns = about.get("CNI_CONTAINERID", ""), about.get("CNI_NETNS", "")
    if _CONTAINER.fullmatch(container_id) is None or _NETNS.fullmatch(netns) is None:
        return None
    args = about.get("CNI_ARGS", "")
    if (args and _ARGS.fullmatch(args) is None) or not about.get("CNI_PATH"):
        return None
    pieces, ports = _without_ports(stdin) if _HAS_PORTS in stdin else ((stdin,), ())
    if len(ports) > _PORTS or len({*ports}) < len(ports) or any(p >= _PORT_LIMIT for p in ports):
        return None
    form = Form(frame.plugin, about.get("CNI_IFNAME", ""), len(container_id), pieces)
    return Order(form, container_id, netns, frame.nonce, ports)


def _without_ports(stdin: bytes) -> tuple[tuple[bytes, ...], tuple[int, ...]]:
    """Return what stands around the ports, and the ports.

    A number after a key stands outside of all strings, whatever else the text is.
    """
    *parts, last = _PORT.split(stdin)
    around = [before + key for before, key in zip(parts[::3], parts[1::3], strict=True)]
    return (*around, last), tuple(map(int, parts[2::3]))
