"""The agent's loop over pods: what is seen of one, and how each step is carried out.

The key is the pod's UID: a pod made anew under the same name is another pod, and what an
earlier one left on disk is found without its object.
"""

import asyncio
import signal
import time
from dataclasses import dataclass

import msgspec
from bitts.core import ledger, reconcile, workqueue
from bitts.kube import cache as caches
from bitts.kube import client as clients
from bitts.kube import errors, events, objects, patches

from devcluster.node import (
    commands,
    containers,
    decide,
    membership,
    model,
    paths,
    records,
    sources,
    volumes,
)

WORKERS = 16
RETRY_START, RETRY_MAX = 0.2, 20.0  # seconds
NEEDS_ROOT = (
    "this node agent runs without root (it lacks CAP_SYS_ADMIN): it registers drivers, but it can "
    "neither mount volumes nor run pods; start devcluster-node as root"
)


class CannotMountError(Exception):
    """The agent has no rights to run pods."""


EXPECTED = (*volumes.Problem, containers.StartError, CannotMountError)
"""What can go wrong for reasons outside the agent; anything else is a fault of ours."""


@dataclass(frozen=True, slots=True)
class Parts:
    """What the loop works with."""

    client: clients.Client
    pods: caches.Cache[model.Pod]
    records: records.Records
    volumes: volumes.Volumes
    node: membership.Membership
    events: events.EventRecorder
    layout: paths.Layout
    can_mount: bool


