"""Pods on the nodes of a full Kubernetes, and what their network leaves on a node."""

import asyncio
import json
import os
import pathlib
import signal
from collections.abc import Mapping, Sequence
from typing import Any

from support import cluster as clusters
from support import processes, servers, waiting

IMAGE = "busybox:1.37"
NETWORK = "pods"
PATIENCE = 90.0
"""Seconds for pods to come or go: kubelets that were told to try again later take their time."""


class Pods:
    """The pods of one test."""

    def __init__(self, cluster: clusters.Cluster) -> None:
        self._cluster = cluster
        self._path = f"/api/v1/namespaces/{cluster.namespace}/pods"

    async def create(
        self,
        name: str,
        machine: servers.Machine,
        *command: str,
        annotations: Mapping[str, str] | None = None,
        port: int = 0,
    ) -> None:
        """Create a pod on a node; ``port`` of the node leads to its port 80."""
        ports = [{"containerPort": 80, "hostPort": port}] if port else []
        words = list(command or ("sleep", "1000"))
        container = {"name": "c", "image": IMAGE, "command": words, "ports": ports}
        body = {
            "metadata": {"name": name, "annotations": dict(annotations or {})},
            "spec": {
                "nodeName": machine.name,
                "terminationGracePeriodSeconds": 0,
                "automountServiceAccountToken": False,
                "containers": [container],
            },
        }
        await self._cluster.request("POST", self._path, body)

    async def delete_all(self) -> None:
        """Delete every pod and wait until none is left."""
        await self._cluster.request("DELETE", self._path)

        async def gone() -> bool:
            return not await self._list()

        await waiting.until(gone, "end of all pods", PATIENCE)

    async def await_running(self, count: int) -> dict[str, str]:
        """Wait until so many pods run; return their addresses by name."""

        async def running() -> dict[str, str] | None:
            found = {one["metadata"]["name"]: one["status"] for one in await self._list()}
            up = {
                name: status["podIP"]
                for name, status in found.items()
                if status.get("phase") == "Running" and status.get("podIP")
            }
            return up if len(up) == count else None

        return await waiting.until(running, f"{count} running pods", PATIENCE)

    async def _list(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = (await self._cluster.request("GET", self._path))["items"]
        return found


async def inside(machine: servers.Machine, *command: str, check: bool = True) -> str:
    """Run a program on a node and return its output."""
    return await processes.run([*machine.enter, *command], timeout=30, check=check)


async def links(machine: servers.Machine) -> list[dict[str, Any]]:
    """Return the links of a node that an attachment made, known by their alias."""
    every = json.loads(await inside(machine, "ip", "-j", "-d", "link", "show"))
    return [link for link in every if str(link.get("ifalias", "")).startswith("bitts-cni ")]


async def leftovers(machine: servers.Machine) -> list[str]:
    """Return what attachments left on a node: links, set elements, addresses, open requests."""
    found = [str(link["ifname"]) for link in await links(machine)]
    rules = await inside(machine, "nft", "-j", "list", "table", "inet", "bitts_cni", check=False)
    for entry in json.loads(rules).get("nftables", []) if rules.startswith("{") else []:
        for kind in ("set", "map"):
            found += [f"{kind} element {one}" for one in entry.get(kind, {}).get("elem", [])]
    given = await inside(machine, "ls", f"/var/lib/cni/networks/{NETWORK}", check=False)
    found += [name for name in given.split() if name.count(".") == 3 and name[0].isdigit()]
    waits = await inside(machine, "ls", "/var/lib/bitts/cni-daemon/intents")
    return found + waits.split()


async def kill(machine: servers.Machine, program: str) -> None:
    """Kill a program of a node, and wait until the cluster has started another."""
    before = await asyncio.to_thread(pids, machine, program)
    assert before, f"no {program} on {machine.name}"
    for pid in before:
        os.kill(pid, signal.SIGKILL)

    async def another() -> bool:
        now = await asyncio.to_thread(pids, machine, program)
        return bool(now) and not set(now) & set(before)

    await waiting.until(another, f"another {program} on {machine.name}", PATIENCE)


def pids(machine: servers.Machine, program: str) -> Sequence[int]:
    """Return the processes of a program on a node. Blocking."""
    space = os.readlink(f"/proc/{machine.pid}/ns/pid_for_children")
    return [
        int(entry.name)
        for entry in pathlib.Path("/proc").iterdir()
        if entry.name.isdigit() and _is(entry, program, space)
    ]


def _is(entry: pathlib.Path, program: str, space: str) -> bool:
    try:
        words = (entry / "cmdline").read_bytes().split(b"\0")
        inside_node = os.readlink(entry / "ns/pid") == space
    except OSError:  # ended meanwhile
        return False
    # A script's first word is its interpreter.
    return inside_node and any(word.endswith(f"/{program}".encode()) for word in words[:2])
