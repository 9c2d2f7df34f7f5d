"""A small real CSI driver for tests of the node agent, and what they need around it.

The driver serves real gRPC on a real socket and makes real bind mounts of folders; every call
is noted, and a test can have the next calls of a method fail.
"""

import asyncio
import collections
import contextlib
import json
import os
import pathlib
import signal
import subprocess
from collections.abc import AsyncIterator, Callable
from typing import Any

from bitts.csi import registration, v1
from bitts.rpc import server
from bitts.rpc.codes import Code, RpcError

from support import cluster as clusters
from support import leaks, manifests, processes, waiting

Obj = dict[str, Any]


class Calls:
    """What the driver was asked, and which answers it owes."""

    def __init__(self) -> None:
        self.log: list[tuple[str, Any]] = []
        self.failures: collections.Counter[str] = collections.Counter()

    def note(self, method: str, request: Any) -> None:
        """Note a call; raises RpcError if the test wants it to fail."""
        self.log.append((method, request))
        if self.failures[method]:
            self.failures[method] -= 1
            raise RpcError(Code.INTERNAL, f"{method} fails as the test wishes")

    def names(self) -> list[str]:
        """The methods in the order of their calls."""
        return [method for method, _ in self.log]

    def count(self, method: str) -> int:
        """How often a method was called."""
        return self.names().count(method)

    def last(self, method: str) -> Any:
        """The latest request of a method."""
        return next(request for name, request in reversed(self.log) if name == method)


class Identity(v1.IdentityBase):
    """A driver without controller."""

    def __init__(self, name: str) -> None:
        self._name = name

    async def get_plugin_info(self, request: v1.GetPluginInfoRequest) -> v1.GetPluginInfoResponse:
        return v1.GetPluginInfoResponse(name=self._name, vendor_version="1")

    async def get_plugin_capabilities(
        self, request: v1.GetPluginCapabilitiesRequest
    ) -> v1.GetPluginCapabilitiesResponse:
        return v1.GetPluginCapabilitiesResponse()

    async def probe(self, request: v1.ProbeRequest) -> v1.ProbeResponse:
        return v1.ProbeResponse()


class MountingNode(v1.NodeBase):
    """Stages a folder of its own per volume, publishes it; all by bind mounts."""

    def __init__(self, driver: "MountingDriver") -> None:
        self._driver = driver

    async def node_get_info(self, request: v1.NodeGetInfoRequest) -> v1.NodeGetInfoResponse:
        self._driver.calls.note("NodeGetInfo", request)
        driver = self._driver
        return v1.NodeGetInfoResponse(
            node_id=driver.node_id,
            max_volumes_per_node=driver.limit,
            accessible_topology=v1.Topology(segments=dict(driver.topology)),
        )

    async def node_get_capabilities(
        self, request: v1.NodeGetCapabilitiesRequest
    ) -> v1.NodeGetCapabilitiesResponse:
        kinds = v1.NodeServiceCapabilityRpcType
        found = [kinds[name] for name in self._driver.capabilities]
        return v1.NodeGetCapabilitiesResponse(
            capabilities=[
                v1.NodeServiceCapability(rpc=v1.NodeServiceCapabilityRpc(type=kind))
                for kind in found
            ]
        )

    async def node_stage_volume(
        self, request: v1.NodeStageVolumeRequest
    ) -> v1.NodeStageVolumeResponse:
        self._driver.calls.note("NodeStageVolume", request)
        await asyncio.to_thread(
            bind, self._driver.content(request.volume_id), request.staging_target_path
        )
        return v1.NodeStageVolumeResponse()

    async def node_publish_volume(
        self, request: v1.NodePublishVolumeRequest
    ) -> v1.NodePublishVolumeResponse:
        self._driver.calls.note("NodePublishVolume", request)
        staged = request.staging_target_path or self._driver.content(request.volume_id)
        await asyncio.to_thread(bind, staged, request.target_path, request.readonly)
        return v1.NodePublishVolumeResponse()

    async def node_unpublish_volume(
        self, request: v1.NodeUnpublishVolumeRequest
    ) -> v1.NodeUnpublishVolumeResponse:
        self._driver.calls.note("NodeUnpublishVolume", request)
        await asyncio.to_thread(unbind, request.target_path)
        return v1.NodeUnpublishVolumeResponse()

    async def node_unstage_volume(
        self, request: v1.NodeUnstageVolumeRequest
    ) -> v1.NodeUnstageVolumeResponse:
        self._driver.calls.note("NodeUnstageVolume", request)
        await asyncio.to_thread(unbind, request.staging_target_path)
        return v1.NodeUnstageVolumeResponse()


