"""The DaemonSet of cni-daemon, on nodes that had the reference plugins, and back to them."""

import asyncio
import ipaddress
import json
import pathlib
from collections.abc import AsyncIterator

import pytest
from devcluster.kubernetes import podnetwork
from support import building, peers, processes, rootfs, servers, serviceimages, waiting

pytestmark = [
    pytest.mark.root,
    pytest.mark.slow,
    pytest.mark.timeout(480),
    pytest.mark.builds(building.KUBERNETES),
]
MANIFEST = str(rootfs.ROOT / "services/cni-daemon/deploy/daemonset.yaml")
SYSTEM = "--namespace=bitts-system"
SERVE = "mkdir /www; echo hello >/www/index.html; exec httpd -f -p 80 -h /www"
PORT = 8081
TABLE = ("table", "inet", "bitts_cni")


class Stand:
    """A cluster with the reference plugins, and what a test does there."""

    def __init__(self, server: servers.Server, kubectl: pathlib.Path) -> None:
        self.server = server
        self._kubectl = str(kubectl)

    async def kubectl(self, *words: str, timeout: float = 60.0) -> str:
        """Run kubectl."""
        config = f"--kubeconfig={self.server.access.kubeconfig}"
        return await processes.run([self._kubectl, config, *words], timeout=timeout)

    async def pods(self, prefix: str, host_port: int = 0) -> dict[str, str]:
        """Run a pod on each node; returns their addresses by name."""
        ports = [{"containerPort": 80, "hostPort": host_port}] if host_port else []
        names = {f"{prefix}-{one.name}": one.name for one in self.server.access.machines}
        for name, node in names.items():
            command = ["sh", "-c", SERVE]
            container = {"name": "c", "image": "busybox:1.37", "command": command, "ports": ports}
            spec = {
                "nodeName": node,
                "containers": [container],
                "terminationGracePeriodSeconds": 0,
            }
            body = {"metadata": {"name": name}, "spec": spec}
            async with self.server.session() as session:
                await servers.call(session, "POST", "/api/v1/namespaces/default/pods", body)
        every = [f"pod/{name}" for name in names]
        await self.kubectl("wait", "--for=condition=Ready", *every, "--timeout=150s")
        return {name: await self.address(name) for name in names}

    async def address(self, name: str) -> str:
        """Return a pod's address; it is of its node's range."""
        pod = json.loads(await self.kubectl("get", "pod", name, "-o", "json"))
        node = json.loads(await self.kubectl("get", "node", pod["spec"]["nodeName"], "-o", "json"))
        found: str = pod["status"]["podIP"]
        assert ipaddress.ip_address(found) in ipaddress.ip_network(node["spec"]["podCIDR"])
        return found

    async def talk(self, *groups: dict[str, str]) -> None:
        """Have every pod ask all of them."""
        pods = {name: address for group in groups for name, address in group.items()}
        script = "".join(f"timeout 5 wget -qO- http://{one}/;" for one in pods.values())
        for name in pods:
            said = await self.kubectl("exec", name, "--", "sh", "-ec", script)
            assert said == "hello\n" * len(pods)

    async def published(self, port: int, name: str) -> None:
        """Have a pod ask every node at a port of pods there."""
        for one in self.server.access.machines:
            node = self.server.read_ready()["nodes"][one.name]["address"]
            command = ("timeout", "5", "wget", "-qO-", f"http://{node}:{port}/")
            assert await self.kubectl("exec", name, "--", *command) == "hello\n"

    async def on(self, machine: servers.Machine, *command: str) -> str:
        """Run a command on a node."""
        return await processes.run([*machine.enter, *command])

    async def attached(self) -> list[int]:
        """Return how many pods each node's daemon has attached."""
        found = []
        for one in self.server.access.machines:
            rules = json.loads(await self.on(one, "ip", "-json", "link", "show"))
            aliases = [link.get("ifalias", "") for link in rules]
            found.append(sum(alias.startswith("bitts-cni ") for alias in aliases))
        return found

    def addresses(self) -> list[int]:
        """Return how many addresses are given on each node. Blocking."""
        places = [
            pathlib.Path(f"/proc/{one.pid}/root/var/lib/cni/networks/pods")
            for one in self.server.access.machines
        ]
        return [len(list(place.glob("10.*"))) for place in places]


