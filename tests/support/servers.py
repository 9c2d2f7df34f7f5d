"""The API server that service tests run against, as a process of its own.

Two kinds are meant to be interchangeable: the embedded one (``devcluster``) and a full
Kubernetes. Whatever a test needs to know of either comes from ``ready.json``.
"""

import contextlib
import json
import pathlib
import shutil
import signal
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import aiohttp

from support import processes, waiting

USER_AGENT = "bitts-tests"


class RefusedError(AssertionError):
    """The API server refused a request of the test itself; ``status`` is the HTTP code."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"HTTP {status}: {text}")
        self.status = status


STOP_TIMEOUT = 30.0
READY_TIMEOUT = {"embedded": 20.0, "kubernetes": 120.0}


@dataclass(frozen=True, slots=True)
class Machine:
    """A node of a full Kubernetes: what a command is put behind to run inside, and its folder.

    ``pid`` holds the node's namespaces: killing it is what pulling the plug is elsewhere.
    """

    name: str
    root: pathlib.Path
    pid: int
    enter: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Access:
    """How to reach a running API server. ``audit`` and ``machines`` only full Kubernetes has."""

    url: str
    kubeconfig: pathlib.Path
    ca: pathlib.Path
    token: str
    port: int
    audit: pathlib.Path | None = None
    machines: tuple[Machine, ...] = ()


class Server:
    """One API server process with its folder; it can be killed and started again."""

    def __init__(
        self,
        spawner: processes.Processes,
        directory: pathlib.Path,
        *,
        kind: str = "embedded",
        store: str = "memory",
        nodes: int = 0,
        network: str = "",
    ) -> None:
        self.directory = directory
        self.kind = kind
        self._spawner = spawner
        self._store = store
        self._nodes = nodes
        self._network = [f"--pod-network={network}"] if network else []
        self._port = 0
        self._process: processes.Process | None = None
        self._access: Access | None = None

    @property
    def process(self) -> processes.Process:
        """The running process."""
        assert self._process is not None, "the API server was not started"
        return self._process

    @property
    def access(self) -> Access:
        """URL, certificate and token of the running server."""
        assert self._access is not None, "the API server was not started"
        return self._access

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return self._process is not None and self._process.alive

    def start_blocking(self) -> None:
        """Start it and wait until it is ready; for session fixtures, outside a loop."""
        self._spawn()
        limit = READY_TIMEOUT[self.kind]
        self.process.wait_ready_blocking(self._ready, "ready.json of this process", limit)
        self._access = self._read_access()

    async def start(self) -> None:
        """Start it and wait until it is ready; again on the same port after a crash."""
        self._spawn()
        limit = READY_TIMEOUT[self.kind]
        await self.process.wait_ready(self._ready, "ready.json of this process", limit)
        self._access = self._read_access()

    def stop_blocking(self) -> None:
        """End it in its own time, which on a busy machine is more than a test's processes get.

        A cluster that is killed instead leaves its cgroups.
        """
        if self.alive:
            self.process.send_signal(signal.SIGTERM)
            with contextlib.suppress(waiting.DeadlineError):
                waiting.until_blocking(lambda: not self.alive, "end of the server", STOP_TIMEOUT)

    def _spawn(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        (self.directory / "ready.json").unlink(missing_ok=True)
        command = ["devcluster", "--dir", str(self.directory), "--kind", self.kind]
        command += ["--store", self._store, "--port", str(self._port)]
        command += ["--nodes", str(self._nodes), *self._network]
        self._process = self._spawner.spawn(command)

    def _ready(self) -> bool:
        path = self.directory / "ready.json"
        return path.exists() and json.loads(path.read_text())["pid"] == self.process.pid

    def _read_access(self) -> Access:
        ready = self.read_ready()
        self._port = urlsplit(ready["server"]).port or 0
        return Access(
            url=ready["server"],
            kubeconfig=pathlib.Path(ready["kubeconfig"]),
            ca=self.directory / "ca.crt",
            token=(self.directory / "token").read_text().strip(),
            port=self._port,
            audit=pathlib.Path(ready["audit"]) if "audit" in ready else None,
            machines=tuple(
                Machine(name, pathlib.Path(one["root"]), one["pid"], _absolute(one["enter"]))
                for name, one in ready.get("nodes", {}).items()
            ),
        )

    def read_ready(self) -> dict[str, Any]:
        """Return what ready.json says now; it changes when a node was started again."""
        found: dict[str, Any] = json.loads((self.directory / "ready.json").read_text())
        return found

    def refresh(self) -> None:
        """Read ready.json anew."""
        self._access = self._read_access()

    def session(self) -> aiohttp.ClientSession:
        """Return an HTTP session with the server's certificate and token; the caller closes it."""
        connector = aiohttp.TCPConnector(ssl=ssl.create_default_context(cafile=self.access.ca))
        headers = {"Authorization": f"Bearer {self.access.token}", "User-Agent": USER_AGENT}
        return aiohttp.ClientSession(
            self.access.url,
            connector=connector,
            headers=headers,
            timeout=aiohttp.ClientTimeout(total=waiting.patient(20)),
        )


def _absolute(command: Sequence[str]) -> tuple[str, ...]:
    """Name the program of a command by its path, as ``processes.spawn`` wants those of others."""
    return (shutil.which(command[0]) or command[0], *command[1:])


async def call(
    session: aiohttp.ClientSession,
    method: str,
    path: str,
    body: Mapping[str, Any] | None = None,
    *,
    content_type: str = "application/json",
) -> Any:
    """Make one plain HTTP request and return the decoded answer; RefusedError from 400 on.

    This path shares no code with ``bitts.kube``, so a test of ours is not checked by itself.
    """
    data = None if body is None else json.dumps(body).encode()
    headers = {} if body is None else {"Content-Type": content_type}
    async with session.request(method, path, data=data, headers=headers) as answer:
        text = await answer.text()
        if answer.status >= 400:
            raise RefusedError(answer.status, text)
        return json.loads(text) if text else None
