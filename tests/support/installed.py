"""local-driver and its sidecars in containers, as our manifests install them on two nodes.

Nothing is changed in the manifests but how long things take: a probe every second in place of
every ten, leases of seconds.
"""

import asyncio
import contextlib
import pathlib
import re
import shutil
from collections.abc import Callable, Mapping
from typing import Any

import yaml

from support import cluster as clusters
from support import leaks, peers, processes, rootfs, servers, serviceimages, waiting, workloads

Obj = dict[str, Any]
DRIVER = "local.csi.bitts.dev"
NAMESPACE = "storage"
CONTROLLER, NODES = "local-driver-controller", "local-driver"
SERVICES = ("csi-node-driver-registrar", "csi-provisioner", "livenessprobe", "local-driver")
DEPLOY = rootfs.ROOT / "services" / "local-driver" / "deploy"
RBAC = rootfs.ROOT / "services" / "provisioner" / "deploy" / "rbac.yaml"
QUICK = {
    "periodSeconds: 10": "periodSeconds: 1",
    "periodSeconds: 2,": "periodSeconds: 1,",
    "failureThreshold: 5": "failureThreshold: 2",
    "terminationGracePeriodSeconds: 5": "terminationGracePeriodSeconds: 1",
}
"""What manifests say → what tests have the patience for."""
ROLLOUT = waiting.patient(60.0)
MEMBER = "/var/lib/bitts/local-driver"


def quick(text: str) -> str:
    """Return a manifest whose probes are impatient; every replacement must have its place."""
    for slow, fast in QUICK.items():
        assert slow in text, f"the manifest has no {slow!r} any more"
        text = text.replace(slow, fast)
    return text


def fragment(page: str, begin: str) -> list[Obj]:
    """Return the containers in the first example of a page's section that begins so."""
    text = (rootfs.ROOT / "docs" / page).read_text()
    (block,) = re.findall(rf"{re.escape(begin)}.*?```yaml\n(.*?)```", text, re.DOTALL)[:1]
    found: list[Obj] = yaml.safe_load(block.replace("DRIVER", DRIVER))
    return found


