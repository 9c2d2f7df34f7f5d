"""A node and its containers as network namespaces, and the daemon that connects them.

Each namespace is held by a process that dies with this one, so nothing stays, however the demo
ends. The daemon runs in the node's; it is asked as a runtime would ask, by running the shim.
"""

import asyncio
import contextlib
import json
import os
import pathlib
import signal
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from bitts_console import demo_run, leftovers, stack, state, supervisor
from bitts_console.network import plan

CALL_TIMEOUT = 60.0
START_TIMEOUT = 20.0
POLL = 0.02
_OWN = "/proc/self/ns/net"


class NodeError(Exception):
    """The node or its daemon does not work; the message says why."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a plugin printed and how long it took, in seconds."""

    document: Mapping[str, Any]
    seconds: float
    failed: bool


class Node:
    """The node of a demo. ``containers`` are namespaces by name; make it by ``opened``."""

    def __init__(self, home: pathlib.Path) -> None:
        self.home = home
        self.addresses = home / "addresses"
        self.containers: dict[str, str] = {}
        self.namespace = ""
        self._plugins = home / "bin"
        self._socket = home / "cni.sock"
        self._state = home / "state"
        self._holders: list[asyncio.subprocess.Process] = []
        self._daemon: asyncio.subprocess.Process | None = None
        self._log = home / "cni-daemon.log"

    async def add_namespace(self) -> str:
        """Make a network namespace and return its path."""
        prefix = await asyncio.to_thread(supervisor.death_signal)
        words = (*prefix, "unshare", "--net", "--", "sleep", "infinity")
        holder = await asyncio.create_subprocess_exec(*words, stdin=asyncio.subprocess.DEVNULL)
        self._holders.append(holder)
        path = f"/proc/{holder.pid}/ns/net"
        await _until(lambda: os.readlink(path) != os.readlink(_OWN), "a network namespace")
        await self.inside(path, "ip", "link", "set", "lo", "up")
        return path

    async def inside(self, namespace: str, *command: str) -> str:
        """Run a program in a namespace; return its output. Raises NodeError with its words."""
        return await _run("nsenter", f"--net={namespace}", "--", *command)

    async def install(self) -> None:
        """Put the shim into the demo's own plugin folder."""
        program = str(supervisor.BIN / "cni-daemon")
        await _run(
            program, "install", f"--plugin-dir={self._plugins}", f"--socket={self._socket}",
            f"--state-dir={self._state}", "--plugins=bitts",
        )  # fmt: skip

    async def start_daemon(self) -> int:
        """Start the daemon in the node; return its process ID once it answers."""
        await asyncio.to_thread(self._socket.unlink, missing_ok=True)
        prefix = await asyncio.to_thread(supervisor.death_signal)
        program = str(supervisor.BIN / "cni-daemon")
        output = await asyncio.to_thread(os.open, self._log, os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            self._daemon = await asyncio.create_subprocess_exec(
                *prefix, "nsenter", f"--net={self.namespace}", "--", program,
                f"--socket={self._socket}", f"--state-dir={self._state}",
                stdin=asyncio.subprocess.DEVNULL, stdout=output, stderr=output,
            )  # fmt: skip
        finally:
            os.close(output)
        deadline = time.monotonic() + START_TIMEOUT
        while not await supervisor.is_ready(stack.SocketReady(self._socket)):
            if self._daemon.returncode is not None or time.monotonic() > deadline:
                words = await asyncio.to_thread(supervisor.last_lines, self._log)
                raise NodeError(f"cni-daemon does not start:\n{words}")
            await asyncio.sleep(POLL)
        return self._daemon.pid

    async def kill_daemon(self) -> None:
        """End the daemon as a crash would."""
        if self._daemon is not None and self._daemon.returncode is None:
            self._daemon.kill()
            await self._daemon.wait()

    async def call(self, verb: str, container: str, runtime: Mapping[str, object]) -> Answer:
        """Run the plugin as a container runtime does."""
        variables = {
            "CNI_COMMAND": verb,
            "CNI_CONTAINERID": container,
            "CNI_NETNS": self.containers[container],
            "CNI_IFNAME": "eth0",
            "CNI_PATH": str(self._plugins),
        }
        begin = time.perf_counter()
        child = await asyncio.create_subprocess_exec(
            str(self._plugins / "bitts"),
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, env=variables,
        )  # fmt: skip
        document = json.dumps(plan.configuration(str(self.addresses), runtime)).encode()
        try:
            async with asyncio.timeout(CALL_TIMEOUT):
                output, _ = await child.communicate(document)
        finally:
            if child.returncode is None:
                child.kill()
                await child.wait()
        seconds = time.perf_counter() - begin
        return Answer(json.loads(output or b"{}"), seconds, child.returncode != 0)

    def requests_left(self) -> list[str]:
        """Return addresses that are still given out and DELs that wait. Blocking."""
        folder = self.addresses / plan.NETWORK
        given = [one for one in _names(folder) if one != "lock" and not one.startswith("last_")]
        return [*given, *_names(self._state / "intents")]

    async def close(self) -> None:
        """End the daemon in order, and with their holders all namespaces."""
        with contextlib.suppress(ProcessLookupError, TimeoutError):
            if self._daemon is not None and self._daemon.returncode is None:
                self._daemon.send_signal(signal.SIGTERM)
                async with asyncio.timeout(START_TIMEOUT):
                    await self._daemon.wait()
        await self.kill_daemon()
        for holder in self._holders:
            with contextlib.suppress(ProcessLookupError):
                holder.kill()
            await holder.wait()


@contextlib.asynccontextmanager
async def opened(containers: tuple[str, ...]) -> AsyncIterator[Node]:
    """Make a node with containers and its daemon; all of it goes at the end.

    A demo that is killed leaves a folder, which the next one of any kind finds by its name.
    """
    home = pathlib.Path(
        await asyncio.to_thread(tempfile.mkdtemp, "", demo_run.prefix(), state.TEMPORARY)
    )
    node = Node(home)
    try:
        node.namespace = await node.add_namespace()
        for name in containers:
            node.containers[name] = await node.add_namespace()
        await node.install()
        await node.start_daemon()
        yield node
    finally:
        await asyncio.shield(node.close())
        await asyncio.shield(leftovers.delete(home))


def _names(folder: pathlib.Path) -> list[str]:
    return sorted(one.name for one in folder.iterdir()) if folder.exists() else []


async def _until(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + START_TIMEOUT
    while not await asyncio.to_thread(holds):
        if time.monotonic() > deadline:
            raise NodeError(f"{what} is not there within {START_TIMEOUT:g} s")
        await asyncio.sleep(POLL)


async def _run(*command: str) -> str:
    child = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        async with asyncio.timeout(CALL_TIMEOUT):
            output, _ = await child.communicate()
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
    text = output.decode(errors="replace")
    if child.returncode:
        raise NodeError(f"{' '.join(command)}: {text.strip()}")
    return text