class MountingDriver:
    """The driver with its sockets: one for calls, one that registers it with the node."""

    def __init__(self, name: str, root: pathlib.Path, state: pathlib.Path) -> None:
        self.name = name
        self.node_id = "node-id-1"
        self.limit = 0
        self.topology: dict[str, str] = {}
        self.capabilities: tuple[str, ...] = ("STAGE_UNSTAGE_VOLUME",)
        self.calls = Calls()
        self._state = state
        self._registry = root / "plugins_registry"
        self.socket = root / "plugins" / name / "csi.sock"
        self._server: server.Server | None = None
        self.registration = registration.Registration(name, str(self.socket))

    def content(self, volume_id: str) -> str:
        """The folder that a volume's data is in."""
        return str(self._state / volume_id)

    async def serve(self) -> None:
        """Answer calls."""
        self.socket.parent.mkdir(parents=True, exist_ok=True)
        self._server = server.Server([Identity(self.name), MountingNode(self)], str(self.socket))
        await self._server.start()

    async def register(self) -> None:
        """Offer the driver to the node."""
        await self.registration.serve(str(self._registry))

    async def stop_serving(self) -> None:
        """Answer no calls any more; the registration stays."""
        if self._server:
            await self._server.stop(0.5)
            self._server = None

    async def stop(self) -> None:
        """Go altogether."""
        await self.registration.stop()
        await self.stop_serving()


def bind(source: str, target: str, readonly: bool = False) -> None:
    """Bind-mount a folder once; both are made if they are not there."""
    for folder in (source, target):
        pathlib.Path(folder).mkdir(parents=True, exist_ok=True)
    if not is_mounted(target):
        subprocess.run(["/usr/bin/mount", "--bind", source, target], check=True)
        if readonly:
            subprocess.run(["/usr/bin/mount", "-o", "remount,bind,ro", target], check=True)


def unbind(target: str) -> None:
    """Unmount a folder and remove it."""
    if is_mounted(target):
        subprocess.run(["/usr/bin/umount", target], check=True)
    with contextlib.suppress(FileNotFoundError):
        pathlib.Path(target).rmdir()


def is_mounted(target: str) -> bool:
    """Whether something is mounted there, by the kernel's word."""
    return any(line.startswith(f"{target} (") for line in leaks.mounts())


