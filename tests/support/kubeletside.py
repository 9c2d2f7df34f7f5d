"""A CSI driver on one node with the helpers beside it, as a DaemonSet and a Deployment run them.

Driver, registrar and livenessprobe are processes inside the node; the provisioner is one outside.
On a full Kubernetes the node is one of the cluster's two, with a kubelet; on the embedded
cluster it is a node agent. One plugin serves a whole test module.
"""

import asyncio
import contextlib
import http.client
import itertools
import os
import pathlib
import signal
import subprocess
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from support import cluster as clusters
from support import kubelets, leaks, netns, ports, processes, servers, waiting

BACKENDS = "directory,image"
INSIDE = "/var/lib/kubelet"
"""Where a node of a full Kubernetes sees its kubelet's folder."""
START_TIMEOUT = 30.0
DRIVER, REGISTRAR, PROBE, PROVISIONER = (
    "local-driver",
    "csi-node-driver-registrar",
    "livenessprobe",
    "csi-provisioner",
)
_numbers = itertools.count(1)


async def nothing() -> None:
    """Do nothing."""


@dataclass(slots=True)
class Daemon:
    """One process of the plugin; ``pid`` is its own, not that of the command that entered."""

    process: processes.Process
    pid: int = 0
    port: int = 0

    def kill(self) -> None:
        """Kill it, as a crash does."""
        os.kill(self.pid, signal.SIGKILL)

    def freeze(self, *, frozen: bool) -> None:
        """Stop it from doing anything, or let it go on."""
        os.kill(self.pid, signal.SIGSTOP if frozen else signal.SIGCONT)


@dataclass(frozen=True, slots=True)
class Place:
    """The plugin's folders: ``root`` is the kubelet's from outside, ``inside`` the same within."""

    root: pathlib.Path
    inside: pathlib.Path
    name: str

    def home(self, *, inside: bool) -> pathlib.Path:
        """The folder with the driver's socket and state; it outlives the node's processes."""
        return (self.inside if inside else self.root) / "plugins" / self.name

    @property
    def socket(self) -> pathlib.Path:
        """The driver's socket from outside."""
        return clusters.socket_path(self.home(inside=False) / "csi.sock")

    @property
    def state(self) -> pathlib.Path:
        """What the driver keeps."""
        return self.home(inside=False) / "state"

    @property
    def registry(self) -> pathlib.Path:
        """Where the kubelet looks for registration sockets."""
        return self.root / "plugins_registry"


