"""DHCP servers of a test's own: dnsmasq as the judge, and one whose every answer is scripted."""

import contextlib
import pathlib
import socket
import threading
from collections.abc import Callable, Mapping

from cni_daemon.dhcp import packets
from cni_daemon.dhcp.packets import IPv4, Kind, Option, Packet

from support import netns, processes, waiting


class Dnsmasq:
    """dnsmasq on a link of a namespace, giving 10.77.0.100 to 10.77.0.120."""

    def __init__(
        self, spawner: processes.Processes, host: str, link: str, folder: pathlib.Path, *flags: str
    ) -> None:
        self._spawner = spawner
        self._command = [
            "/usr/bin/nsenter", f"--net={host}", "--", "/usr/sbin/dnsmasq", "--no-daemon",
            "--conf-file=/dev/null", "--port=0", f"--interface={link}", "--bind-interfaces",
            "--user=root", "--log-dhcp", "--no-ping", f"--pid-file={folder}/dnsmasq.pid",
            "--dhcp-range=10.77.0.100,10.77.0.120,255.255.255.0,2m", "--dhcp-authoritative",
            f"--dhcp-leasefile={folder}/leases", *flags,
        ]  # fmt: skip
        self._leases = folder / "leases"
        self.process: processes.Process | None = None

    def start(self) -> None:
        """Start, and wait until it serves."""
        self.process = self._spawner.spawn(self._command, name="dnsmasq")
        self.process.wait_ready_blocking(lambda: "IP range" in self.log(), "DHCP served")

    def stop(self) -> None:
        """End it."""
        process = self.process
        assert process is not None
        process.kill()
        waiting.until_blocking(lambda: not process.alive, "end of dnsmasq")

    def log(self) -> str:
        """Return what the present process wrote."""
        return "" if self.process is None else self.process.output()

    def count(self, message: str) -> int:
        """Return how many messages of a kind were seen."""
        return sum(f" {message}(" in line for line in self.log().splitlines())

    def forget(self) -> None:
        """Forget all leases, while it does not run."""
        self._leases.unlink()

    @property
    def leases(self) -> list[str]:
        """The addresses that are given, as dnsmasq has them on disk."""
        if not self._leases.exists():
            return []
        return [line.split()[2] for line in self._leases.read_text().splitlines()]


Answer = Callable[[Packet], Packet | None]


class Scripted:
    """Answers what a function says, on a link of a namespace. Ends with ``close``."""

    def __init__(self, host: str, link: str, address: str) -> None:
        self.answer: Answer = lambda packet: usual(packet, address)
        self.seen: list[Kind] = []
        self._socket = netns.inside(host, lambda: _opened(link))
        self._socket.settimeout(0.1)
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="scripted dhcp")
        self._thread.start()

    def close(self) -> None:
        """End it."""
        self._ends.set()
        self._thread.join(waiting.patient(10))
        self._socket.close()

    def _serve(self) -> None:
        while not self._ends.is_set():
            try:
                data, (source, _) = self._socket.recvfrom(4096)
            except TimeoutError:
                continue
            asked = packets.decode(data)
            self.seen.append(asked.kind)
            reply = self.answer(asked)
            if reply is not None:
                target = source if source != "0.0.0.0" else "255.255.255.255"
                with contextlib.suppress(OSError):
                    self._socket.sendto(packets.encode(reply), (target, packets.CLIENT_PORT))


def usual(
    asked: Packet, server: str, *, gives: str = "10.77.0.50", seconds: int = 120,
    options: Mapping[int, bytes] | None = None, refuses: bool = False,
) -> Packet | None:  # fmt: skip
    """Return what a server answers; None to a RELEASE."""
    kinds = {Kind.DISCOVER: Kind.OFFER, Kind.REQUEST: Kind.NAK if refuses else Kind.ACK}
    kind = kinds.get(asked.kind)
    if kind is None:
        return None
    given: dict[int, bytes] = {
        Option.SERVER: IPv4(server).packed,
        Option.LEASE_TIME: seconds.to_bytes(4, "big"),
        Option.SUBNET_MASK: IPv4("255.255.255.0").packed,
        **(options or {}),
    }
    yours = IPv4(0) if kind is Kind.NAK else IPv4(gives)
    return Packet(kind, asked.transaction, asked.mac, given, yours=yours, is_reply=True)


def _opened(link: str) -> socket.socket:
    opened = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, link.encode())
    opened.bind(("", packets.SERVER_PORT))
    return opened
