"""A driver, a faulty wire and a provisioner on one cluster, and what a test asks of the three.

The question behind most tests is ``settle``: does the driver hold exactly the volumes that
PersistentVolumes speak of? One more is a leak, two of one claim a double.
"""

import contextlib
import pathlib
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
from bitts.csi import v1
from bitts.rpc import channel, introspection

from support import processes, proxy, servers, waiting
from support.cluster import Cluster, Driver

Obj = dict[str, Any]
CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
ATTRIBUTES_CLASSES = "/apis/storage.k8s.io/v1/volumeattributesclasses"
VOLUMES = "/api/v1/persistentvolumes"
STARTED = '"Started"'


class Stand:
    """One test's set-up; make it with ``stand``."""

    def __init__(self, cluster: Cluster, driver: Driver, csi: proxy.Proxy) -> None:
        self.cluster = cluster
        self.driver = driver
        self.csi = csi
        self.folder = pathlib.Path(csi.path).parent
        self._made: list[str] = []

    @property
    def claims(self) -> str:
        """URL path of the claims."""
        return f"/api/v1/namespaces/{self.cluster.namespace}/persistentvolumeclaims"

    async def provisioner(self, *words: str, **environ: str) -> processes.Process:
        """Start csi-provisioner and wait until it works."""
        process = await self.launch(*words, **environ)
        await process.wait_for_output(STARTED)
        return process

    async def launch(self, *words: str, **environ: str) -> processes.Process:
        """Start csi-provisioner."""
        path = pathlib.Path(self.csi.path)
        given = ["--immediate-topology=false", "--retry-interval-start=100ms", *words]
        return await self.cluster.start_provisioner(path, *given, environ=environ or None)

    async def make_class(self, name: str = "fast", **fields: Any) -> str:
        """Create a StorageClass of this driver; returns its name, unique in the cluster."""
        name = f"{self.cluster.namespace}-{name}"
        body = {"metadata": {"name": name}, "provisioner": self.driver.name, **fields}
        await self.cluster.request("POST", CLASSES, body)
        self._made.append(f"{CLASSES}/{name}")
        return name

    async def make_attributes_class(self, **parameters: str) -> str:
        """Create a VolumeAttributesClass of this driver; returns its name."""
        name = f"{self.cluster.namespace}-attributes"
        body = {"driverName": self.driver.name, "parameters": parameters}
        await self.cluster.request("POST", ATTRIBUTES_CLASSES, {"metadata": {"name": name}, **body})
        self._made.append(f"{ATTRIBUTES_CLASSES}/{name}")
        return name

    async def claim(self, name: str, class_name: str, **spec: Any) -> str:
        """Create a claim of 1 MiB; returns its UID."""
        given = {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Mi"}},
            "storageClassName": class_name,
        }
        annotations = spec.pop("annotations", {})
        body = {"metadata": {"name": name, "annotations": annotations}, "spec": {**given, **spec}}
        return str((await self.cluster.request("POST", self.claims, body))["metadata"]["uid"])

    async def delete_claim(self, name: str) -> None:
        """Delete a claim and wait until it is gone."""
        await self.cluster.request("DELETE", f"{self.claims}/{name}")
        await self.cluster.wait_for(f"{self.claims}/{name}", lambda one: one is None, "no claim")

    async def bound(self, name: str, timeout: float = 15.0) -> Obj:
        """Wait until a claim is bound; returns its PersistentVolume."""
        found = await self.cluster.wait_for(
            f"{self.claims}/{name}",
            lambda one: one and one.get("status", {}).get("phase") == "Bound",
            f"claim {name} is bound",
            timeout,
        )
        return await self.volume(found["spec"]["volumeName"])

    async def volume(self, name: str) -> Obj:
        """Read one PersistentVolume."""
        found: Obj = await self.cluster.request("GET", f"{VOLUMES}/{name}")
        return found

    async def volumes(self) -> list[Obj]:
        """Read this driver's PersistentVolumes."""
        items = (await self.cluster.request("GET", VOLUMES))["items"]
        return [
            one for one in items if one["spec"].get("csi", {}).get("driver") == self.driver.name
        ]

    async def backend(self) -> set[str]:
        """Ask the driver itself, past the faulty wire, which volumes it holds."""
        direct = channel.Channel(str(self.driver.socket))
        try:
            stub = v1.ControllerStub(direct)
            reply = await stub.list_volumes(v1.ListVolumesRequest(), timeout=waiting.patient(10))
            return {one.volume.volume_id for one in reply.entries if one.volume is not None}
        finally:
            await direct.close()

    async def settled(self, count: int, timeout: float = 20.0) -> None:
        """Wait until the driver and the cluster agree on exactly ``count`` volumes."""

        async def agree() -> bool:
            handles = [one["spec"]["csi"]["volumeHandle"] for one in await self.volumes()]
            return len(handles) == count and set(handles) == await self.backend()

        await waiting.until(agree, f"{count} volumes on both sides", timeout)

    async def quiet(self, count: int, timeout: float = 20.0) -> None:
        """Wait until the provisioner has nothing left open, and both sides agree on ``count``."""

        async def idle() -> bool:
            socket = self.folder / "bitts-csi-provisioner.sock"
            async with introspection.connect(str(socket)) as asked:
                process = await asked.process()
            queued = sum(one.ready + one.working + one.delayed for one in process.queues)
            intents = next(one.value for one in process.figures if one.name == "open")
            return queued == 0 and intents == 0

        await waiting.until(idle, "an idle provisioner", timeout)
        await self.settled(count, timeout)

    async def decided(self, name: str, wanted: str) -> introspection.Object:
        """Wait until the provisioner's last decision about a claim is ``wanted``."""
        key = f"{self.cluster.namespace}/{name}"
        path = str(self.folder / "bitts-csi-provisioner.sock")
        async with introspection.connect(path) as asked:

            async def told() -> list[introspection.Object]:
                found = (await asked.objects(loop="claims", key=key)).objects
                return [one for one in found if one.key == key and one.decision == wanted]

            return (await waiting.until(told, f"{wanted} for {name}"))[0]

    async def refused(self, verb: str, resource: str, times: int = 1) -> None:
        """Wait until the API server has dropped or refused so many of the provisioner's writes."""

        async def struck() -> bool:
            rows = await self.cluster.requests("csi-provisioner")
            failed = [row for row in rows if row.code in (0, *range(400, 600))]
            hits = [one.count for one in failed if (one.verb, one.resource) == (verb, resource)]
            return sum(hits) >= times

        await waiting.until(struck, f"{verb} of {resource} struck {times} times")

    async def events(self, name: str, namespace: str = "") -> list[Obj]:
        """Read the events about an object."""
        where = namespace or self.cluster.namespace
        found = (await self.cluster.request("GET", f"/api/v1/namespaces/{where}/events"))["items"]
        return [one for one in found if one["involvedObject"]["name"] == name]

    async def event(self, name: str, text: str, namespace: str = "") -> Obj:
        """Wait for an event about an object whose message holds ``text``."""

        async def found() -> Obj | None:
            events = await self.events(name, namespace)
            return next((one for one in events if text in one["message"]), None)

        return await waiting.until(found, f"event {text!r} on {name}")

    async def annotate(self, name: str, **annotations: str | None) -> None:
        """Change a claim's annotations; ``__`` in a key stands for a slash."""
        changes = {key.replace("__", "/"): value for key, value in annotations.items()}
        body = {"metadata": {"annotations": changes}}
        path, kind = f"{self.claims}/{name}", "application/merge-patch+json"
        await self.cluster.request("PATCH", path, body, content_type=kind)

    async def clean(self) -> None:
        """Remove what outlives the test's namespace."""
        for volume in await self.volumes():
            path = f"{VOLUMES}/{volume['metadata']['name']}"
            body = {"metadata": {"finalizers": None}}
            with contextlib.suppress(servers.RefusedError):
                await self.cluster.request(
                    "PATCH", path, body, content_type="application/merge-patch+json"
                )
                await self.cluster.request("DELETE", path)
        for path in self._made:
            with contextlib.suppress(servers.RefusedError):
                await self.cluster.request("DELETE", path)


@contextlib.asynccontextmanager
async def stand(cluster: Cluster, *words: str, **options: Any) -> AsyncIterator[Stand]:
    """A driver behind a proxy; ``options`` are the driver's flags."""
    driver = await cluster.start_driver(*words, backends="directory,image", **options)
    folder = cluster.directory / "wire"
    folder.mkdir()
    async with proxy.Proxy(str(folder / "csi.sock"), str(driver.socket)) as csi:
        made = Stand(cluster, driver, csi)
        yield made
        await made.clean()


async def scrape(url: str) -> str:
    """Read metrics as Prometheus does."""
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        assert answer.status == 200
        return await answer.text()
