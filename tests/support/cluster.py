"""What a service test works with: an API server, and drivers and sidecars as processes.

One API server is shared by the whole run. Each test gets a namespace and a driver name of
its own, so tests neither see nor disturb each other; everything that a test started is
stopped, and its folder unmounted and removed, when it ends.
"""

import asyncio
import contextlib
import itertools
import pathlib
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import aiohttp
from bitts.kube import client as clients
from bitts.kube import config

from support import audit, leaks, processes, servers, waiting
from support.audit import Requests as Requests

SOCKET_PATH_LIMIT = 107
_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Driver:
    """A running local-driver."""

    name: str
    node_id: str
    socket: pathlib.Path
    state_dir: pathlib.Path
    process: processes.Process

    @property
    def address(self) -> str:
        """The endpoint as ``--csi-address`` takes it."""
        return f"unix://{self.socket}"


@dataclass(frozen=True, slots=True)
class Node:
    """A running node agent, with the kubelet's folders below ``root_dir``.

    On a full Kubernetes it is one of the cluster's nodes, ``process`` that of the cluster, and
    ``enter`` what a command is put behind to run inside.
    """

    name: str
    root_dir: pathlib.Path
    process: processes.Process
    enter: tuple[str, ...] = ()


OWN_MAPS = "metadata.name!=kube-root-ca.crt"
"""Field selector of ConfigMaps that the cluster did not put into every namespace by itself."""


def short_directory() -> pathlib.Path:
    """Return a new folder whose path leaves room for unix sockets (107 bytes at most)."""
    prefix = pathlib.PurePath(leaks.SHORT_PREFIX)
    return pathlib.Path(tempfile.mkdtemp(prefix=prefix.name, dir=prefix.parent))


def flags(options: Mapping[str, object]) -> list[str]:
    """Turn ``node_id="a", fault=["x", "y"]`` into ``--node-id=a --fault=x --fault=y``."""
    words = []
    for name, value in options.items():
        for one in value if isinstance(value, list | tuple) else [value]:
            text = str(one).lower() if isinstance(one, bool) else str(one)
            words.append(f"--{name.replace('_', '-')}={text}")
    return words


