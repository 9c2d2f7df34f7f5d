"""A cluster of Kubernetes' own programs: the order in which they start, and their end.

Etcd and the API server come up while the nodes' machines are made; kubelets follow as soon as it
serves, controllers when it has written its roles. Ends are abrupt on purpose: nothing but etcd
keeps state, and only where it is to last.
"""

import asyncio
import contextlib
import json
import os
import socket
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass

from bitts.core import ledger, logs
from bitts.core.process import ExitError, Process

from devcluster import files
from devcluster.clusters import Options
from devcluster.kubernetes import (
    addresses,
    apiclient,
    binaries,
    controlplane,
    identities,
    needs,
    nodeplan,
    nodes,
    pki,
    programs,
    sweep,
    tunnel,
)
from devcluster.kubernetes import layout as layouts

API_TIMEOUT = 60.0
"""Seconds for kube-apiserver, which on a busy machine is slow to load."""

ETCD_GRACE = 3.0
"""Seconds for etcd to close its files, where they are to last."""

CONTROLLERS = ("kube-controller-manager", "kube-scheduler")
_ACCOUNT = "/api/v1/namespaces/default/serviceaccounts/default"
_log = logs.get("devcluster")


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be started."""

    layout: layouts.Layout
    nodes: tuple[addresses.Node, ...]
    keep: bool
    network: str


def plan(options: Options) -> Plan:
    """Check what was asked for. Raises ExitError naming the flag that cannot be served."""
    layout = layouts.layout(options.directory, options.nodes_directory)
    try:
        wanted = addresses.nodes(options.nodes)
        if wanted:
            layouts.check(layout)
    except ValueError as error:
        raise ExitError(2, str(error)) from error
    if wanted and os.geteuid() != 0:
        raise ExitError(2, "--nodes needs root: without it only the control plane (--nodes=0) runs")
    return Plan(layout, tuple(wanted), options.store != "memory", options.network)


def check_programs(network: str) -> None:
    """Raise ExitError naming what nodes lack on this machine. Blocking."""
    missing = needs.missing(network)
    if missing:
        raise ExitError(1, f"nodes need {', '.join(missing)}: see debian-packages.txt")


class Kubernetes:
    """The cluster of kind ``kubernetes``."""

    def __init__(self, options: Options) -> None:
        self._port = options.port
        self._plan = plan(options)
        self._layout = self._plan.layout
        self._machines: nodes.Nodes | None = None
        self._is_ready = False

    async def run(self, process: Process) -> None:
        """Start everything, tell that it is ready, wait, end everything."""
        if self._plan.nodes:
            await asyncio.to_thread(check_programs, self._plan.network)
        with contextlib.ExitStack() as ownership:
            try:
                await asyncio.to_thread(ownership.enter_context, sweep.owned(self._layout))
            except sweep.InUseError as error:
                raise ExitError(1, str(error)) from error
            await self._run(process)

    async def _run(self, process: Process) -> None:
        await asyncio.to_thread(self._prepare)
        supervisor = programs.Supervisor(process, ledger.Ledger())
        async with contextlib.AsyncExitStack() as stack:
            try:
                if await _unless_stopped(process, self._start(supervisor, stack)):
                    self._is_ready = True
                    process.started()
                    await process.stopping.wait()
            except BaseExceptionGroup as group:
                raise _first(group) from group
            finally:
                self._is_ready = False
                supervisor.stopping()
                await asyncio.shield(self._stop(supervisor))

    def _prepare(self) -> None:
        layout = self._layout
        layout.nodes.mkdir(mode=0o700, parents=True, exist_ok=True)
        (layout.directory / files.READY).unlink(missing_ok=True)
        sweep.sweep(layout, keep=self._plan.keep, spared=sweep.SPARED)
        layout.logs.mkdir(exist_ok=True)
        for path in layout.logs.glob("*.log"):  # else old complaints would pass for new ones
            path.unlink()

    async def _start(
        self, supervisor: programs.Supervisor, stack: contextlib.AsyncExitStack
    ) -> None:
        wanted = self._plan.nodes
        names = [*binaries.CONTROL_PLANE, *(binaries.NODE if wanted else ())]
        try:
            paths = await asyncio.to_thread(binaries.ready, names, os.environ)
        except binaries.MissingError as error:
            raise ExitError(1, str(error)) from error
        tokens = await asyncio.to_thread(pki.prepare, self._layout, wanted)
        former = await asyncio.to_thread(files.former_port, self._layout.directory)
        ports = controlplane.Ports(free_port(), self._port or free_port(former))
        self._port = ports.api
        await asyncio.to_thread(pki.write_kubeconfigs, self._layout, tokens, ports.api)
        places = nodeplan.Places(self._layout, paths, ports.api, self._plan.network)
        machines = self._machines = nodes.Nodes(places, wanted, supervisor)
        ca = self._layout.directory / "ca.crt"
        url = f"https://127.0.0.1:{ports.api}"
        api = apiclient.ApiClient(url, ca, tokens[identities.ADMIN])
        await stack.enter_async_context(api)
        serves = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            if wanted:
                group.create_task(self._start_nodes(machines, stack, api, serves), name="nodes")
            told = self._tell(stack, machines, supervisor)
            group.create_task(told, name="introspection")
            await self._start_api(supervisor, places, ports, api, serves)
            await self._start_controllers(supervisor, places, api)

        async def announce() -> None:
            await asyncio.to_thread(self._announce, machines, supervisor)

        await announce()
        machines.keep(api, announce)

    async def _tell(
        self,
        stack: contextlib.AsyncExitStack,
        machines: nodes.Nodes,
        supervisor: programs.Supervisor,
    ) -> None:
        """Answer what the cluster does, from its start on: a start that hangs can be asked too."""
        # Etcd starts while this is loaded.
        from devcluster import introspect
        from devcluster.kubernetes import telling

        def is_serving() -> bool:
            return self._is_ready and telling.runs(supervisor, binaries.CONTROL_PLANE)

        told = telling.sources(supervisor, machines)
        await stack.enter_async_context(introspect.serve(self._layout.directory, told, is_serving))

    async def _start_api(
        self,
        supervisor: programs.Supervisor,
        places: nodeplan.Places,
        ports: controlplane.Ports,
        api: apiclient.ApiClient,
        serves: asyncio.Event,
    ) -> None:
        etcd = self._program(
            places, "etcd", controlplane.etcd(self._layout, ports, keep=self._plan.keep)
        )
        arguments = controlplane.api_server(self._layout, ports, has_nodes=bool(self._plan.nodes))
        server = self._program(places, "kube-apiserver", arguments)

        async def listens() -> bool:
            return await accepts(ports.etcd)

        async def is_ready() -> bool:
            if await api.answers():
                serves.set()
            return await api.is_ready()

        await supervisor.start(etcd, listens, API_TIMEOUT)
        await supervisor.start(server, is_ready, API_TIMEOUT)

    async def _start_nodes(
        self,
        machines: nodes.Nodes,
        stack: contextlib.AsyncExitStack,
        api: apiclient.ApiClient,
        serves: asyncio.Event,
    ) -> None:
        network = await machines.start_network()
        await stack.enter_async_context(tunnel.Tunnel(network, self._layout.tunnel, self._port))
        await machines.start_machines(network)
        await serves.wait()
        await machines.start_kubelets(api)

    async def _start_controllers(
        self,
        supervisor: programs.Supervisor,
        places: nodeplan.Places,
        api: apiclient.ApiClient,
    ) -> None:
        manager = self._program(
            places, CONTROLLERS[0], controlplane.controller_manager(self._layout)
        )
        scheduler = self._program(places, CONTROLLERS[1], controlplane.scheduler(self._layout))

        async def works() -> bool:
            return await api.get(_ACCOUNT) is not None

        async with asyncio.TaskGroup() as group:
            # Pods are refused in a namespace whose service account is not there yet.
            group.create_task(supervisor.start(manager, works, API_TIMEOUT), name=manager.name)
            group.create_task(supervisor.start(scheduler, works, API_TIMEOUT), name=scheduler.name)

    def _program(
        self, places: nodeplan.Places, name: str, arguments: Sequence[str]
    ) -> programs.Program:
        command = (str(places.binaries[name]), *arguments)
        return programs.Program(name, command, self._layout.logs / f"{name}.log")

    def _announce(self, machines: nodes.Nodes, supervisor: programs.Supervisor) -> None:
        """Write ready.json: what every kind writes, and what only this one has."""
        started = machines.started.values()
        ready = {
            "server": f"https://127.0.0.1:{self._port}",
            "kubeconfig": str(self._layout.directory / "kubeconfig"),
            "pid": os.getpid(),
            "kind": "kubernetes",
            "audit": str(self._layout.audit),
            "processes": dict(supervisor.pids()),
            "nodes": {
                one.node.name: {
                    "pid": one.pid,
                    "root": str(one.place.root),
                    "address": one.node.address,
                    "enter": nodes.entrance(one.pid),
                }
                for one in started
            },
        }
        files.write_private(self._layout.directory / files.READY, json.dumps(ready) + "\n")
        _log.info("Ready", server=ready["server"], nodes=len(machines.started))

    async def _stop(self, supervisor: programs.Supervisor) -> None:
        await asyncio.to_thread(self._withdraw)
        if self._machines is not None:
            await self._machines.stop()
        await supervisor.stop(["network", *CONTROLLERS, "kube-apiserver"])
        await supervisor.stop(["etcd"], grace=ETCD_GRACE if self._plan.keep else 0)
        await supervisor.stop(list(supervisor.pids()))
        await asyncio.to_thread(sweep.sweep, self._layout, keep=self._plan.keep)

    def _withdraw(self) -> None:
        (self._layout.directory / files.READY).unlink(missing_ok=True)


async def _unless_stopped(process: Process, start: Coroutine[object, object, None]) -> bool:
    """Start, but give it up as soon as the process is asked to stop. Tell whether it started."""
    starting = asyncio.create_task(start, name="start")
    asked = asyncio.create_task(process.stopping.wait(), name="stop-asked")
    try:
        await asyncio.wait({starting, asked}, return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            await starting
            return True
        return False
    finally:
        starting.cancel()
        asked.cancel()
        await asyncio.gather(starting, asked, return_exceptions=True)


def free_port(wanted: int = 0) -> int:
    """Return a port that was free a moment ago: the one that is wanted, if it was."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do
        try:
            probe.bind(("127.0.0.1", wanted))
        except OSError:
            if not wanted:
                raise
            return free_port()
        port: int = probe.getsockname()[1]
        return port


async def accepts(port: int) -> bool:
    """Whether somebody listens on a port of the loopback."""
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    return True


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the fault that tells most: one that names an exit code, else the first."""
    flat = list(_flatten(group))
    return next((error for error in flat if isinstance(error, ExitError)), flat[0])


def _flatten(error: BaseException) -> list[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        return [one for inner in error.exceptions for one in _flatten(inner)]
    return [error]