@dataclass(slots=True)
class Plugin:
    """One driver on one node. Use ``start`` and ``close``; tests may end and start parts."""

    server: servers.Server
    spawner: processes.Processes
    directory: pathlib.Path
    name: str = field(default_factory=lambda: f"k{next(_numbers)}-{os.getpid():x}.csi.bitts.dev")
    node: str = "node-1"
    daemons: dict[str, Daemon] = field(default_factory=dict)
    agent: processes.Process | None = None

    @property
    def is_kubernetes(self) -> bool:
        """Whether the node has a kubelet."""
        return self.server.kind == "kubernetes"

    @property
    def machine(self) -> servers.Machine:
        """The node as it is now."""
        return next(one for one in self.server.access.machines if one.name == self.node)

    @property
    def place(self) -> Place:
        """The plugin's folders."""
        if self.is_kubernetes:
            return Place(self.machine.root, pathlib.Path(INSIDE), self.name)
        root = self.directory / "n"
        return Place(root, root, self.name)

    async def start(self) -> None:
        """Start the node if it is ours to start, and everything of the plugin on it."""
        if not self.is_kubernetes:
            self.node = self.name.replace(".", "-")
            await self.start_agent()
        await asyncio.to_thread(self.place.home(inside=False).mkdir, parents=True, exist_ok=True)
        await self.mend()

    async def mend(self) -> None:
        """Start what does not run."""
        if not self.is_kubernetes and not (self.agent and self.agent.alive):
            await self.start_agent()
        starts = {
            DRIVER: self.start_driver,
            REGISTRAR: self.start_registrar,
            PROBE: self.start_probe,
            PROVISIONER: self.start_provisioner,
        }
        for program, start in starts.items():
            if program not in self.daemons or not self.daemons[program].process.alive:
                await start()

    async def start_agent(self) -> None:
        """Start the node agent of the embedded cluster."""
        root = self.directory / "n"
        root.mkdir(exist_ok=True)
        ready = root / "ready"
        ready.unlink(missing_ok=True)
        flags = {"name": self.node, "kubeconfig": self.server.access.kubeconfig, "root_dir": root}
        command = ["devcluster-node", *clusters.flags(flags), f"--ready-file={ready}"]
        self.agent = self.spawner.spawn(command, name="agent")
        await self.agent.wait_ready(ready.exists, "ready file of the node agent")

    async def restart_kubelet(self, meanwhile: Callable[[], Awaitable[None]] = nothing) -> None:
        """Kill the kubelet, or the node agent, and have another; ``meanwhile`` it does nothing."""
        if self.is_kubernetes:
            await kubelets.restart(self.machine, meanwhile)
        else:
            assert self.agent is not None
            self.agent.send_signal(signal.SIGSTOP)
            await meanwhile()
            self.agent.kill()
            await self.start_agent()

    async def reboot(self) -> None:
        """Take the power from the node, wait until it runs again, start the plugin there."""
        before = self.machine.pid
        os.kill(before, signal.SIGKILL)

        def rebooted() -> bool:
            return bool(self.server.read_ready()["nodes"][self.node]["pid"] != before)

        await waiting.until(rebooted, f"another {self.node}", timeout=60.0)
        self.server.refresh()
        for daemon in self.daemons.values():
            await daemon.process.wait()
        self.daemons.clear()
        await self.mend()

    async def start_driver(self, *words: str) -> None:
        """Start the driver, wait for its socket, and do what follows from a restart.

        A provisioner ends when it has lost its driver, and its Deployment starts another.
        """
        inside = self.place.home(inside=True)
        flags = {
            "endpoint": f"unix://{inside}/csi.sock",
            "driver_name": self.name,
            "node_id": self.node,
            "state_dir": inside / "state",
            "backends": BACKENDS,
        }
        self.place.socket.unlink(missing_ok=True)
        found = await self._spawn(DRIVER, *clusters.flags(flags), *words)
        await found.process.wait_ready(lambda: clusters.accepts(self.place.socket), "its socket")
        if PROVISIONER in self.daemons:
            assert await self.daemons[PROVISIONER].process.wait() == 1
            await self.start_provisioner()

    async def start_registrar(self, *words: str) -> None:
        """Start the registrar; does not wait for the kubelet."""
        port = ports.free()
        flags = {
            "csi_address": self.place.home(inside=True) / "csi.sock",
            "kubelet_registration_path": self.place.home(inside=True) / "csi.sock",
            "plugin_registration_path": self.place.inside / "plugins_registry",
            "http_endpoint": f"127.0.0.1:{port}",
        }
        await self._spawn(REGISTRAR, *clusters.flags(flags), *words, port=port)

    async def start_probe(self) -> None:
        """Start the livenessprobe."""
        port = ports.free()
        flags = {
            "csi_address": self.place.home(inside=True) / "csi.sock",
            "http_endpoint": f"127.0.0.1:{port}",
            "probe_timeout": "1s",
        }
        await self._spawn(PROBE, *clusters.flags(flags), port=port)

    async def start_provisioner(self) -> None:
        """Start the provisioner outside the node; it works as soon as it says that it started."""
        flags = {
            "csi_address": self.place.socket,
            "kubeconfig": self.server.access.kubeconfig,
            "extra_create_metadata": True,
            "retry_interval_start": "100ms",
        }
        process = self.spawner.spawn([PROVISIONER, *clusters.flags(flags)])
        self.daemons[PROVISIONER] = Daemon(process, process.pid)
        await process.wait_for_output('"Started"', START_TIMEOUT)

    async def _spawn(self, program: str, *words: str, port: int = 0) -> Daemon:
        """Start a program on the node and find its process."""
        command = [*self.enter, processes.script(program), *words]
        process = self.spawner.spawn(command, name=program)
        pid = await self._entered(process) if self.enter else process.pid
        self.daemons[program] = found = Daemon(process, pid, port)
        return found

    async def _entered(self, process: processes.Process) -> int:
        """Return the process that another one, which waits for its end, has started."""
        children = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children")

        def child() -> int:
            with contextlib.suppress(OSError):
                return int((children.read_text().split() or ["0"])[0])
            return 0

        await process.wait_ready(child, "its process inside the node")
        return child()

    async def ask(self, program: str, path: str = "/healthz") -> tuple[int, str]:
        """Make an HTTP request to a daemon from its node, as the kubelet would."""
        port = self.daemons[program].port
        return await asyncio.to_thread(self._inside, lambda: get(port, path))

    async def answers(self, program: str, path: str, status: int) -> str:
        """Wait until a daemon answers with a status; returns the text that came with it."""

        async def seen() -> tuple[str] | None:
            found, text = await self.ask(program, path)
            return (text,) if found == status else None

        return (await waiting.until(seen, f"{program} answers {path} with {status}"))[0]

    def _inside(self, function: Callable[[], tuple[int, str]]) -> tuple[int, str]:
        if not self.is_kubernetes:
            return function()
        return netns.inside(f"/proc/{self.machine.pid}/ns/net", function)

    def mounts(self) -> list[str]:
        """What is mounted in the node below the kubelet's folder. Blocking."""
        who = self.machine.pid if self.is_kubernetes else os.getpid()
        lines = pathlib.Path(f"/proc/{who}/mountinfo").read_text().splitlines()
        points = [line.split()[4] for line in lines]
        return [point for point in points if point.startswith(f"{self.place.inside}/")]

    def registrations(self) -> int:
        """How often the kubelet has told this registrar that it has the driver."""
        return self.daemons[REGISTRAR].process.output().count("The kubelet registered the driver")

    async def registered_again(self, times: int) -> None:
        """Wait until the kubelet has said it so many times."""
        await self.daemons[REGISTRAR].process.wait_ready(
            lambda: self.registrations() >= times, f"{times} registrations", START_TIMEOUT
        )

    @property
    def enter(self) -> tuple[str, ...]:
        """What a command is put behind to run on the node."""
        return self.machine.enter if self.is_kubernetes else ()

    def complaints(self) -> str:
        """What the kubelet of a full Kubernetes has logged. Blocking."""
        path = self.server.directory / "logs" / f"{self.node}-kubelet.log"
        return path.read_text(errors="replace")

    async def close(self) -> None:
        """End everything; a driver that was frozen must hear it."""
        for daemon in self.daemons.values():
            if daemon.process.alive:
                with contextlib.suppress(ProcessLookupError):
                    daemon.freeze(frozen=False)
        self.spawner.close()
        await asyncio.to_thread(self._free_devices)
        await asyncio.to_thread(clusters.remove_tree, self.place.home(inside=False))

    def _free_devices(self) -> None:
        """Free what a failed test left bound: seen from here, no path leads to its file."""
        for line in leaks.loop_devices():
            if self.name in line:
                device = f"/dev/{line.partition(' ')[0]}"
                subprocess.run(
                    ["losetup", "--detach", device], check=False, timeout=waiting.patient(20)
                )


def get(port: int, path: str) -> tuple[int, str]:
    """Make one HTTP request; status 0 stands for nobody who answers. Blocking."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=waiting.patient(20))
    try:
        connection.request("GET", path, headers={"Connection": "close"})
        reply = connection.getresponse()
        return reply.status, reply.read().decode()
    except OSError as error:
        return 0, str(error)
    finally:
        connection.close()
