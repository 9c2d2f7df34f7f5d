"""``bitts demo``: claims become volumes, pods write and read them, all goes again.

Nothing is taken on trust: bound claims are compared with their volumes, the cluster's volumes
with the driver's list, the bytes by checksums from different pods, and at the end the kernel's
own tables say that nothing is left.
"""

import asyncio
import pathlib
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bitts.csi import driver as drivers
from bitts.csi import v1
from bitts.kube import client as clients
from bitts.kube import errors, kinds, objects

from bitts_console import follow, leftovers, progress, scenario, state, verify

NAMESPACE = "bitts-demo"
"""Where the demo creates its objects, whatever namespace the manifests name."""

CALL_TIMEOUT = 10.0
POLL = 0.05

KINDS: Mapping[str, kinds.Kind[Any]] = {
    "Namespace": kinds.NAMESPACES,
    "StorageClass": kinds.STORAGE_CLASSES,
    "CSIDriver": kinds.CSI_DRIVERS,
    "PersistentVolumeClaim": kinds.PERSISTENT_VOLUME_CLAIMS,
    "Pod": kinds.PODS,
}


class DemoError(Exception):
    """The demo saw something wrong; the message lists it."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the demo made and saw to its end."""

    claims: int
    pods: int


@dataclass(frozen=True, slots=True)
class Place:
    """Where a demo runs: a cluster, a driver and the folders of the stack they belong to.

    ``is_exclusive``: they are there for this demo alone, so that nothing at all may be left
    afterwards; else only what the demo made is looked at.
    """

    client: clients.Client
    driver: drivers.Driver
    folders: state.Folders
    is_exclusive: bool


