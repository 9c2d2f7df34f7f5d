"""The kubelet's plugin registration: sockets that appear in a folder make drivers usable.

The folder is looked at every 0.2 s: as quick as a person can notice, and unlike inotify it
cannot lose an event. A socket that was made anew (another inode or change time) registers
anew. As in the kubelet, what fails before the driver is known is retried with growing delay; a
refusal (bad node info, a label conflict) is told to the driver and stands until it makes a new
socket.
"""

import asyncio
import os
import pathlib
import stat
from collections.abc import Awaitable, Callable

from bitts.core import backoff, logs
from bitts.csi import registration, v1
from bitts.csi.driver import Driver, DriverError
from bitts.kube import errors
from bitts.rpc.codes import Code, RpcError

from devcluster.node import membership

INTERVAL = 0.2  # seconds between looks at the folder
RETRY_START, RETRY_MAX = 0.5, 122.0  # seconds; the kubelet's
CONNECT_TIMEOUT, CALL_TIMEOUT = 2.0, 10.0  # seconds for a driver's socket and for its answers
NODE_INFO_TIMEOUT = 120.0
ABSENT_AFTER = 10.0  # seconds after the start; a driver that is slower comes back by itself

Stamp = tuple[int, int]


class Drivers:
    """Drivers registered on this node, connected when they are first used."""

    def __init__(self) -> None:
        self._endpoints: dict[str, str] = {}
        self._connected: dict[str, Driver] = {}
        self._locks: dict[str, asyncio.Lock] = {}
        self._log = logs.get("drivers")

    def add(self, name: str, endpoint: str) -> None:
        """Make a driver usable."""
        self._endpoints[name] = endpoint

    async def remove(self, name: str) -> None:
        """Forget a driver and close its connection."""
        self._endpoints.pop(name, None)
        self._locks.pop(name, None)
        await self._drop(name)

    async def use(self, name: str) -> Driver:
        """The connected driver; raises RpcError UNAVAILABLE if it is not there."""
        async with self._locks.setdefault(name, asyncio.Lock()):
            if driver := self._connected.get(name):
                return driver
            if (endpoint := self._endpoints.get(name)) is None:
                text = f"driver {name} is not registered on this node"
                raise RpcError(Code.UNAVAILABLE, text)
            try:
                async with asyncio.timeout(CONNECT_TIMEOUT + CALL_TIMEOUT):
                    driver = await Driver.connect(
                        endpoint,
                        timeout=CALL_TIMEOUT,
                        on_lost=lambda _: self._lost(name),
                        connect_timeout=CONNECT_TIMEOUT,
                        needs_node=True,
                        needs_controller=False,
                        log=self._log.bind(driver=name),
                    )
            except (DriverError, TimeoutError, ValueError) as error:
                text = f"driver {name}: {str(error) or 'is not ready'}"
                raise RpcError(Code.UNAVAILABLE, text) from error
            self._connected[name] = driver
            return driver

    def _lost(self, name: str) -> None:
        """The next use connects anew, maybe to a driver that can do other things."""
        self._log.info("Lost the connection to a driver", driver=name)
        self._connected.pop(name, None)

    async def close(self) -> None:
        """Close all connections."""
        for name in list(self._connected):
            await self._drop(name)

    async def _drop(self, name: str) -> None:
        if driver := self._connected.pop(name, None):
            await driver.close()


