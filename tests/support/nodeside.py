"""A node with its driver and the helpers beside it, all as real processes."""

import contextlib
import pathlib
from dataclasses import dataclass
from typing import Any

import aiohttp

from support import cluster as clusters
from support import nodeagent, ports, processes, waiting


async def ask(port: int, path: str = "/healthz", *, timeout: float = 20.0) -> tuple[int, str]:
    """Make an HTTP request as a kubelet would; status 0 stands for "nobody listens"."""
    limit = aiohttp.ClientTimeout(waiting.patient(timeout))
    try:
        async with (
            aiohttp.ClientSession(timeout=limit) as session,
            session.get(f"http://127.0.0.1:{port}{path}", headers={"Connection": "close"}) as reply,
        ):
            return reply.status, await reply.text()
    except aiohttp.ClientConnectorError as error:
        return 0, str(error)


async def until_status(port: int, path: str, status: int) -> str:
    """Wait for an HTTP status and return the text that came with it."""

    async def seen() -> tuple[str] | None:
        found, text = await ask(port, path)
        return (text,) if found == status else None

    return (await waiting.until(seen, f"{path} answers {status}"))[0]


@dataclass(frozen=True, slots=True)
class Helper:
    """A running registrar or livenessprobe that serves HTTP at ``port``."""

    process: processes.Process
    port: int


class NodeSide:
    """One node of a test's cluster, its driver, and registrars."""

    def __init__(self, view: clusters.Cluster) -> None:
        self.cluster = view
        self.name = f"{view.namespace}-node"
        self.root = view.directory / "n"
        self.folder = self.root / "plugins_registry"
        self.socket = self.root / "plugins" / view.driver_name / "csi.sock"
        self.registration = self.folder / f"{view.driver_name}-reg.sock"
        self.agent: clusters.Node | None = None

    async def start_agent(self) -> clusters.Node:
        """Start the node agent, also after an earlier one was killed."""
        self.root.mkdir(exist_ok=True)
        self.agent = await nodeagent.start_agent(self.cluster, self.name, self.root)
        return self.agent

    async def start_driver(self) -> clusters.Driver:
        """Start local-driver, which leaves its registration to others."""
        assert self.agent is not None, "start the agent first"
        return await self.cluster.start_driver(node=self.agent, registration_dir="")

    def start_registrar(self, *words: str) -> Helper:
        """Start the registrar; does not wait for anything."""
        self.socket.parent.mkdir(parents=True, exist_ok=True)
        port = ports.free()
        command = [
            "csi-node-driver-registrar",
            f"--csi-address={self.socket}",
            f"--kubelet-registration-path={self.socket}",
            f"--plugin-registration-path={self.folder}",
            f"--http-endpoint=127.0.0.1:{port}",
            *words,
        ]
        return Helper(self.cluster.processes.spawn(command), port)

    async def registered(self, *, times: int = 1) -> None:
        """Wait until the cluster sees the driver here and the agent took it so many times."""
        await self._on_node(there=True)
        assert self.agent is not None
        process = self.agent.process
        await process.wait_ready(
            lambda: process.output().count('"Driver registered"') >= times,
            f"{times} registrations",
        )

    async def deregistered(self) -> None:
        """Wait until the cluster does not see the driver here."""
        await self._on_node(there=False)

    async def label(self, value: str | None) -> None:
        """Set or remove the topology label that the driver wants to be the node's name."""
        labels = {f"topology.{self.cluster.driver_name}/node": value}
        await self.cluster.request(
            "PATCH",
            f"/api/v1/nodes/{self.name}",
            {"metadata": {"labels": labels}},
            content_type="application/merge-patch+json",
        )

    def files(self) -> list[str]:
        """Return what is in the registration folder, hidden files included."""
        with contextlib.suppress(FileNotFoundError):
            return sorted(path.name for path in pathlib.Path(self.folder).iterdir())
        return []

    async def _on_node(self, *, there: bool) -> None:
        name = self.cluster.driver_name

        def check(found: Any) -> bool:
            names = {one["name"] for one in found["spec"].get("drivers") or ()}
            return (name in names) is there

        path = f"/apis/storage.k8s.io/v1/csinodes/{self.name}"
        await self.cluster.wait_for(path, check, f"{name} on the CSINode: {there}")
