"""The node's own objects: Node, its lease, and CSINode with the drivers registered here.

What goes into them is computed by pure functions; every write is guarded by the version it was
computed from and repeated on conflict.
"""

import asyncio
import contextlib
import datetime as dt
import json
import os
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import bitts
from bitts.core import logs
from bitts.kube import client as clients
from bitts.kube import errors, kinds, patches

from devcluster.node import names

LEASE_SECONDS, RENEW_INTERVAL = 40, 10.0
CONFLICTS = 5  # tries of one write
Obj = dict[str, Any]
NODES, CSI_NODES = kinds.NODES.untyped(), kinds.CSI_NODES.untyped()


class RefusedError(Exception):
    """The cluster's view of this node contradicts what a driver says."""


@dataclass(frozen=True, slots=True)
class Registered:
    """What a driver said about itself on this node."""

    driver: str
    node_id: str
    segments: Mapping[str, str] = field(default_factory=dict)
    limit: int = 0  # volumes at most; 0 if it did not say


def node_change(node: Obj, entry: Registered) -> Obj:
    """Labels and annotation for a driver; raises RefusedError if a label contradicts."""
    labels = node["metadata"].get("labels") or {}
    for key, value in entry.segments.items():
        if labels.get(key, value) != value:
            raise RefusedError(
                f"topology {key}={value} contradicts the node's label {key}={labels[key]}"
            )
    ids = {**_node_ids(node), entry.driver: entry.node_id}
    return _metadata(ids, dict(entry.segments))


def node_change_without(node: Obj, driver: str) -> Obj:
    """The annotation without a driver; topology labels stay, as in the kubelet."""
    return _metadata({key: v for key, v in _node_ids(node).items() if key != driver}, {})


def _metadata(ids: Mapping[str, str], labels: Mapping[str, str]) -> Obj:
    text = json.dumps(ids, sort_keys=True, separators=(",", ":")) if ids else None
    return {"metadata": {"labels": labels, "annotations": {names.NODE_IDS: text}}}


def _node_ids(node: Obj) -> dict[str, str]:
    text = (node["metadata"].get("annotations") or {}).get(names.NODE_IDS, "{}")
    try:
        return dict(json.loads(text))
    except ValueError:
        return {}  # somebody else's scribble: written anew


def csi_entry(entry: Registered) -> Obj:
    """A driver as CSINode lists it."""
    found: Obj = {"name": entry.driver, "nodeID": entry.node_id}
    found["topologyKeys"] = sorted(entry.segments)
    if entry.limit > 0:
        found["allocatable"] = {"count": min(entry.limit, 2**31 - 1)}
    return found


def ready_condition(*, ready: bool, can_mount: bool, now: str) -> Obj:
    """The node's Ready condition."""
    reason, message = "KubeletReady", "the node agent is running"
    if not ready:
        reason, message = "KubeletStopped", "the node agent was stopped"
    elif not can_mount:
        message += " without root: it registers drivers and mounts nothing"
    return {
        "type": "Ready",
        "status": "True" if ready else "False",
        "reason": reason,
        "message": message,
        "lastHeartbeatTime": now,
        "lastTransitionTime": now,
    }