class Plugins:
    """Follows the registration folder; ``on_change(driver)`` is told of each (de)registration."""

    def __init__(
        self,
        folder: pathlib.Path,
        drivers: Drivers,
        node: membership.Membership,
        on_change: Callable[[str], None],
    ) -> None:
        self._folder = folder
        self._drivers = drivers
        self._node = node
        self._on_change = on_change
        self._seen: dict[str, Stamp] = {}
        self._registered: dict[str, str] = {}  # socket → driver
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._log = logs.get("plugins")

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as group:
            await self._look(group)
            group.create_task(self._forget_absent(), name="absent drivers")
            while True:
                await asyncio.sleep(INTERVAL)
                await self._look(group)

    async def _look(self, group: asyncio.TaskGroup) -> None:
        found = await asyncio.to_thread(sockets, self._folder)
        for path, stamp in list(self._seen.items()):
            if found.get(path) != stamp:
                del self._seen[path]
                await self._deregister(path)
        for path, stamp in found.items():
            if path not in self._seen:
                self._seen[path] = stamp
                name = f"registration of {path}"
                self._tasks[path] = group.create_task(self._register(path), name=name)

    async def _forget_absent(self) -> None:
        """Take drivers off the CSINode that went away while no agent was running."""
        if self._tasks:  # a socket that nobody answers at must not keep the others in
            await asyncio.wait(self._tasks.values(), timeout=ABSENT_AFTER)
        await self._retrying(lambda: self._node.keep_drivers(set(self._registered.values())))

    async def _register(self, path: str) -> None:
        info = await self._ask(path)
        problem = _invalid(info) or self._taken(info.name)
        if not problem:
            self._registered[path] = info.name
            self._drivers.add(info.name, info.endpoint or path)
            problem = await self._enter(info.name)
        if problem:
            self._log.error("Driver refused", driver=info.name, err=problem)
            self._registered.pop(path, None)
            if not self._taken(info.name):
                await self._drivers.remove(info.name)
        else:
            self._log.info("Driver registered", driver=info.name)
            self._on_change(info.name)
        try:
            await registration.notify(path, not problem, problem)
        except RpcError as error:
            self._log.warning("Driver did not take the answer", driver=info.name, err=error)

    async def _ask(self, path: str) -> registration.PluginInfo:
        failures = 0
        while True:
            try:
                return await registration.get_info(path)
            except RpcError as error:
                delay = backoff.delay(failures, RETRY_START, RETRY_MAX)
                self._log.info("No plugin info yet", socket=path, err=error, delay=delay)
                failures += 1
                await asyncio.sleep(delay)

    def _taken(self, name: str) -> str:
        taken = name in self._registered.values()
        return f"a driver {name} is already registered on this node" if taken else ""

    async def _enter(self, name: str) -> str:
        """Put the driver into the cluster's view of this node; answers why not, if so."""
        try:
            driver = await self._drivers.use(name)
            request = v1.NodeGetInfoRequest()
            info = await driver.node.node_get_info(request, timeout=NODE_INFO_TIMEOUT)
        except RpcError as error:
            return str(error)
        topology = info.accessible_topology
        entry = membership.Registered(
            driver=name,
            node_id=info.node_id,
            segments=dict(topology.segments) if topology is not None else {},
            limit=info.max_volumes_per_node,
        )
        try:
            await self._retrying(lambda: self._node.add_driver(entry))
        except membership.RefusedError as error:
            return str(error)
        return ""

    async def _retrying(self, write: Callable[[], Awaitable[None]]) -> None:
        """The API server's troubles are not the driver's: write until it succeeds."""
        failures = 0
        while True:
            try:
                return await write()
            except errors.ApiError as error:
                delay = backoff.delay(failures, RETRY_START, RETRY_MAX)
                self._log.warning("Node not updated yet", err=error, delay=delay)
                failures += 1
                await asyncio.sleep(delay)

    async def _deregister(self, path: str) -> None:
        if task := self._tasks.pop(path, None):
            task.cancel()
        if name := self._registered.pop(path, None):
            self._log.info("Driver deregistered", driver=name)
            await self._drivers.remove(name)
            await self._retrying(lambda: self._node.remove_driver(name))
            self._on_change(name)


def _invalid(info: registration.PluginInfo) -> str:
    if info.type != registration.TYPE:
        return f"type {info.type!r} is not supported, only {registration.TYPE}"
    if not info.name:
        return "name is empty"
    if not any(version.lstrip("v").partition(".")[0] == "1" for version in info.supported_versions):
        return f"supported_versions {list(info.supported_versions)} hold no version 1"
    return ""


def sockets(folder: pathlib.Path) -> dict[str, Stamp]:
    """Every socket below the folder, dot-names left out, with what tells it from a later one."""
    found = {}
    for root, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in files:
            path = pathlib.Path(root, name)
            try:
                status = path.lstat()
            except OSError:
                continue  # gone meanwhile
            if stat.S_ISSOCK(status.st_mode) and not name.startswith("."):
                found[str(path)] = (status.st_ino, status.st_ctime_ns)
    return found
