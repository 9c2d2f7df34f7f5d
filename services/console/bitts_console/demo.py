"""``bitts demo``: claims become volumes, pods write and read them, all goes again.

Nothing is taken on trust: bound claims are compared with their volumes, the cluster's volumes
with the driver's list, the bytes by checksums from different pods, and at the end the kernel's
own tables say that nothing is left.
"""

import asyncio
import pathlib
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bitts.csi import driver as drivers
from bitts.csi import v1
from bitts.kube import client as clients
from bitts.kube import errors, kinds

from bitts_console import follow, leftovers, progress, scenario, state, verify

BIND_TIMEOUT = 30.0
POD_TIMEOUT = 60.0
DELETE_TIMEOUT = 30.0
CALL_TIMEOUT = 10.0

KINDS: Mapping[str, kinds.Kind[Any]] = {
    "Namespace": kinds.NAMESPACES,
    "StorageClass": kinds.STORAGE_CLASSES,
    "CSIDriver": kinds.CSI_DRIVERS,
    "PersistentVolumeClaim": kinds.PERSISTENT_VOLUME_CLAIMS,
    "Pod": kinds.PODS,
}


class DemoError(Exception):
    """The demo saw something wrong; the message lists it."""


@dataclass(slots=True)
class Outcome:
    """What the demo did and saw."""

    claims: int = 0
    pods: int = 0
    verdicts: list[verify.Verdict] = field(default_factory=list)


class Demo:
    """One run of a scenario on a cluster with a driver."""

    def __init__(
        self,
        plan: scenario.Scenario,
        client: clients.Client,
        driver: drivers.Driver,
        folders: state.Folders,
        board: progress.Board,
    ) -> None:
        self._plan = plan
        self._client = client
        self._driver = driver
        self._folders = folders
        self._board = board
        self._outcome = Outcome(len(plan.claims), len(plan.pods))

    async def run(self) -> Outcome:
        """Create, watch, verify, delete, and look for traces.

        Raises DemoError or FollowError; objects then stay as they are, to be looked at.
        """
        namespaces = {manifest.namespace for manifest in self._plan.claims}
        if len(namespaces) != 1:
            raise DemoError("the manifests must have all their claims in one namespace")
        self._board.phase("create the objects")
        before = set(await self._listed())
        await self._create()
        async with follow.follow(self._client, namespaces.pop()) as seen:
            await self._await_claims(seen)
            await self._await_pods(seen)
            self._board.phase("verify volumes and bytes")
            await self._verify(seen, before)
            await self._delete(seen)
            self._board.phase("look for traces")
            await self._prove_clean(seen, before)
        return self._outcome

    async def _create(self) -> None:
        """Create in order of kinds, the objects of one kind at once."""
        for kind in scenario.ORDER:
            await together(self._create_one(m) for m in self._plan.of_kind(kind))

    async def _create_one(self, manifest: scenario.Manifest) -> None:
        try:
            await self._client.create(
                KINDS[manifest.kind], manifest.body, manifest.namespace or None
            )
        except errors.AlreadyExists:
            if manifest.kind in ("PersistentVolumeClaim", "Pod"):
                raise DemoError(
                    f"{manifest.kind} {manifest.name} is already there: delete the namespace "
                    f"{manifest.namespace} first"
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
            "claims are not bound", pending, timeout=BIND_TIMEOUT, notes=lambda: self._note(seen)
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
            "pods have not ended", pending, timeout=POD_TIMEOUT, notes=lambda: self._note(seen)
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

    async def _verify(self, seen: follow.Followed, before: set[str]) -> None:
        claims = await self._read(kinds.PERSISTENT_VOLUME_CLAIMS, seen.namespace)
        every = {v["metadata"]["name"]: v for v in await self._read(kinds.PERSISTENT_VOLUMES)}
        own = [every.get(claim["spec"].get("volumeName", "")) for claim in claims]
        verdicts = [verify.volume(c, v) for c, v in zip(claims, own, strict=True)]
        listed = set(await self._listed()) - before
        verdicts.append(verify.at_driver([v for v in own if v], listed))
        pods = {p["metadata"]["name"]: p for p in await self._read(kinds.PODS, seen.namespace)}
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
        self._outcome.verdicts += verdicts
        wrong = [f"{verdict.subject}: {verdict.text}" for verdict in verdicts if not verdict.ok]
        if wrong:
            raise DemoError("; ".join(wrong))

    async def _delete(self, seen: follow.Followed) -> None:
        self._board.phase("delete everything")
        for kind in reversed(scenario.ORDER[2:]):
            await together(self._delete_one(m) for m in self._plan.of_kind(kind))

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

        await seen.until("deletion is stuck", pending, timeout=DELETE_TIMEOUT, notes=notes)
        await together(self._delete_one(m) for m in self._plan.of_kind("Namespace"))

    async def _delete_one(self, manifest: scenario.Manifest) -> None:
        try:
            await self._client.delete(
                KINDS[manifest.kind], manifest.name, manifest.namespace or None
            )
        except errors.NotFound:
            return

    async def _prove_clean(self, seen: follow.Followed, before: set[str]) -> None:
        """Nothing in the cluster, at the driver, or in the kernel."""
        traces = [f"PersistentVolume {volume.name}" for volume in seen.own_volumes()]
        traces += [f"VolumeAttachment {a.name}" for a in seen.attachments.items()]
        traces += [f"volume {name} at the driver" for name in set(await self._listed()) - before]
        if not before:
            found = await asyncio.to_thread(
                leftovers.find, [self._folders.state, self._folders.runtime]
            )
            traces += [f"mount {target}" for target in found.mounts]
            traces += [f"loop device {device}" for device in found.loop_devices]
        text = "; ".join(traces) or "no PersistentVolume, attachment, volume, mount or loop device"
        self._judge([verify.Verdict("traces", text, ok=not traces)])

    async def _read(self, kind: kinds.Kind[Any], namespace: str = "") -> Sequence[dict[str, Any]]:
        return (await self._client.list_all(kind.untyped(), namespace or None)).items

    async def _listed(self) -> list[str]:
        """Return the handles of all volumes that the driver knows."""
        handles: list[str] = []
        token = ""
        while True:
            request = v1.ListVolumesRequest(starting_token=token)
            reply = await self._driver.controller.list_volumes(request, timeout=CALL_TIMEOUT)
            handles += [entry.volume.volume_id for entry in reply.entries if entry.volume]
            token = reply.next_token
            if not token:
                return handles


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
    return scenario.parse({path.name: path.read_text() for path in chosen.glob("*.yaml")})


def default_manifests() -> pathlib.Path:
    """Return ``examples/`` of the source tree, else the copy inside the installed package."""
    package = pathlib.Path(__file__).parent
    beside = package.parents[2] / "examples"
    return beside if beside.is_dir() else package / "examples"
