"""The nodes of a cluster as running things: namespaces, links, and the programs in them.

A node lives exactly as long as the process that holds its namespaces (``nodeinit``).
"""

import asyncio
import contextlib
import functools
import os
import pathlib
import platform
import shutil
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from bitts.core import logs
from bitts.core.process import ExitError

from devcluster.kubernetes import (
    addresses,
    apiclient,
    cgroups,
    images,
    loopdevices,
    nodeplan,
    podnetwork,
    programs,
)
from devcluster.kubernetes.layout import Layout, NodeLayout

START_TIMEOUT = 30.0
STOP_TIMEOUT = 5.0
READY_TIMEOUT = 60.0
LOOP = "nodes"
"""By this name the ledger knows what is decided about nodes."""

_INIT = pathlib.Path(__file__).with_name("nodeinit.py")
_ENTER = _INIT.with_name("enter.py")
_NAMESPACES = ("--mount", "--net", "--uts", "--ipc", "--pid")
_NODE_PROGRAMS = ("kubelet", "kube-proxy", "containerd", "cni-daemon")
_log = logs.get("devcluster")
_OF_SESSIONS = ("--unset=XDG_RUNTIME_DIR", "--unset=TMPDIR")
"""Folders of whoever starts the cluster, which a node has not: containerd would write there."""
_ENTERED = {"mount": "mnt", "net": "net", "uts": "uts", "ipc": "ipc", "pid": "pid_for_children"}


@dataclass(frozen=True, slots=True)
class Started:
    """A node that runs; ``holder`` holds its namespaces."""

    node: addresses.Node
    place: NodeLayout
    holder: asyncio.subprocess.Process

    @property
    def pid(self) -> int:
        """The process by which the node is entered, and killed."""
        return self.holder.pid


def entrance(pid: int) -> list[str]:
    """Return what others put before a command to run it inside a node: it passes signals on."""
    return [sys.executable, "-I", "-S", str(_ENTER), str(pid)]


def enter(pid: int) -> list[str]:
    """Return what makes a program of ours run inside a node whose namespaces ``pid`` holds.

    It dies with whoever entered, and with the node.
    """
    spaces = [f"--{kind}=/proc/{pid}/ns/{file}" for kind, file in _ENTERED.items()]
    return ["nsenter", *spaces, "--", *programs.DIES_WITH_US]