class Cluster:
    """One test's view of the cluster; use it as an async context manager."""

    def __init__(self, server: servers.Server, spawner: processes.Processes) -> None:
        number = next(_numbers)
        self.server = server
        self.processes = spawner
        self.namespace = f"test-{number}"
        self.driver_name = f"t{number}.local.csi.bitts.dev"
        self.directory = short_directory()
        self._stack = contextlib.AsyncExitStack()
        self._session: aiohttp.ClientSession | None = None
        self._client: clients.Client | None = None
        self._machines = list(server.access.machines)
        self._installed: list[pathlib.Path] = []
        path = server.access.audit
        self._audit = audit.AuditLog(path) if path else None

    async def __aenter__(self) -> "Cluster":
        self._session = await self._stack.enter_async_context(self.server.session())
        body = {"metadata": {"name": self.namespace}}
        await self.request("POST", "/api/v1/namespaces", body)
        base = f"/api/v1/namespaces/{self.namespace}"
        # A full Kubernetes refuses pods until then, and watches would see them come.
        for given in ("serviceaccounts/default", "configmaps/kube-root-ca.crt"):
            await self.wait_for(f"{base}/{given}", bool, f"{given} of the namespace", 30)
        return self

    async def __aexit__(self, *_: object) -> None:
        with contextlib.suppress(aiohttp.ClientError, OSError, servers.RefusedError):
            await self.clear_faults()
            await self.request("DELETE", f"/api/v1/namespaces/{self.namespace}")
        await self._stack.aclose()
        self.processes.close()
        for folder in [*self._installed, self.directory]:
            remove_tree(folder)

    @property
    def kubeconfig(self) -> pathlib.Path:
        """Path of the kubeconfig with all rights."""
        return self.server.access.kubeconfig

    async def client(self, *, user_agent: str = servers.USER_AGENT) -> clients.Client:
        """Return this test's ``bitts.kube`` client, connected on first use."""
        if self._client is None:
            resolved = await config.load(str(self.kubeconfig))
            connecting = clients.Client.connect(resolved, user_agent=user_agent)
            self._client = await self._stack.enter_async_context(connecting)
        return self._client

    async def request(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        content_type: str = "application/json",
    ) -> Any:
        """Make a plain HTTP request with all rights and return the decoded answer."""
        assert self._session is not None, "enter the cluster first"
        return await servers.call(self._session, method, path, body, content_type=content_type)

    async def kubectl(self, *words: str, timeout: float = 60.0) -> str:
        """Run the machine's kubectl in this test's namespace and return its output."""
        command = ["kubectl", "--kubeconfig", str(self.kubeconfig), "-n", self.namespace, *words]
        return await processes.run(command, timeout=timeout)

    async def wait_for(
        self, path: str, check: Callable[[Any], object], what: str, timeout: float = 15.0
    ) -> Any:
        """Read ``path`` until ``check`` accepts the object; a missing one is passed as None."""

        async def seen() -> tuple[Any] | None:
            try:
                found = await self.request("GET", path)
            except servers.RefusedError as error:
                if error.status not in (404, 429):  # not there, or not served yet
                    raise
                found = None
            return (found,) if check(found) else None

        return (await waiting.until(seen, what, timeout))[0]

    async def faults(self, *, match: Mapping[str, str], action: str, **more: object) -> None:
        """Make matching requests fail from now on (``action``: status, delay, drop, drop_after).

        ``match`` may name verb, resource (``storageclasses.storage.k8s.io``, with a slash and
        the subresource where there is one) and userAgent; ``more``: code, retryAfter, delay,
        times, as the admin endpoint takes them. Removed when the test ends. The embedded cluster
        only: mark tests that ask for it ``embedded``.
        """
        await self.request("POST", "/-/faults", {"match": match, "action": action, **more})

    async def clear_faults(self) -> None:
        """Let every request through again."""
        if self.server.kind == "embedded":
            await self.request("DELETE", "/-/faults")

    async def drop_watches(self) -> None:
        """Cut every open watch stream."""
        await self.request("POST", "/-/watches/drop")

    async def expire_history(self) -> None:
        """Forget the event history, so that resuming a watch answers 410 Gone."""
        await self.request("POST", "/-/history/expire")

    async def requests(self, user_agent: str = "") -> list[Requests]:
        """Return the request counters, of user agents that contain the given text.

        A full Kubernetes counts requests that write only, from its audit log.
        """
        if self._audit is not None:
            await self._fence(self._audit)
            rows = await asyncio.to_thread(self._audit.counters)
            return [row for row in rows if user_agent in row.user_agent]
        return self._requests(await self.request("GET", "/-/requests"), user_agent)

    async def _fence(self, log: audit.AuditLog) -> None:
        """Make a write without effect, and wait until the log has it, and so all before it."""
        name = f"fence-{next(_numbers)}"
        path = f"/api/v1/namespaces/{self.namespace}/configmaps"
        await self.request("POST", f"{path}?dryRun=All", {"metadata": {"name": name}})

        async def logged() -> bool:
            return await asyncio.to_thread(log.has, name)

        await waiting.until(logged, "the audit log")

    def _requests(self, rows: list[dict[str, Any]], user_agent: str) -> list[Requests]:
        return [
            Requests(
                user_agent=row["userAgent"],
                verb=row["verb"],
                resource=row["resource"],
                subresource=row.get("subresource", ""),
                code=int(row["code"]),
                count=int(row["count"]),
            )
            for row in rows
            if user_agent in row["userAgent"]
        ]

    async def clear_requests(self) -> None:
        """Start counting requests anew."""
        if self._audit is not None:
            await self._fence(self._audit)
            await asyncio.to_thread(self._audit.clear)
        else:
            await self.request("DELETE", "/-/requests")

    async def start_driver(
        self, *words: str, node: Node | None = None, name: str = "", **options: object
    ) -> Driver:
        """Start local-driver and wait for its socket; ``options`` become flags.

        With ``node`` it is installed there as a kubelet plugin and registers itself.
        """
        name = name or self.driver_name
        home = node.root_dir / "plugins" / name if node else self.directory / f"d{next(_numbers)}"
        home.mkdir(parents=True, exist_ok=True)
        path = socket_path(home / "csi.sock")
        state_dir = pathlib.Path(str(options.pop("state_dir", home / "state")))
        given: dict[str, object] = {
            "endpoint": f"unix://{path}",
            "driver_name": name,
            "node_id": node.name if node else "node-1",
            "state_dir": state_dir,
            **({"registration_dir": node.root_dir / "plugins_registry"} if node else {}),
            **options,
        }
        path.unlink(missing_ok=True)
        command = ["local-driver", *flags(given), *words]
        if node and node.enter:
            self._installed.append(home)
            command = [*node.enter, processes.script(command[0]), *command[1:]]
        process = self.processes.spawn(command, name="local-driver")
        await process.wait_ready(lambda: accepts(path), f"socket {path}")
        return Driver(name, str(given["node_id"]), path, state_dir, process)

    async def start_node(self, name: str = "", *words: str) -> Node:
        """Start a node agent and wait until it says it is ready.

        On a full Kubernetes, hand out one of its nodes, whatever it is called.
        """
        if self.server.kind == "kubernetes":
            assert self._machines, "the cluster has no more nodes (none at all without root)"
            machine = self._machines.pop(0)
            return Node(machine.name, machine.root, self.server.process, machine.enter)
        name = name or f"{self.namespace}-node-{next(_numbers)}"
        root = self.directory / f"n{next(_numbers)}"
        root.mkdir(parents=True)
        ready = root / "ready"
        options = {"name": name, "kubeconfig": self.kubeconfig, "root_dir": root}
        command = ["devcluster-node", *flags(options), f"--ready-file={ready}", *words]
        process = self.processes.spawn(command, name=f"node-{name}")
        await process.wait_ready(ready.exists, f"ready file of node {name}")
        return Node(name, root, process)

    async def start_provisioner(
        self, driver: Driver | pathlib.Path, *words: str, environ: Mapping[str, str] | None = None
    ) -> processes.Process:
        """Start csi-provisioner on a driver (or a proxy's socket); does not wait for anything."""
        address = driver.socket if isinstance(driver, Driver) else driver
        command = ["csi-provisioner", f"--csi-address={address}", f"--kubeconfig={self.kubeconfig}"]
        return self.processes.spawn([*command, *words], environ=environ)