@pytest.fixture
async def stand(spawner: processes.Processes, short_dir: pathlib.Path) -> AsyncIterator[Stand]:
    directory = short_dir / "c"
    network = podnetwork.REFERENCE
    server = servers.Server(spawner, directory, kind="kubernetes", nodes=2, network=network)
    images = directory / "images"
    images.mkdir(parents=True)
    await asyncio.to_thread(serviceimages.write, images / "ours.tar", ["cni-daemon"])
    await server.start()
    yield Stand(server, await asyncio.to_thread(peers.tool, "kubectl"))
    await asyncio.to_thread(server.stop_blocking)


async def test_the_daemonset_takes_over_from_the_reference_plugins_and_gives_back(
    stand: Stand,
) -> None:
    machines = stand.server.access.machines
    shims = [one.root / "opt/cni/bin" for one in machines]
    before = await asyncio.to_thread(listed)
    old = await stand.pods("old")
    await stand.kubectl("apply", "-f", MANIFEST)
    await rolled_out(stand)
    assert all((shim / "ptp").exists() for shim in shims)
    assert await asyncio.to_thread(listed) == before, "the machine's own folder"
    ours = await stand.pods("ours", PORT)
    assert await stand.attached() == [1, 1]
    await stand.talk(old, ours)
    await asyncio.gather(*(stand.published(PORT, name) for name in old))
    await stand.kubectl("delete", "pod", *old)
    await until_given(stand, 1)

    # While a daemon is replaced, the runtime tries again.
    await stand.kubectl("rollout", "restart", SYSTEM, "daemonset/cni-daemon")
    meanwhile = await stand.pods("meanwhile")
    await rolled_out(stand)
    await stand.talk(ours, meanwhile)
    await stand.kubectl("delete", "pod", *meanwhile)
    await until_given(stand, 1)

    pods = (await stand.kubectl("get", "pods", SYSTEM, "-o", "name")).split()
    assert len(pods) == len(machines)
    uninstall = ("-c", "cni-daemon", "--", "/opt/bitts/bin/cni-daemon", "uninstall")
    for pod in pods:
        await stand.kubectl("exec", SYSTEM, pod, *uninstall)
    await stand.kubectl("delete", "-f", MANIFEST)
    assert [list(shim.iterdir()) for shim in shims] == [[], []]
    late = await stand.pods("late")
    await stand.talk(ours, late)
    await stand.kubectl("delete", "pod", *ours)
    await until_given(stand, 1)
    assert await stand.attached() == [0, 0]
    for one in machines:
        await stand.on(one, "nft", "delete", *TABLE)
    await stand.talk(late)


def listed() -> list[str]:
    """Return what the machine itself has of plugins. Blocking."""
    folder = pathlib.Path("/opt/cni/bin")
    return sorted(map(str, folder.iterdir())) if folder.is_dir() else []


async def rolled_out(stand: Stand) -> None:
    try:
        words = ("rollout", "status", SYSTEM, "daemonset/cni-daemon", "--timeout=240s")
        await stand.kubectl(*words, timeout=100)
    except processes.ProcessError as error:
        events = await stand.kubectl("get", SYSTEM, "pods,events")
        logs = await stand.kubectl("logs", SYSTEM, "ds/cni-daemon", "--all-containers")
        raise AssertionError(f"{error}\n{events}\n{logs}") from error


async def until_given(stand: Stand, count: int) -> None:
    """Wait until each node has so many addresses in use."""

    async def given() -> bool:
        found = await asyncio.to_thread(stand.addresses)
        return set(found) == {count}

    await waiting.until(given, f"{count} addresses in use on each node", 40)