class Site:
    """The driver's objects on the shared cluster. Use ``start`` and ``remove``."""

    def __init__(self, server: servers.Server, directory: pathlib.Path) -> None:
        self.server = server
        self.directory = directory
        self._kubectl = str(peers.tool("kubectl"))

    @property
    def machines(self) -> tuple[servers.Machine, ...]:
        """The nodes."""
        return self.server.access.machines

    async def kubectl(self, *words: str, timeout: float = 40.0) -> str:
        """Run kubectl in the driver's namespace."""
        config = f"--kubeconfig={self.server.access.kubeconfig}"
        command = [self._kubectl, config, f"--namespace={NAMESPACE}", *words]
        return await processes.run(command, timeout=timeout)

    async def start(self) -> None:
        """Do what docs/local-driver.md says, and wait until both nodes have the driver."""
        archive = self.directory / "images.tar"
        more = await asyncio.to_thread(lambda: (serviceimages.kubectl(), serviceimages.upstream()))
        await asyncio.to_thread(serviceimages.write, archive, SERVICES, *more)
        await asyncio.gather(*(serviceimages.load(one, archive) for one in self.machines))
        await asyncio.to_thread(archive.unlink)
        manifest = quick((DEPLOY / "several-nodes.yaml").read_text())
        await self.kubectl("create", "namespace", NAMESPACE)
        await self._certificates()
        rbac = RBAC.read_text().replace("namespace: default", f"namespace: {NAMESPACE}")
        await self.apply(rbac)
        await self.apply(manifest)
        await self.rolled_out()
        await self.registered()

    async def _certificates(self) -> None:
        """Make them by our script, and bring each node its own."""
        pki = self.directory / "pki"
        names = [one.name for one in self.machines]
        await processes.run([str(DEPLOY / "certificates.sh"), str(pki), *names])
        own = {"tls.crt": "controller.crt", "tls.key": "controller.key", "ca.crt": "ca.crt"}
        files = [f"--from-file={name}={pki / file}" for name, file in own.items()]
        await self.kubectl("create", "secret", "generic", CONTROLLER, *files)
        for one in self.machines:
            await asyncio.to_thread(bring, one, pki)

    async def apply(self, text: str) -> None:
        """Apply objects."""
        path = self.directory / "applied.yaml"
        await asyncio.to_thread(path.write_text, text)
        await self.kubectl("apply", "-f", str(path))

    async def rolled_out(self, *names: str) -> None:
        """Wait until all pods are as their objects want them, ready and the only ones."""
        for name in names or (f"daemonset/{NODES}", f"deployment/{CONTROLLER}"):
            words = ("rollout", "status", name, f"--timeout={ROLLOUT:.0f}s")
            try:
                await self.kubectl(*words, timeout=ROLLOUT + 5)
            except processes.ProcessError as error:
                raise AssertionError(f"{error}\n{await self.report()}") from error

    async def report(self) -> str:
        """Return what explains pods that do not run."""
        found = [await self.kubectl("get", "pods,events", "-o", "wide")]
        for pod in (await self.kubectl("get", "pods", "-o", "name")).split():
            with contextlib.suppress(processes.ProcessError):
                found.append(await self.kubectl("logs", pod, "--all-containers", "--tail=20"))
        return "\n".join(found)

    async def registered(self) -> None:
        """Wait until every node's kubelet has the driver."""
        await self.until(f"the driver on {len(self.machines)} nodes", lambda it: all(it.values()))

    async def until(self, what: str, check: Callable[[Mapping[str, bool]], bool]) -> None:
        """Wait for the state of registration by node."""

        async def seen() -> bool:
            found = {}
            for one in self.machines:
                node = await self.get(f"{workloads.STORAGE}/csinodes/{one.name}")
                entries = node["spec"].get("drivers") or ()
                found[one.name] = DRIVER in {entry["name"] for entry in entries}
            return check(found)

        await waiting.until(seen, what, 30.0)

    async def get(self, path: str) -> Obj:
        """Return an object, or a list of them."""
        async with self.server.session() as session:
            found: Obj = await servers.call(session, "GET", path)
        return found

    async def pod(self, node: str) -> Obj:
        """Return the driver's pod on a node."""
        query = f"labelSelector=app%3D{NODES}&fieldSelector=spec.nodeName%3D{node}"
        found = await self.get(f"/api/v1/namespaces/{NAMESPACE}/pods?{query}")
        (one,) = found["items"]
        result: Obj = one
        return result

    def volumes(self) -> list[str]:
        """Return the IDs of all volumes on the nodes' disks. Blocking."""
        return sorted(
            path.stem
            for one in self.machines
            for path in (one.root / "bitts/local-driver/volumes").glob("*.json")
        )

    def left(self) -> list[str]:
        """Return what there is of volumes and of the driver on nodes. Blocking."""
        found = [f"volume {one}" for one in self.volumes()]
        found += [f"loop {line}" for line in leaks.loop_devices() if f"{MEMBER}/" in line]
        for one in self.machines:
            lines = pathlib.Path(f"/proc/{one.pid}/mountinfo").read_text().splitlines()
            found += [f"mount {line}" for line in lines if DRIVER in line or f"{MEMBER}/" in line]
        return found

    async def remove(self) -> None:
        """Delete all that was applied; nothing may be left but the nodes' own folders."""
        manifest = str(DEPLOY / "several-nodes.yaml")
        await self.kubectl("delete", "--ignore-not-found", "-f", manifest, timeout=90.0)
        rbac = RBAC.read_text().replace("namespace: default", f"namespace: {NAMESPACE}")
        path = self.directory / "applied.yaml"
        await asyncio.to_thread(path.write_text, rbac)
        await self.kubectl("delete", "--ignore-not-found", "-f", str(path))
        await self.until("the driver on no node", lambda it: not any(it.values()))
        left = await asyncio.to_thread(self.left)
        for one in self.machines:
            left += map(str, (one.root / "plugins_registry").glob(f"*{DRIVER}*"))
            await asyncio.to_thread(clean, one)
        assert left == []


def bring(machine: servers.Machine, pki: pathlib.Path) -> None:
    """Put a node's certificate where its manifest looks for it. Blocking."""
    folder = pathlib.Path(f"/proc/{machine.pid}/root/etc/bitts/local-driver")
    folder.mkdir(parents=True, mode=0o700)
    for name, file in (("tls.crt", f"{machine.name}.crt"), ("tls.key", f"{machine.name}.key")):
        shutil.copy(pki / file, folder / name)
    shutil.copy(pki / "ca.crt", folder / "ca.crt")