Factory = Callable[..., Awaitable[Cluster]]
"""Type of the ``cluster_factory`` fixture."""


def socket_path(path: pathlib.Path) -> pathlib.Path:
    """Return the path, or say that it is too long for a unix socket."""
    assert len(str(path).encode()) <= SOCKET_PATH_LIMIT, f"too long for a socket: {path}"
    return path


def accepts(path: pathlib.Path) -> bool:
    """Whether somebody listens on a unix socket."""
    if not path.is_socket():
        return False
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(1)
        return probe.connect_ex(str(path)) == 0


def remove_tree(folder: pathlib.Path) -> None:
    """Unmount and detach whatever a killed process left below a folder, then remove it."""
    inside = [line.split(" (")[0] for line in leaks.mounts() if f"{folder}/" in line]
    for target in sorted(inside, key=len, reverse=True):
        _quietly(["umount", "--lazy", target])
    for line in leaks.loop_devices():
        device, _, backing = line.partition(" ")
        if backing.startswith(f"{folder}/"):
            _quietly(["losetup", "--detach", f"/dev/{device}"])
    shutil.rmtree(folder, ignore_errors=True)


def _quietly(command: Sequence[str]) -> None:
    subprocess.run(command, check=False, capture_output=True, timeout=waiting.patient(20))