class Pods:
    """Brings every pod of this node where it should be."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self.queue = workqueue.WorkQueue("pods", start=RETRY_START, maximum=RETRY_MAX)
        self._containers = containers.Containers(parts.layout, self.queue.add)
        self._problems: dict[str, str] = {}
        self.ledger = ledger.Ledger()
        self._controller = reconcile.Controller[model.Seen, model.Action](
            "pods",
            queue=self.queue,
            ledger=self.ledger,
            workers=WORKERS,
            observe=self._observe,
            decide=decide.decide,
            perform=self._perform,
            settle=decide.settle,
            expected=EXPECTED,
        )
        parts.pods.add_index("uid", lambda pod: [pod.uid])

    async def load(self) -> None:
        """Take over what an earlier agent left, before anything is decided."""
        await self._parts.records.load()
        for record in self._parts.records.all():
            await self._containers.load(record.uid)

    async def run(self) -> None:
        """Work until cancelled; the cache of pods must be in step."""
        self._parts.pods.subscribe(self._changed, own_writes=self._wrote)
        self.wake()
        await self._controller.run()

    def wake(self) -> None:
        """Look at every pod again: a driver came or went."""
        for record in self._parts.records.all():
            self.queue.add(record.uid)
        for pod in self._parts.pods.items():
            self.queue.add(pod.uid)

    def attachment_changed(
        self, old: objects.VolumeAttachment | None, new: objects.VolumeAttachment | None
    ) -> None:
        """Look at the pods that wait for an attachment."""
        names = {one.name for one in (old, new) if one is not None}
        for record in self._parts.records.all():
            if any(volume.attachment in names for volume in record.volumes):
                self.queue.add(record.uid)

    def _changed(self, old: model.Pod | None, new: model.Pod | None) -> None:
        for pod in (old, new):
            if pod is not None:
                self.queue.add(pod.uid)

    def _wrote(self, _old: model.Pod | None, new: model.Pod | None) -> None:
        """A status of ours is no reason to try again sooner."""
        if new is not None:
            self.queue.add(new.uid, own_write=True)

    def _observe(self, uid: str) -> model.Seen | None:
        pod = next(iter(self._parts.pods.by_index("uid", uid)), None)
        record = self._parts.records.get(uid)
        if pod is None and record is None:
            self._problems.pop(uid, None)
            self._containers.forget(uid)
            return None
        return model.Seen(
            uid=uid,
            pod=pod,
            record=record,
            containers=self._containers.of(uid),
            problem=self._problems.get(uid, ""),
            can_mount=self._parts.can_mount,
            now=time.time(),
        )

    async def _perform(self, action: model.Action, seen: model.Seen) -> None:
        try:
            await self._carry_out(action, seen)
        except EXPECTED as error:
            self._tell(action, seen, error)
            raise
        if isinstance(action, model.SetUp | model.Start):
            self._problems.pop(seen.uid, None)

    async def _carry_out(self, action: model.Action, seen: model.Seen) -> None:
        match action, seen.pod:
            case model.SetUp(), model.Pod() as pod:
                await self._set_up(pod)
            case model.Start(name, attempt), model.Pod() as pod:
                await self._start(pod, name, attempt)
            case model.Kill(name, force), pod:
                number = signal.SIGKILL if force else signal.SIGTERM
                self._containers.kill(seen.uid, name, number)
                if pod and not seen.containers[name].asked:
                    self._told(pod, "Killing", f"stopping container {name}")
            case model.TearDown(), _:
                await self._tear_down(seen.uid)
            case model.Forget(), _:
                await self._parts.records.remove(seen.uid)
            case model.Report(status), model.Pod() as pod:
                await self._report(pod, patches.merge({"status": status}))
            case model.Finish(), model.Pod() as pod:
                await self._finish(pod)

    async def _set_up(self, pod: model.Pod) -> None:
        parts = self._parts
        if not parts.can_mount:
            raise CannotMountError(NEEDS_ROOT)
        found = await sources.resolve(parts.client, pod)
        mounted = await parts.volumes.plan(pod, found)
        record = model.Record(uid=pod.uid, namespace=pod.namespace, name=pod.name, volumes=mounted)
        if parts.records.get(pod.uid) != record:
            await parts.records.write(record)
        await self.report_in_use()
        by_name = {one.name: one for one in mounted}
        group = (pod.spec.get("securityContext") or {}).get("fsGroup")
        for source in found:
            if isinstance(source, sources.Csi):
                await parts.volumes.mount(pod, source, by_name[source.name])
            elif isinstance(source, sources.Folder):
                folder = parts.layout.plain_volume(pod.uid, source.plugin, source.name)
                await asyncio.to_thread(volumes.make_folder, folder, source, group)
        await parts.records.write(msgspec.structs.replace(record, ready=True))

    async def _start(self, pod: model.Pod, name: str, attempt: int) -> None:
        record = self._parts.records.get(pod.uid)
        if record is None:
            raise containers.StartError("its volumes are gone")
        command = await asyncio.to_thread(
            commands.build, pod, name, attempt, record, self._parts.layout
        )
        await self._containers.start(pod.uid, name, command)
        self._told(pod, "Created", f"created container {name}")
        self._told(pod, "Started", f"started container {name}")

    def _told(self, pod: model.Pod, reason: str, message: str) -> None:
        self._parts.events.emit(model.PODS.refer(pod), events.NORMAL, reason, message)

    async def _tear_down(self, uid: str) -> None:
        """Every volume is tried, whatever becomes of the others."""
        record = self._parts.records.get(uid)
        if record is None:
            return
        await asyncio.to_thread(volumes.unmount_ours, self._parts.layout.pod(uid))
        problem = None
        for mounted in record.volumes:
            try:
                await self._parts.volumes.unmount(uid, mounted)
            except volumes.Problem as error:
                problem = error
        await self.report_in_use()
        if problem is not None:
            raise problem

    async def report_in_use(self) -> None:
        """Have the node's status list what its pods have, or are about to get, attached."""
        used = {v.unique_name for record in self._parts.records.all() for v in record.volumes}
        await self._parts.node.report_in_use(frozenset(used - {""}))

    async def _report(self, pod: model.Pod, patch: patches.Patch) -> None:
        try:
            written = await self._parts.client.patch(
                model.PODS, pod.name, patch, pod.namespace, subresource="status"
            )
        except errors.NotFound:
            return
        self._parts.pods.overlay(written)

    async def _finish(self, pod: model.Pod) -> None:
        try:
            await self._parts.client.delete(
                model.PODS, pod.name, pod.namespace, uid=pod.uid, grace=0
            )
        except (errors.NotFound, errors.Conflict):
            return

    def _tell(self, action: model.Action, seen: model.Seen, error: Exception) -> None:
        """Keep the problem for the pod's status, and report it once it is one."""
        self._problems[seen.uid] = str(error)
        waiting = isinstance(error, model.VolumeError) and error.wait is not None
        if seen.pod is None or waiting:
            return
        reason = {model.SetUp: "FailedMount", model.TearDown: "FailedUnMount"}.get(type(action))
        if isinstance(action, model.Start):
            reason = "Failed"
        if reason:
            about = model.PODS.refer(seen.pod)
            self._parts.events.emit(about, events.WARNING, reason, str(error))