def clean(machine: servers.Machine) -> None:
    """Remove the driver's folders from a node. Blocking."""
    shutil.rmtree(f"/proc/{machine.pid}/root/etc/bitts", ignore_errors=True)
    clusters.remove_tree(machine.root / "plugins" / DRIVER)
    for folder in (machine.root / "bitts").glob("local-driver*"):
        clusters.remove_tree(folder)


def status(pod: Obj, container: str) -> Obj:
    """Return what a pod's status says of a container."""
    (found,) = (one for one in pod["status"]["containerStatuses"] if one["name"] == container)
    result: Obj = found
    return result


def container_pids(pod: Obj, container: str) -> list[int]:
    """Return the processes of a pod's container, by its cgroup. Blocking."""
    identity = status(pod, container)["containerID"].partition("://")[2]
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and identity in (entry / "cgroup").read_text():
                found.append(int(entry.name))
    return found


class Pods:
    """What one test makes of the driver's volumes, in its own namespace."""

    def __init__(self, cluster: clusters.Cluster, site: Site) -> None:
        self.cluster = cluster
        self.site = site
        base = f"/api/v1/namespaces/{cluster.namespace}"
        self.pods, self.claims = f"{base}/pods", f"{base}/persistentvolumeclaims"

    def class_name(self, binding: str) -> str:
        """Name of the class with a binding mode."""
        return f"{self.cluster.namespace}-{binding.lower()}"

    async def prepare(self) -> None:
        """Make a class of each binding mode."""
        for binding in ("Immediate", "WaitForFirstConsumer"):
            body = {
                "metadata": {"name": self.class_name(binding)},
                "provisioner": DRIVER,
                "volumeBindingMode": binding,
                "parameters": {"backend": "image", "csi.storage.k8s.io/fstype": "ext4"},
            }
            await self.cluster.request("POST", f"{workloads.STORAGE}/storageclasses", body)

    async def claim(self, name: str, binding: str) -> None:
        """Create a claim."""
        spec = {
            "storageClassName": self.class_name(binding),
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "16Mi"}},
        }
        await self.cluster.request("POST", self.claims, {"metadata": {"name": name}, "spec": spec})

    async def bound(self, timeout: float = 60.0) -> list[str]:
        """Wait until every claim is bound; returns the names of their volumes."""
        found = await self.cluster.wait_for(
            self.claims,
            lambda it: all(one["status"].get("phase") == "Bound" for one in it["items"]),
            "all claims are bound",
            timeout,
        )
        return [one["spec"]["volumeName"] for one in found["items"]]

    async def run(self, name: str, claim: str, script: str, **spec: Any) -> None:
        """Create a pod with a claim at ``/data``."""
        seen = workloads.mounts_of({"data": "/data"}, {})
        volume = {"name": "data", "persistentVolumeClaim": {"claimName": claim}}
        given = {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 1,
            "containers": [workloads.container(script, seen)],
            "volumes": [volume],
        }
        body = {"metadata": {"name": name}, "spec": {**given, **spec}}
        await self.cluster.request("POST", self.pods, body)

    async def says(self, name: str) -> str:
        """Wait for the good end of a pod; returns its last words."""
        ends = {"Succeeded", "Failed"}
        found = await self.cluster.wait_for(
            f"{self.pods}/{name}", lambda it: it["status"].get("phase") in ends, f"{name} ends", 40
        )
        state = found["status"]["containerStatuses"][0]["state"]["terminated"]
        assert state["exitCode"] == 0, found["status"]
        return str(state.get("message", "")).strip()

    async def clear(self) -> None:
        """Delete what the test made, and wait until no volume is left anywhere."""
        for path in (self.pods, self.claims):
            await self.cluster.request("DELETE", path)

        async def left() -> list[str]:
            found = (await self.cluster.request("GET", workloads.VOLUMES))["items"]
            ours = [one for one in found if one["spec"].get("csi", {}).get("driver") == DRIVER]
            names = [one["metadata"]["name"] for one in ours]
            return names + await asyncio.to_thread(self.site.left)

        async def is_clear() -> bool:
            return not await left()

        try:
            await waiting.until(is_clear, "no volume", 40.0)
        except waiting.DeadlineError as error:
            raise AssertionError(f"left: {await left()}") from error
        for binding in ("Immediate", "WaitForFirstConsumer"):
            path = f"{workloads.STORAGE}/storageclasses/{self.class_name(binding)}"
            await self.cluster.request("DELETE", path)