class Nodes:
    """All nodes of a cluster and the network between them."""

    def __init__(
        self,
        places: nodeplan.Places,
        wanted: Sequence[addresses.Node],
        supervisor: programs.Supervisor,
    ) -> None:
        self._places = places
        self._wanted = list(wanted)
        self._supervisor = supervisor
        self._network = 0
        self._archives: Sequence[pathlib.Path] = ()
        self.started: dict[str, Started] = {}
        self.restarts: dict[str, int] = {}

    @property
    def _layout(self) -> Layout:
        return self._places.layout

    async def start_network(self) -> int:
        """Make the nodes' network and return the process that holds it."""
        command = ("unshare", "--net", "--", "sleep", "infinity")
        program = programs.Program("network", command, self._layout.logs / "network.log")
        child = await self._supervisor.spawn(program)
        own = await asyncio.to_thread(os.readlink, "/proc/self/ns/net")

        async def is_apart() -> bool:
            return await asyncio.to_thread(os.readlink, f"/proc/{child.pid}/ns/net") != own

        await self._supervisor.wait(program, child, is_apart, START_TIMEOUT)
        await self._ip(child.pid, addresses.bridge_commands())
        return child.pid

    async def start_machines(self, network: int) -> None:
        """Make every node's namespaces, join them, and start containerd with its images."""
        self._network = network
        self._archives = await asyncio.to_thread(write_images, self._layout)
        async with asyncio.TaskGroup() as group:
            for node in self._wanted:
                group.create_task(self._start_machine(node), name=node.name)

    async def _start_machine(self, node: addresses.Node) -> None:
        place = self._layout.node(node.name)
        self._supervisor.noted.started(LOOP, node.name)
        await asyncio.to_thread(prepare_folder, self._layout, node, self._places.network)
        await asyncio.to_thread(cgroups.create, self._layout.identity, node.name)
        started = Started(node, place, await self._start_init(node, place))
        self.started[node.name] = started
        with contextlib.suppress(ExitError):  # there is none, unless this is a reboot
            await self._ip(self._network, addresses.unplug_commands(node))
        await self._ip(self._network, addresses.plug_commands(node, started.pid))
        await self._ip(started.pid, addresses.node_commands(node, self._wanted))
        async with asyncio.TaskGroup() as group:
            group.create_task(self._start_runtime(started), name=f"{node.name}-containerd")
            if self._places.network == podnetwork.DAEMON:
                group.create_task(self._start_daemon(started), name=f"{node.name}-cni-daemon")

    async def _start_daemon(self, started: Started) -> None:
        """Put the shim where containerd finds it, and start the daemon behind it."""
        await programs.run([*enter(started.pid), *podnetwork.install()])
        socket = pathlib.Path(f"/proc/{started.pid}/root{podnetwork.SOCKET}")
        daemon = self._program(started, "cni-daemon", podnetwork.serve())
        exists = functools.partial(asyncio.to_thread, socket.exists)
        await self._supervisor.start(daemon, exists, START_TIMEOUT)

    async def _start_runtime(self, started: Started) -> None:
        """Start containerd and load the images."""
        socket = f"/proc/{started.pid}/root{nodeplan.CONTAINERD_SOCKET}"

        async def answers() -> bool:
            return await programs.accepts(socket)

        containerd = self._program(
            started, "containerd", nodeplan.containerd(self._places, started.node)
        )
        await self._supervisor.start(containerd, answers, START_TIMEOUT)
        for archive in self._archives:
            await self._ctr(started, "--namespace=k8s.io", "images", "import", str(archive))

    async def _start_init(
        self, node: addresses.Node, place: NodeLayout
    ) -> asyncio.subprocess.Process:
        """Start the process that is the node, and wait until its file systems are there."""
        said = place.files / "init.log"
        python = await asyncio.to_thread(os.path.realpath, sys.executable)
        needed = (str(place.root), str(self._layout.directory))
        init = (python, "-I", "-S", str(_INIT), node.name, *needed)
        command = ("unshare", *_NAMESPACES, "--fork", "--kill-child=KILL", "--", *init)
        await asyncio.to_thread(said.unlink, missing_ok=True)
        program = programs.Program(node.name, command, said)

        async def is_prepared() -> bool:
            return "ready" in await asyncio.to_thread(said.read_text)

        child = await self._supervisor.spawn(program)
        await self._supervisor.wait(program, child, is_prepared, START_TIMEOUT)
        return child

    async def start_kubelets(self, api: apiclient.ApiClient) -> None:
        """Start kubelet and kube-proxy of every node and wait until all are Ready."""
        for node in self._wanted:
            await api.create("/api/v1/nodes", nodeplan.node_object(node))
        async with asyncio.TaskGroup() as group:
            for started in self.started.values():
                group.create_task(self._start_kubelet(started, api), name=started.node.name)

    async def _start_kubelet(self, started: Started, api: apiclient.ApiClient) -> None:
        node = started.node

        async def is_up() -> bool:
            return True

        async def is_ready() -> bool:
            return nodeplan.is_ready(await api.get(f"/api/v1/nodes/{node.name}"))

        proxy = self._program(started, "kube-proxy", nodeplan.proxy(self._places, node))
        await self._supervisor.start(proxy, is_up, START_TIMEOUT)
        kubelet = self._program(started, "kubelet", nodeplan.kubelet(self._places, node))
        await self._supervisor.start(kubelet, is_ready, READY_TIMEOUT)
        self._supervisor.noted.decided(LOOP, node.name, "Keep", "its kubelet says that it is Ready")
        self._supervisor.noted.finished(LOOP, node.name)

    def keep(self, api: apiclient.ApiClient, changed: Callable[[], Awaitable[None]]) -> None:
        """From now on start a node again when it ends: what a machine's reboot is here."""
        for node in self._wanted:
            self._supervisor.keep(node.name, self._keep(node, api, changed))

    async def _keep(
        self,
        node: addresses.Node,
        api: apiclient.ApiClient,
        changed: Callable[[], Awaitable[None]],
    ) -> None:
        while True:
            await self.started[node.name].holder.wait()
            _log.warning("Node ended, starting it again", node=node.name)
            self.restarts[node.name] = self.restarts.get(node.name, 0) + 1
            reason = "the process that holds its namespaces ended, as a machine loses power"
            self._supervisor.noted.decided(LOOP, node.name, "StartAgain", reason)
            await self._supervisor.retire([f"{node.name}-{name}" for name in _NODE_PROGRAMS])
            await asyncio.to_thread(cgroups.remove, self._layout.identity, node.name)
            await asyncio.to_thread(loopdevices.release, self._layout.node(node.name).root)
            await self._start_machine(node)
            await self._start_kubelet(self.started[node.name], api)
            await changed()

    async def stop(self) -> None:
        """End every node at once, with all that runs in it."""
        holders = [one.holder for one in self.started.values()]
        for holder in holders:
            await asyncio.to_thread(_kill_children, holder.pid)
        # The holder collects its child, so not even a zombie stays.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STOP_TIMEOUT):
                await asyncio.gather(*(holder.wait() for holder in holders))
        await self._supervisor.stop([node.name for node in self._wanted])

    def _program(self, started: Started, name: str, command: Sequence[str]) -> programs.Program:
        shims = self._places.binaries["containerd-shim-runc-v2"].parent
        path = f"PATH={shims}:{os.environ.get('PATH', '/usr/sbin:/usr/bin:/sbin:/bin')}"
        entered = (*enter(started.pid), "env", *_OF_SESSIONS, path, *command)
        full = f"{started.node.name}-{name}"
        return programs.Program(full, entered, self._layout.logs / f"{full}.log")

    async def _ctr(self, started: Started, *words: str) -> None:
        """Run ctr in a node."""
        ctr = str(self._places.binaries["ctr"])
        address = f"--address={nodeplan.CONTAINERD_SOCKET}"
        await programs.run([*enter(started.pid), ctr, address, *words], timeout=START_TIMEOUT)

    async def _ip(self, pid: int, commands: Sequence[str]) -> None:
        batch = ["nsenter", f"--net=/proc/{pid}/ns/net", "--", "ip", "-batch", "-"]
        await programs.run(batch, words="\n".join(commands).encode() + b"\n")