class Bench:
    """One node agent with one driver in a test's own corner of the cluster."""

    def __init__(self, view: clusters.Cluster, node: clusters.Node, driver: MountingDriver) -> None:
        self.cluster = view
        self.node = node
        self.driver = driver
        self.claims = f"/api/v1/namespaces/{view.namespace}/persistentvolumeclaims"
        self.pods = f"/api/v1/namespaces/{view.namespace}/pods"

    async def registered(self) -> None:
        """Wait until the driver is on the node's CSINode."""
        await self.cluster.wait_for(
            f"/apis/storage.k8s.io/v1/csinodes/{self.node.name}",
            lambda it: self.driver.name in {d["name"] for d in it["spec"].get("drivers") or ()},
            "driver on CSINode",
        )

    async def volume(self, name: str, *, attach: bool = False, **spec: Any) -> None:
        """Make a volume of the driver, bound to a claim of the same name."""
        view = self.cluster
        path = f"/apis/storage.k8s.io/v1/csidrivers/{self.driver.name}"
        driver = manifests.csi_driver(self.driver.name, attachRequired=attach)
        with contextlib.suppress(AssertionError):  # there already
            await view.request(
                "POST", str(pathlib.PurePosixPath(path).parent), manifests.fresh(driver)
            )
        full = f"{view.namespace}-{name}"
        source = {"driver": self.driver.name, "volumeHandle": full, **spec.pop("csi", {})}
        ref = {"namespace": view.namespace, "name": name}
        own = {"storageClassName": "", "persistentVolumeReclaimPolicy": "Retain"}
        body = manifests.volume(full, csi=source, claimRef=ref, **own, **spec)
        await view.request("POST", "/api/v1/persistentvolumes", manifests.fresh(body))
        modes = spec.get("accessModes", ["ReadWriteOnce"])
        claim = manifests.claim(name, volumeName=full, storageClassName="", accessModes=modes)
        claim["metadata"]["namespace"] = view.namespace
        await view.request("POST", self.claims, manifests.fresh(claim))

    async def pod(self, name: str, *command: str, claims: tuple[str, ...] = (), **spec: Any) -> Obj:
        """Create a pod on this node; its container runs the command."""
        body = manifests.pod(name, claims=claims, nodeName=self.node.name, **spec)
        body["metadata"]["namespace"] = self.cluster.namespace
        body["spec"].setdefault("restartPolicy", "Never")
        body["spec"].setdefault("terminationGracePeriodSeconds", 5)
        if command:
            body["spec"]["containers"][0]["command"] = list(command)
        return dict(await self.cluster.request("POST", self.pods, manifests.fresh(body)))

    async def until(self, name: str, check: Callable[[Obj], object], what: str) -> Obj:
        """Wait until a pod is as wanted."""
        path = f"{self.pods}/{name}"
        return dict(await self.cluster.wait_for(path, lambda it: it and check(it), what))

    async def phase(self, name: str, phase: str) -> Obj:
        """Wait for a pod's phase."""
        return await self.until(name, lambda it: it["status"].get("phase") == phase, phase)

    async def delete(self, name: str) -> None:
        """Delete a pod and wait until nothing of it is left."""
        uid = await self.uid(name)
        await self.cluster.request("DELETE", f"{self.pods}/{name}")
        await self.gone(name, uid)

    async def gone(self, name: str, uid: str) -> None:
        """Wait until neither the pod's object nor its folder is there."""
        await self.cluster.wait_for(f"{self.pods}/{name}", lambda it: it is None, f"{name} gone")
        folder = self.node.root_dir / "pods" / uid
        await waiting.until(lambda: not folder.exists(), f"{folder} removed")

    async def uid(self, name: str) -> str:
        """A pod's UID."""
        return str((await self.cluster.request("GET", f"{self.pods}/{name}"))["metadata"]["uid"])

    async def log(self, name: str, container: str = "main") -> str:
        """What a pod's container has printed."""
        return (self.node.root_dir / "pods" / await self.uid(name) / f"{container}.log").read_text()

    async def says(self, name: str, text: str) -> None:
        """Wait for a text in the output of a pod's container."""

        async def said() -> bool:
            return text in await self.log(name)

        await waiting.until(said, f"{name} says {text!r}")

    async def restart_agent(self) -> None:
        """Start the agent anew on the same folder."""
        self.node = await start_agent(self.cluster, self.node.name, self.node.root_dir)

    async def events(self, reason: str) -> list[Obj]:
        """Events of this namespace for a reason."""
        path = f"/api/v1/namespaces/{self.cluster.namespace}/events"
        found = await self.cluster.request("GET", path)
        return [one for one in found["items"] if one["reason"] == reason]


async def start_agent(
    view: clusters.Cluster, name: str, root: pathlib.Path, *prefix: str
) -> clusters.Node:
    """Start a node agent on a folder; ``prefix`` is a command to run it under."""
    ready = root / "ready"
    ready.unlink(missing_ok=True)
    flags = [f"--name={name}", f"--kubeconfig={view.kubeconfig}", f"--root-dir={root}", "-v=4"]
    program = processes.script("devcluster-node")
    command = [*prefix, program, *flags, f"--ready-file={ready}"]
    process = view.processes.spawn(command, name=f"agent-{name}")
    await process.wait_ready(ready.exists, "ready file of the node agent")
    return clusters.Node(name, root, process)


@contextlib.asynccontextmanager
async def bench(view: clusters.Cluster, **driver_fields: Any) -> AsyncIterator[Bench]:
    """An agent with a registered driver; whatever they leave is cleaned up."""
    root = view.directory / "n"
    root.mkdir()
    node = await start_agent(view, f"{view.namespace}-node", root)
    driver = MountingDriver(view.driver_name, root, view.directory / "state")
    for name, value in driver_fields.items():
        setattr(driver, name, value)
    made = Bench(view, node, driver)
    try:
        await driver.serve()
        await driver.register()
        await made.registered()
        yield made
    finally:
        if made.node.process.alive:
            await made.node.process.stop()
        await driver.stop()
        await asyncio.to_thread(kill_containers, root)


def kill_containers(root: pathlib.Path) -> None:
    """Kill what a test left running on a node."""
    for run in root.glob("pods/*/containers/*/run.json"):
        with contextlib.suppress(OSError, ValueError):
            os.kill(int(json.loads(run.read_text())["pid"]), signal.SIGKILL)
