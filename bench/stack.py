"""What a benchmark runs on: a cluster of either kind, a driver, and one registered node.

The node is just its Node and CSINode objects: provisioning needs no kubelet.
"""

import asyncio
import contextlib
import json
import os
import pathlib
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import aiohttp
from support import audit, processes, servers, waiting
from support import cluster as clusters

from bench import measuring

NODE = "bench-node"
CLASS = "bench"
WRITES = frozenset({"create", "update", "patch", "delete", "deletecollection"})
CORES = os.sched_getaffinity(0)
PARALLEL = 40
"""Requests in flight while claims are created and deleted."""


def cpu_by_program(*roots: int) -> dict[str, float]:
    """Return the CPU seconds so far of each program of these processes and what they started."""
    found: dict[str, float] = {}
    left = list(roots)
    while left:
        pid = left.pop()
        with contextlib.suppress(OSError):  # one that has ended meanwhile
            process = pathlib.Path(f"/proc/{pid}")
            name = (process / "comm").read_text().strip()
            found[name] = found.get(name, 0.0) + measuring.cpu_seconds(pid)
            for task in (process / "task").iterdir():
                left += map(int, (task / "children").read_text().split())
    return found


@dataclass(frozen=True, slots=True)
class Stack:
    """A running cluster and driver."""

    cluster: clusters.Cluster
    driver: clusters.Driver

    def cpu(self) -> dict[str, float]:
        """Return the CPU seconds so far of the cluster's programs and of the driver."""
        return cpu_by_program(self.cluster.server.process.pid, self.driver.process.pid)

    async def write_counts(self, program: str) -> Counter[str]:
        """Return how many writes a program made since the counters were cleared, by resource."""
        found: Counter[str] = Counter()
        for row in await self.cluster.requests(program):
            if row.verb in WRITES:
                found[f"{row.verb} {row.resource}"] += row.count
        return found

    async def writers(self) -> Counter[str]:
        """Return how many writes each program made since the counters were cleared.

        Without the benchmark's own. The embedded cluster's controllers make none by HTTP.
        """
        found: Counter[str] = Counter()
        for row in await self.cluster.requests():
            if row.verb in WRITES and servers.USER_AGENT not in row.user_agent:
                found[audit.program(row.user_agent)] += row.count
        return found

    async def until_watching(self, program: str, timeout: float) -> None:
        """Wait until a program watches claims, volumes and classes: its caches are synced."""
        wanted = {"persistentvolumeclaims", "persistentvolumes", "storageclasses.storage.k8s.io"}

        async def watched() -> bool:
            rows = await self.cluster.requests(program)
            return wanted <= {row.resource for row in rows if row.verb == "watch"}

        await waiting.until(watched, f"{program} watches {wanted}", timeout, interval=0.005)

    async def create_claims(self, count: int, timeout: float) -> float:
        """Create claims; return the seconds from the first one to the last volume."""
        claim = {
            "spec": {
                "storageClassName": CLASS,
                "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "1Mi"}},
            }
        }
        path = f"/api/v1/namespaces/{self.cluster.namespace}/persistentvolumeclaims"
        started = time.monotonic()
        async with asyncio.TaskGroup() as group:
            seen = group.create_task(
                self._count_volumes(lambda known: len(known) >= count, timeout)
            )
            await self._each(
                count,
                lambda n: self.cluster.request(
                    "POST", path, {**claim, "metadata": {"name": f"b{n}"}}
                ),
            )
            await seen
        return time.monotonic() - started

    async def until_bound(self, count: int, timeout: float) -> None:
        """Wait until every claim is Bound, so that deletion starts from a settled state."""
        path = f"/api/v1/namespaces/{self.cluster.namespace}/persistentvolumeclaims"

        async def bound() -> bool:
            items = (await self.cluster.request("GET", path))["items"]
            phases = [item.get("status", {}).get("phase") for item in items]
            return phases.count("Bound") == count

        await waiting.until(bound, "every claim is Bound", timeout, interval=0.25)

    async def delete_claims(self, count: int, timeout: float) -> float:
        """Delete all claims; return the seconds until no volume is left."""
        path = f"/api/v1/namespaces/{self.cluster.namespace}/persistentvolumeclaims"
        started = time.monotonic()
        async with asyncio.TaskGroup() as group:
            seen = group.create_task(self._count_volumes(lambda known: not known, timeout))
            await self._each(count, lambda n: self.cluster.request("DELETE", f"{path}/b{n}"))
            await seen
        return time.monotonic() - started

    async def _each(self, count: int, request: Callable[[int], Any]) -> None:
        limit = asyncio.Semaphore(PARALLEL)

        async def one(number: int) -> None:
            async with limit:
                await request(number)

        await asyncio.gather(*(one(number) for number in range(count)))

    async def _count_volumes(self, enough: Callable[[set[str]], bool], timeout: float) -> None:
        """Follow the PersistentVolumes until there are as many as expected.

        A busy API server ends watches early, so it may take several.
        """
        async with self.cluster.server.session() as session, asyncio.timeout(timeout):
            while not await self._follow(session, enough):
                pass

    async def _follow(
        self, session: aiohttp.ClientSession, enough: Callable[[set[str]], bool]
    ) -> bool:
        """List and watch once; say whether there were as many as expected before it ended."""
        listed = await servers.call(session, "GET", "/api/v1/persistentvolumes")
        known = {item["metadata"]["name"] for item in listed["items"]}
        version = listed["metadata"]["resourceVersion"]
        path = f"/api/v1/persistentvolumes?watch=1&resourceVersion={version}"
        async with session.get(path, timeout=None) as stream:
            while not enough(known):
                line = await stream.content.readline()
                if not line:
                    return False
                event = json.loads(line)
                name = event["object"]["metadata"]["name"]
                (known.discard if event["type"] == "DELETED" else known.add)(name)
        return True


