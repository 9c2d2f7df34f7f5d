"""Lists of plugins run as runtimes run them, and the traffic that shows what they did."""

import contextlib
import socket
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from support import cnidaemon, waiting

TIMEOUT = waiting.patient(1.0)
"""Seconds after which nobody is taken to answer: everything is on this machine."""


def bridge(daemon: cnidaemon.Daemon, *, dual: bool = False, **keys: Any) -> dict[str, Any]:
    """Return the plugin that most lists begin with: a bridge that is the gateway."""
    ranges = [[{"subnet": "10.88.0.0/24"}], *([[{"subnet": "fd00:88::/64"}]] if dual else [])]
    ipam = {"type": "host-local", "dataDir": str(daemon.ipam), "ranges": ranges}
    return {"type": "bridge", "isDefaultGateway": True, "ipam": ipam, **keys}


class Chain:
    """A list of plugins; each is called through the shim, DEL in reverse."""

    def __init__(
        self, daemon: cnidaemon.Daemon, plugins: Sequence[Mapping[str, Any]], *,
        version: str = "1.1.0",
    ) -> None:  # fmt: skip
        self.daemon = daemon
        self.plugins = plugins
        self.version = version

    def document(self, plugin: Mapping[str, Any], previous: Any = None) -> dict[str, Any]:
        """Return what one plugin is handed."""
        found = {"cniVersion": self.version, "name": "tnet", **plugin}
        return found if previous is None else {**found, "prevResult": previous}

    def add(self, pod: str, **about: Any) -> Any:
        """Attach; returns the last result."""
        outcome = self.attempt("ADD", pod, **about)
        assert outcome.status == 0, outcome.stdout
        return outcome.document

    def attempt(
        self, command: str, pod: str, previous: Any = None, **about: Any
    ) -> cnidaemon.Outcome:
        """Run ADD or CHECK up to the first plugin that refuses."""
        outcome = cnidaemon.Outcome(0, "")
        for plugin in self.plugins:
            document = self.document(plugin, previous)
            outcome = self.daemon.call(command, document, pod=pod, **about)
            if outcome.status:
                return outcome
            previous = outcome.document if command == "ADD" else previous
        return outcome

    def check(self, pod: str, previous: Any, **about: Any) -> None:
        """Check what stands."""
        outcome = self.attempt("CHECK", pod, previous, **about)
        assert outcome.status == 0, outcome.stdout

    def remove(self, pod: str, previous: Any = None, **about: Any) -> list[str]:
        """Detach; returns what plugins complained about."""
        outcomes = [
            self.daemon.call("DEL", self.document(plugin, previous), pod=pod, **about)
            for plugin in reversed(self.plugins)
        ]
        return [each.stdout for each in outcomes if each.status]


def as_one(chain: Chain) -> dict[str, Any]:
    """Return the configuration that has a whole list carried out in one call."""
    document = {"cniVersion": chain.version, "name": "tnet", "type": "bitts"}
    offered: dict[str, object] = {}
    plugins = []
    for plugin in chain.plugins:
        runtime = plugin.get("runtimeConfig", {})
        offered |= runtime
        bare = {key: value for key, value in plugin.items() if key != "runtimeConfig"}
        plugins.append({**bare, "capabilities": dict.fromkeys(runtime, True)})
    return {**document, "plugins": plugins, "runtimeConfig": offered}


class Answering:
    """Answers everybody who asks on a port, of both families, until closed."""

    def __init__(self, port: int, word: bytes, *, datagrams: bool = False) -> None:
        kind = socket.SOCK_DGRAM if datagrams else socket.SOCK_STREAM
        self._socket = socket.socket(socket.AF_INET6, kind)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.bind(("::", port))
        if not datagrams:
            self._socket.listen()
        self._word = word
        self._is_closed = threading.Event()
        self._socket.settimeout(0.1)
        work = self._answer_datagrams if datagrams else self._answer_connections
        self._thread = threading.Thread(target=work)
        self._thread.start()

    def close(self) -> None:
        """Stop."""
        self._is_closed.set()
        self._thread.join(10)
        self._socket.close()

    def _answer_connections(self) -> None:
        while not self._is_closed.is_set():
            with contextlib.suppress(OSError):
                connection, _ = self._socket.accept()
                with connection:
                    connection.sendall(self._word)

    def _answer_datagrams(self) -> None:
        while not self._is_closed.is_set():
            with contextlib.suppress(OSError):
                _, sender = self._socket.recvfrom(100)
                self._socket.sendto(self._word, sender)


def ask(address: str, port: int) -> bytes:
    """Return what a server says, nothing when none is there."""
    try:
        with socket.create_connection((address, port), timeout=TIMEOUT) as connection:
            return connection.recv(1000)
    except OSError:
        return b""


def reaches(address: str) -> bool:
    """Say whether packets go to an address and back: its kernel refuses the connection."""
    try:
        with socket.create_connection((address, 9), timeout=TIMEOUT):
            return True
    except ConnectionRefusedError:
        return True
    except OSError:
        return False