def _kill_children(pid: int) -> None:
    with contextlib.suppress(OSError):  # it has ended, or its child has
        for child in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            os.kill(int(child), signal.SIGKILL)


def prepare_folder(layout: Layout, node: addresses.Node, network: str) -> None:
    """Make a node's folders and configuration. Blocking."""
    place = layout.node(node.name)
    place.root.mkdir(mode=0o700, parents=True, exist_ok=True)
    for folder in (place.files, place.cni, place.containerd, place.bitts, place.plugins_registry):
        folder.mkdir(exist_ok=True)
    (place.root / "log").mkdir(exist_ok=True)
    for path, content in nodeplan.configuration(layout, node, network).items():
        path.write_text(content)
    resolver = pathlib.Path("/etc/resolv.conf")
    words = resolver.read_text() if resolver.exists() else ""
    (place.files / "resolv.conf").write_text(words)


def write_images(layout: Layout) -> list[pathlib.Path]:
    """Make the archive of our own image; return it and those that the user has put beside it.

    Blocking. Raises ExitError where the machine has no static busybox.
    """
    found = shutil.which("busybox")
    program = pathlib.Path(found).read_bytes() if found else b""
    if not images.is_static(program):
        raise ExitError(1, "nodes need a static busybox: install the package busybox-static")
    names = applets(str(found))
    layout.images.mkdir(exist_ok=True)
    own = layout.images / "busybox.tar"
    own.write_bytes(images.archive(program, names, platform.machine()))
    return sorted(layout.images.glob("*.tar"))


def applets(busybox: str) -> list[str]:
    """Ask a busybox for the names that it goes by. Blocking."""
    done = subprocess.run([busybox, "--list"], check=True, capture_output=True, timeout=10)
    return done.stdout.decode().split()