class Membership:
    """Keeps the node's objects; one at a time, so that its own writes never conflict."""

    def __init__(self, client: clients.Client, name: str, *, can_mount: bool) -> None:
        self.name = name
        self._client = client
        self._can_mount = can_mount
        self._uid = ""
        self._lock = asyncio.Lock()
        self._in_use: frozenset[str] | None = None  # not known yet
        self._log = logs.get("node").bind(node=name)

    async def join(self) -> None:
        """Create the Node, its lease and its CSINode if they are not there, and be ready."""
        meta = {"name": self.name, "labels": _labels(self.name)}
        try:
            node = await self._client.create(NODES, {"metadata": meta})
        except errors.AlreadyExists:
            patch = patches.merge({"metadata": {"labels": meta["labels"]}})
            node = await self._client.patch(NODES, self.name, patch)
        self._uid = node["metadata"]["uid"]
        await self._renew()
        await self._set_ready(ready=True)
        owner = {"apiVersion": "v1", "kind": "Node", "name": self.name, "uid": self._uid}
        body = {"metadata": {"name": self.name, "ownerReferences": [owner]}}
        with contextlib.suppress(errors.AlreadyExists):
            await self._client.create(CSI_NODES, {**body, "spec": {"drivers": []}})

    async def keep_alive(self) -> None:
        """Renew the lease until cancelled; after a gap say again that the node is ready."""
        clock = asyncio.get_running_loop()
        renewed = clock.time()
        while True:
            await asyncio.sleep(RENEW_INTERVAL)
            try:
                await self._renew()
                if clock.time() - renewed > 2 * RENEW_INTERVAL:
                    await self._set_ready(ready=True)
                renewed = clock.time()
            except errors.ApiError as error:
                self._log.warning("Lease not renewed", err=error)

    async def leave(self) -> None:
        """Say that the node takes no more pods."""
        await self._set_ready(ready=False)

    async def report_in_use(self, volumes: frozenset[str]) -> None:
        """Have ``status.volumesInUse`` say at least this before anything is mounted."""
        async with self._lock:
            if volumes != self._in_use:
                body = {"status": {"volumesInUse": sorted(volumes) or None}}
                await self._client.patch(
                    NODES, self.name, patches.merge(body), subresource="status"
                )
                self._in_use = volumes

    async def add_driver(self, entry: Registered) -> None:
        """Enter a driver; raises RefusedError for a contradicting label, ApiError."""
        if not entry.node_id:
            raise RefusedError("NodeGetInfo returned no node_id")
        await self._change(NODES, lambda node: node_change(node, entry), "status")
        await self._change(CSI_NODES, lambda it: _with(it, entry.driver, csi_entry(entry)))

    async def remove_driver(self, driver: str) -> None:
        """Take a driver out; raises ApiError."""
        await self._change(CSI_NODES, lambda it: _with(it, driver, None))
        await self._change(NODES, lambda node: node_change_without(node, driver), "status")

    async def keep_drivers(self, drivers: set[str]) -> None:
        """Take out all drivers but these; raises ApiError."""
        csi_node = await self._client.get(CSI_NODES, self.name)
        for entry in csi_node["spec"].get("drivers") or ():
            if entry["name"] not in drivers:
                await self.remove_driver(entry["name"])

    async def _change(
        self, kind: kinds.Kind[Obj], change: Callable[[Obj], Obj], subresource: str = ""
    ) -> None:
        """Read, compute, write; again if somebody else wrote in between.

        The kubelet writes a Node's labels and annotations with its status.
        """
        async with self._lock:
            for attempt in range(CONFLICTS):
                seen = await self._client.get(kind, self.name)
                version = seen["metadata"]["resourceVersion"]
                patch = patches.merge(change(seen), resource_version=version)
                try:
                    await self._client.patch(kind, self.name, patch, subresource=subresource)
                    return
                except errors.Conflict:
                    if attempt == CONFLICTS - 1:
                        raise

    async def _renew(self) -> None:
        now = dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        spec = {"holderIdentity": self.name, "leaseDurationSeconds": LEASE_SECONDS}
        body: Obj = {"spec": {**spec, "renewTime": now}}
        patch = patches.merge(body)
        try:
            await self._client.patch(kinds.LEASES, self.name, patch, names.LEASE_NAMESPACE)
        except errors.NotFound:
            owner = {"apiVersion": "v1", "kind": "Node", "name": self.name, "uid": self._uid}
            body["metadata"] = {"name": self.name, "ownerReferences": [owner]}
            await self._client.create(kinds.LEASES, body, names.LEASE_NAMESPACE)

    async def _set_ready(self, *, ready: bool) -> None:
        now = dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        condition = ready_condition(ready=ready, can_mount=self._can_mount, now=now)
        body: Obj = {"status": {"conditions": [condition]}}
        if ready:
            body["status"] |= _machine(self.name)
        await self._client.patch(kinds.NODES, self.name, patches.merge(body), subresource="status")


def _with(csi_node: Obj, driver: str, entry: Obj | None) -> Obj:
    listed: Sequence[Obj] = csi_node["spec"].get("drivers") or ()
    kept = [one for one in listed if one["name"] != driver]
    return {"spec": {"drivers": [*kept, entry] if entry else kept}}


def _labels(name: str) -> Obj:
    found = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux"}
    return {**found, "kubernetes.io/arch": _architecture()}


def _architecture() -> str:
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())


def _machine(name: str) -> Obj:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 1024
    capacity = {"cpu": str(os.cpu_count() or 1), "memory": f"{memory}Ki", "pods": "500"}
    return {
        "capacity": capacity,
        "allocatable": capacity,
        "addresses": [
            {"type": "InternalIP", "address": "127.0.0.1"},
            {"type": "Hostname", "address": name},
        ],
        "nodeInfo": {
            "architecture": _architecture(),
            "operatingSystem": "linux",
            "kernelVersion": platform.release(),
            "osImage": "host",
            "containerRuntimeVersion": "none",
            "kubeletVersion": f"devcluster-{bitts.__version__}",
            "kubeProxyVersion": "",
            "machineID": "",
            "systemUUID": "",
            "bootID": "",
        },
    }