@contextlib.asynccontextmanager
async def running(
    folder: pathlib.Path, *, latency: str, kind: str = "embedded"
) -> AsyncIterator[Stack]:
    """Start everything but the sidecar, all on the first core.

    Kubernetes needs more than one to be a match for a sidecar, so it has all of them.
    """
    os.sched_setaffinity(0, CORES if kind == "kubernetes" else {min(CORES)})
    spawner = processes.Processes(folder / "logs")
    server = servers.Server(spawner, clusters.short_directory() / "c", kind=kind)
    await server.start()
    try:
        async with clusters.Cluster(server, processes.Processes(folder / "own")) as cluster:
            faults = (
                []
                if latency == "0"
                else [
                    f"--fault=CreateVolume:latency={latency}",
                    f"--fault=DeleteVolume:latency={latency}",
                ]
            )
            driver = await cluster.start_driver(*faults, node_id=NODE)
            await _register(cluster, driver.name)
            yield Stack(cluster, driver)
    finally:
        spawner.close()
        clusters.remove_tree(server.directory.parent)


async def _register(cluster: clusters.Cluster, driver: str) -> None:
    topology_key = f"topology.{driver}/node"
    labels = {topology_key: NODE, "kubernetes.io/hostname": NODE}
    await cluster.request("POST", "/api/v1/nodes", {"metadata": {"name": NODE, "labels": labels}})
    entry = {"name": driver, "nodeID": NODE, "topologyKeys": [topology_key]}
    body = {"metadata": {"name": NODE}, "spec": {"drivers": [entry]}}
    await cluster.request("POST", "/apis/storage.k8s.io/v1/csinodes", body)
    storage_class = {
        "metadata": {"name": CLASS},
        "provisioner": driver,
        "reclaimPolicy": "Delete",
        "volumeBindingMode": "Immediate",
    }
    await cluster.request("POST", "/apis/storage.k8s.io/v1/storageclasses", storage_class)
