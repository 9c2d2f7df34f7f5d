"""A controller and nodes of local-driver, without a cluster: real processes, real mutual TLS.

Each node has its state, its CSI socket and its port; ``Fleet.controller`` is the one that a set
of sidecars would ask.
"""

import contextlib
import pathlib
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence

from bitts.csi import v1
from bitts.rpc import channel, tls

from support import cluster, localdriver, pki, ports, processes

DRIVER = "local.csi.bitts.dev"
NODES = ("node-1", "node-2", "node-3")
KEY = f"topology.{DRIVER}/node"


def certificates(folder: pathlib.Path, driver: str = DRIVER) -> dict[str, tls.Files]:
    """Write certificates for the controller and every node of ``NODES``; blocks."""
    authority = pki.Authority(folder)
    names = {node: f"{node}.nodes.{driver}" for node in NODES}
    names["controller"] = f"controller.{driver}"
    return {who: authority.issue(name) for who, name in names.items()}


def tls_flags(files: tls.Files) -> list[str]:
    """Return the flags that name certificates."""
    return [
        f"--tls-cert={files.certificate}",
        f"--tls-key={files.key}",
        f"--tls-ca={files.authority}",
    ]


def segments(node: str) -> dict[str, str]:
    """Return the topology of a node."""
    return {KEY: node}


def place(node: str) -> str:
    """Return how all IDs of a node begin, as the driver itself says it."""
    from local_driver import places

    return places.of_node(node)


def at(*nodes: str, strict: bool = True) -> v1.TopologyRequirement:
    """Return a requirement that prefers nodes in their order; not ``strict``: any will do."""
    preferred = [v1.Topology(segments=segments(node)) for node in nodes]
    requisite = preferred if strict else [v1.Topology(segments=segments(node)) for node in NODES]
    return v1.TopologyRequirement(requisite=requisite, preferred=preferred)


class Fleet:
    """A controller and nodes in one folder; processes end with their spawner."""

    def __init__(
        self,
        home: pathlib.Path,
        spawner: processes.Processes,
        kit: Mapping[str, tls.Files],
        nodes: Sequence[str] = NODES,
    ) -> None:
        self.home = home
        self.kit = kit
        self.nodes = list(nodes)
        self.ports = {node: ports.free() for node in nodes}
        self.list = home / "nodes"
        self.processes: dict[str, processes.Process] = {}
        self._spawner = spawner

    def socket(self, who: str) -> pathlib.Path:
        """Return where a node, or the controller, serves CSI."""
        return self.home / who / "csi.sock"

    def write_list(self, nodes: Sequence[str]) -> None:
        """Tell the controller which nodes there are; blocks for a moment."""
        fresh = self.list.with_suffix(".new")
        fresh.write_text("".join(f"{node}=127.0.0.1:{self.ports[node]}\n" for node in nodes))
        fresh.rename(self.list)

    async def start(self, *words: str) -> None:
        """Start all nodes, then the controller, with the same words."""
        for node in self.nodes:
            self.spawn_node(node, *words)
        for node in self.nodes:
            await self.ready(node)
        await self.start_controller(*words)

    def start_blocking(self, *words: str) -> None:
        """Do as start() does, outside an event loop."""
        for node in self.nodes:
            self.spawn_node(node, *words)
        for node in self.nodes:
            self._ready_blocking(node)
        self.spawn_controller(*words)
        self._ready_blocking("controller")

    async def start_node(
        self, node: str, *words: str, files: tls.Files | None = None
    ) -> processes.Process:
        """Start a node, also again, and wait for its sockets."""
        self.spawn_node(node, *words, files=files)
        return await self.ready(node)

    def spawn_node(self, node: str, *words: str, files: tls.Files | None = None) -> None:
        """Start a node; does not wait for anything."""
        own = [
            "--role=node",
            f"--node-id={node}",
            f"--listen=127.0.0.1:{self.ports[node]}",
            *tls_flags(files or self.kit[node]),
        ]
        self._spawn(node, *own, *words)

    async def start_controller(
        self, *words: str, files: tls.Files | None = None, who: str = "controller"
    ) -> processes.Process:
        """Start the controller, also again, and wait for its socket; ``who``: another one."""
        self.spawn_controller(*words, files=files, who=who)
        return await self.ready(who)

    def spawn_controller(
        self, *words: str, files: tls.Files | None = None, who: str = "controller"
    ) -> None:
        """Start the controller; does not wait for anything."""
        if not self.list.exists():
            self.write_list(self.nodes)
        shown = files or self.kit["controller"]
        own = ["--role=controller", f"--nodes-file={self.list}", *tls_flags(shown)]
        self._spawn(who, *own, *words)

    async def ready(self, who: str) -> processes.Process:
        """Wait for the socket of a node or of the controller."""
        process, path = self.processes[who], self.socket(who)
        await process.wait_ready(lambda: cluster.accepts(path), f"socket of {who}")
        return process

    def _ready_blocking(self, who: str) -> None:
        path = self.socket(who)
        what = f"socket of {who}"
        self.processes[who].wait_ready_blocking(lambda: cluster.accepts(path), what)

    def _spawn(self, who: str, *words: str) -> None:
        path = self.socket(who)
        path.parent.mkdir(exist_ok=True)
        path.unlink(missing_ok=True)
        command = [
            "local-driver",
            f"--endpoint=unix://{path}",
            f"--state-dir={path.parent / 'state'}",
            f"--fault-socket={path.parent / 'faults.sock'}",
            *words,
        ]
        self.processes[who] = self._spawner.spawn(command, name=who)

    async def mend(self, *words: str) -> None:
        """Start again what has ended, with the same certificates, and take all faults away."""
        for who in ("controller", *self.nodes):
            if self.processes[who].alive:
                await self.faults(who, "clear")
            elif who == "controller":
                self.spawn_controller(*words)
            else:
                self.spawn_node(who, *words)
        for who in self.processes:
            await self.ready(who)

    async def faults(self, who: str, *commands: str) -> None:
        """Send commands to the fault socket of a node or of the controller."""
        await localdriver.command_faults(self.home / who / "faults.sock", *commands)

    @contextlib.asynccontextmanager
    async def client(self, who: str = "controller") -> AsyncIterator[localdriver.Client]:
        """Connect to the controller, or to a node's own socket."""
        opened = channel.Channel(str(self.socket(who)))
        try:
            await opened.connect(localdriver.TIMEOUT)
            yield localdriver.Client(opened)
        finally:
            await opened.close()

    def volumes(self, node: str) -> list[str]:
        """Return the IDs of the volumes that lie on a node's disk."""
        return sorted(path.stem for path in (self.home / node / "state/volumes").glob("*.json"))

    def everywhere(self) -> list[str]:
        """Return the IDs of the volumes on all nodes."""
        return sorted(one for node in self.nodes for one in self.volumes(node))


@contextlib.contextmanager
def running(
    logs: pathlib.Path, kit: Mapping[str, tls.Files], *words: str, nodes: Sequence[str] = NODES
) -> Iterator[Fleet]:
    """Start a fleet for the tests of a module: that takes longer than most of what they do."""
    home = cluster.short_directory()
    started = processes.Processes(logs)
    try:
        made = Fleet(home, started, kit, nodes)
        made.start_blocking(*words)
        yield made
    finally:
        started.close()
        cluster.remove_tree(home)