class Demo:
    """One run of a scenario; ``timeout`` is in seconds and bounds each wait."""

    def __init__(
        self, plan: scenario.Scenario, place: Place, board: progress.Board, timeout: float
    ) -> None:
        self._plan = plan
        self._place = place
        self._client = place.client
        self._board = board
        self._timeout = timeout
        self._created: list[scenario.Manifest] = []
        self._handles: dict[str, str] = {}
        self._before = leftovers.Leftovers()

    async def run(self) -> Outcome:
        """Create, watch, verify, delete, and look for traces.

        Raises DemoError or FollowError; objects then stay as they are, to be looked at.
        """
        self._before = await self._in_kernel()
        self._board.phase("create the objects")
        await self._create()
        async with follow.follow(self._client, NAMESPACE) as seen:
            await self._await_claims(seen)
            await self._await_pods(seen)
            self._board.phase("verify volumes and bytes" if self._plan.pods else "verify volumes")
            await self._verify()
            await self._delete(seen)
            self._board.phase("look for traces")
            await self._prove_clean(seen)
        return Outcome(len(self._plan.claims), len(self._plan.pods))

    async def _create(self) -> None:
        """Create in order of kinds, the objects of one kind at once."""
        for kind in scenario.ORDER:
            await together(self._create_one(m) for m in self._plan.of_kind(kind))

    async def _create_one(self, manifest: scenario.Manifest) -> None:
        try:
            await self._client.create(
                KINDS[manifest.kind], manifest.body, manifest.namespace or None
            )
            self._created.append(manifest)
        except errors.AlreadyExists:
            if manifest.kind != "StorageClass":
                raise DemoError(
                    f"{manifest.kind} {manifest.name} is left from an earlier demo: "
                    f"kubectl delete namespace {NAMESPACE}"
                ) from None

    async def _await_claims(self, seen: follow.Followed) -> None:
        self._board.phase("claims become volumes")
        keys = [f"{claim.namespace}/{claim.name}" for claim in self._plan.claims]

        def pending() -> list[str]:
            found = {key: seen.claims.get(key) for key in keys}
            return [
                f"claim {key}" for key, c in found.items() if not c or c.status.phase != "Bound"
            ]

        await seen.until(
            "claims are not bound", pending, timeout=self._timeout, notes=lambda: self._note(seen)
        )

    async def _await_pods(self, seen: follow.Followed) -> None:
        if not self._plan.pods:
            return
        self._board.phase("pods write and read")
        keys = [f"{pod.namespace}/{pod.name}" for pod in self._plan.pods]

        def pending() -> list[str]:
            found = {key: seen.pods.get(key) for key in keys}
            return [f"pod {key}" for key, pod in found.items() if not pod or not pod.finished]

        await seen.until(
            "pods have not ended", pending, timeout=self._timeout, notes=lambda: self._note(seen)
        )

    def _note(self, seen: follow.Followed) -> None:
        """Show what is known of every object of the plan."""
        for claim in self._plan.claims:
            found = seen.claims.get(f"{claim.namespace}/{claim.name}")
            if found is not None:
                detail = " ".join([found.storage_class_name, found.spec.volume_name])
                self._board.state("claim", claim.name, found.status.phase or "Pending", detail)
        for pod in self._plan.pods:
            running = seen.pods.get(f"{pod.namespace}/{pod.name}")
            if running is not None:
                where = running.spec.node_name
                self._board.state("pod", pod.name, running.status.phase or "Pending", where)

    async def _verify(self) -> None:
        claims = await self._read(kinds.PERSISTENT_VOLUME_CLAIMS, NAMESPACE)
        every = {v["metadata"]["name"]: v for v in await self._read(kinds.PERSISTENT_VOLUMES)}
        own = [every.get(claim["spec"].get("volumeName", "")) for claim in claims]
        verdicts = [verify.volume(c, v) for c, v in zip(claims, own, strict=True)]
        self._handles = {v["metadata"]["name"]: v["spec"]["csi"]["volumeHandle"] for v in own if v}
        listed = await self._listed()
        verdicts.append(
            verify.at_driver(self._handles.values(), listed, is_exclusive=self._place.is_exclusive)
        )
        pods = {p["metadata"]["name"]: p for p in await self._read(kinds.PODS, NAMESPACE)}
        verdicts += verify.data(
            [verify.pod_result(pods[p.name], scenario.data_id(p)) for p in self._plan.pods]
        )
        self._judge(verdicts)

    def _judge(self, verdicts: list[verify.Verdict]) -> None:
        for verdict in verdicts:
            word = "verified" if verdict.ok else "WRONG"
            self._board.note(
                f"{word}: {verdict.subject}: {verdict.text}", is_trouble=not verdict.ok
            )
        wrong = [f"{verdict.subject}: {verdict.text}" for verdict in verdicts if not verdict.ok]
        if wrong:
            raise DemoError("; ".join(wrong))

    async def _delete(self, seen: follow.Followed) -> None:
        self._board.phase("delete everything")
        for kind in ("Pod", "PersistentVolumeClaim"):
            await together(self._delete_one(m) for m in self._created if m.kind == kind)

        def pending() -> list[str]:
            groups: list[tuple[str, list[str]]] = [
                ("pod", [pod.name for pod in seen.pods.items()]),
                ("claim", [claim.name for claim in seen.claims.items()]),
                ("volume", [volume.name for volume in seen.own_volumes()]),
            ]
            return [f"{kind} {name}" for kind, names in groups for name in names]

        def notes() -> None:
            for kind, cache in (("pod", seen.pods), ("claim", seen.claims)):
                plan = self._plan.pods if kind == "pod" else self._plan.claims
                gone = [m for m in plan if f"{m.namespace}/{m.name}" not in cache]
                for manifest in gone:
                    self._board.state(kind, manifest.name, "gone")

        await seen.until("deletion is stuck", pending, timeout=self._timeout, notes=notes)
        for kind in ("StorageClass", "Namespace"):
            await together(self._delete_one(m) for m in self._created if m.kind == kind)
        await self._await_namespace_gone()

    async def _delete_one(self, manifest: scenario.Manifest) -> None:
        try:
            await self._client.delete(
                KINDS[manifest.kind], manifest.name, manifest.namespace or None
            )
        except errors.NotFound:
            return

    async def _await_namespace_gone(self) -> None:
        """The next demo must be able to make it anew."""
        try:
            async with asyncio.timeout(self._timeout):
                while True:
                    await self._client.get(kinds.NAMESPACES, NAMESPACE)
                    await asyncio.sleep(POLL)
        except errors.NotFound:
            return
        except TimeoutError:
            raise DemoError(
                f"namespace {NAMESPACE} is not gone after {self._timeout:g} s"
            ) from None

    async def _prove_clean(self, seen: follow.Followed) -> None:
        """Nothing in the cluster, at the driver, or in the kernel."""
        listed = await self._listed()
        attached = seen.attachments.items()
        if not self._place.is_exclusive:
            listed = [handle for handle in listed if handle in self._handles.values()]
            attached = [a for a in attached if source_of(a) in self._handles]
        traces = [f"PersistentVolume {volume.name}" for volume in seen.own_volumes()]
        traces += [f"VolumeAttachment {one.name}" for one in attached]
        traces += [f"volume {handle} at the driver" for handle in listed]
        found = await self._in_kernel()
        traces += [
            f"mount {target}" for target in found.mounts if target not in self._before.mounts
        ]
        traces += [
            f"loop device {device}"
            for device in found.loop_devices
            if device not in self._before.loop_devices
        ]
        kernel = ", mount or loop device" if self._place.is_exclusive else ""
        text = "; ".join(traces) or f"no PersistentVolume, attachment, volume at the driver{kernel}"
        self._judge([verify.Verdict("traces", text, ok=not traces)])

    async def _in_kernel(self) -> leftovers.Leftovers:
        """Look at the stack's mounts and loop devices; nothing where others use it too.

        A driver may have some of its own before there is any volume: a btrfs for all of them.
        """
        if not self._place.is_exclusive:
            return leftovers.Leftovers()
        folders = self._place.folders
        return await asyncio.to_thread(leftovers.find, [folders.state, folders.runtime])

    async def _read(self, kind: kinds.Kind[Any], namespace: str = "") -> Sequence[dict[str, Any]]:
        return (await self._client.list_all(kind.untyped(), namespace or None)).items

    async def _listed(self) -> list[str]:
        """Return the handles of all volumes that the driver knows."""
        handles: list[str] = []
        token = ""
        while True:
            request = v1.ListVolumesRequest(starting_token=token)
            reply = await self._place.driver.controller.list_volumes(request, timeout=CALL_TIMEOUT)
            handles += [entry.volume.volume_id for entry in reply.entries if entry.volume]
            token = reply.next_token
            if not token:
                return handles


def source_of(attachment: objects.VolumeAttachment) -> str:
    """Return the name of the PersistentVolume that an attachment is about ("" if inline)."""
    return attachment.spec.source.persistent_volume_name or ""


async def together(work: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Do everything at once; the first failure ends the rest and is raised as itself."""
    try:
        async with asyncio.TaskGroup() as tasks:
            for one in work:
                tasks.create_task(one)
    except BaseExceptionGroup as group:
        raise group.exceptions[0] from None


def read_manifests(folder: pathlib.Path | None) -> scenario.Scenario:
    """Read the manifests of a folder, by default the examples that come along. Blocking.

    Raises ManifestError when there are none, or one is wrong.
    """
    chosen = folder or default_manifests()
    if not chosen.is_dir():
        raise scenario.ManifestError(f"{chosen} is no folder: give one with --manifests")
    texts = {path.name: path.read_text() for path in chosen.glob("*.yaml")}
    return scenario.within(scenario.parse(texts), NAMESPACE)


def default_manifests() -> pathlib.Path:
    """Return ``examples/`` of the source tree, else the copy inside the installed package."""
    package = pathlib.Path(__file__).parent
    beside = package.parents[2] / "examples"
    return beside if beside.is_dir() else package / "examples"
