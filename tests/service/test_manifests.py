"""Our images and manifests, as a user installs them: containers on two nodes of Kubernetes."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator

import pytest
import yaml
from support import cluster as clusters
from support import installed, servers, serviceimages, waiting, workloads
from support.installed import Pods, Site

pytestmark = [
    pytest.mark.root,
    pytest.mark.slow,
    pytest.mark.timeout(480),
    pytest.mark.kubernetes(reason="the embedded cluster runs no containers"),
    pytest.mark.builds("csi-provisioner"),
]
LATE, NOW = "WaitForFirstConsumer", "Immediate"
WRITE = "head -c 1048576 /dev/urandom > /data/f; sha256sum < /data/f > /dev/termination-log; sync"
READ = "sha256sum < /data/f > /dev/termination-log"
STEADY = f"echo here > /data/f; {workloads.STAY}"
LEASES = (
    "--leader-election-lease-duration=5s",
    "--leader-election-renew-deadline=3s",
    "--leader-election-retry-period=500ms",
)


@pytest.fixture(scope="module")
def site(_shared_server: servers.Server) -> Iterator[Site]:
    if not _shared_server.alive:
        _shared_server.start_blocking()
    folder = clusters.short_directory()
    made = Site(_shared_server, folder)
    with asyncio.Runner() as runner:
        try:
            runner.run(made.start())
            yield made
        finally:
            runner.run(made.remove())
            clusters.remove_tree(folder)


@pytest.fixture
async def pods(site: Site, cluster: clusters.Cluster) -> AsyncIterator[Pods]:
    made = Pods(cluster, site)
    await made.prepare()
    yield made
    await made.clear()


async def test_pods_on_each_node_keep_their_data(pods: Pods) -> None:
    for machine in pods.site.machines:
        await pods.claim(machine.name, LATE)
        there = {"nodeSelector": {"kubernetes.io/hostname": machine.name}}
        await pods.run(f"{machine.name}-w", machine.name, WRITE, **there)
    await pods.claim("anywhere", NOW)
    await pods.run("anywhere-w", "anywhere", WRITE)
    claims = [*(one.name for one in pods.site.machines), "anywhere"]
    written = [await pods.says(f"{claim}-w") for claim in claims]
    for claim in claims:
        await pods.run(f"{claim}-r", claim, READ)
    assert [await pods.says(f"{claim}-r") for claim in claims] == written
    held = await asyncio.to_thread(pods.site.volumes)
    assert len(held) == len(claims)


async def test_a_driver_that_hangs_is_started_again_and_its_volumes_stay(pods: Pods) -> None:
    node = pods.site.machines[0].name
    await pods.claim("data", LATE)
    there = {"nodeSelector": {"kubernetes.io/hostname": node}}
    await pods.run("steady", "data", STEADY, **there)
    await pods.cluster.wait_for(f"{pods.pods}/steady", workloads.is_running, "steady runs", 40)
    before = await pods.site.pod(node)
    for pid in await asyncio.to_thread(installed.container_pids, before, "local-driver"):
        os.kill(pid, signal.SIGSTOP)

    restarts = installed.status(before, "local-driver")["restartCount"]

    async def restarted() -> bool:
        found = await pods.site.pod(node)
        assert installed.status(found, "liveness-probe")["restartCount"] == 0
        one = installed.status(found, "local-driver")
        return bool(one["restartCount"] > restarts and one["ready"])

    await waiting.until(restarted, "another driver", 40.0)
    await pods.site.rolled_out()
    await pods.cluster.request("DELETE", f"{pods.pods}/steady")
    await pods.run("after", "data", "cat /data/f > /dev/termination-log")
    assert await pods.says("after") == "here"


async def test_the_registrar_s_example_serves_in_place_of_the_driver_s_own(pods: Pods) -> None:
    site = pods.site
    await pods.claim("data", LATE)
    await pods.run("steady", "data", STEADY)
    await pods.cluster.wait_for(f"{pods.pods}/steady", workloads.is_running, "steady runs", 40)
    manifest = installed.quick((installed.DEPLOY / "several-nodes.yaml").read_text())
    objects = [one for one in yaml.safe_load_all(manifest) if one["kind"] == "DaemonSet"]
    (daemons,) = objects
    spec = daemons["spec"]["template"]["spec"]
    driver = spec["containers"][0]
    driver["args"] = [one for one in driver["args"] if "registration" not in one]
    spec["containers"] += installed.fragment("registrar.md", "In the host's network")
    await site.apply(yaml.safe_dump(daemons))
    await site.rolled_out()
    await site.registered()
    await pods.cluster.request("DELETE", f"{pods.pods}/steady")
    await pods.run("after", "data", "cat /data/f > /dev/termination-log")
    assert await pods.says("after") == "here"


async def test_updates_and_swaps_with_upstream_lose_and_double_no_claim(pods: Pods) -> None:
    site = pods.site
    patch = (installed.DEPLOY / "replicas.yaml").read_text()
    election = "        - --leader-election\n"
    assert election in patch
    quick = "".join(f"        - {one}\n" for one in LEASES)
    # One replica is enough: while an update goes on, there are two.
    patch = patch.replace(election, election + quick).replace("replicas: 2", "replicas: 1")
    await _patch(site, patch)
    made: list[str] = []

    async def claim() -> None:
        made.append(f"c{len(made)}")
        await pods.claim(made[-1], NOW)

    async def claims(update: asyncio.Task[None]) -> None:
        """Keep making claims until the update is done, and one more."""
        while not update.done():
            await claim()
            await asyncio.wait({update}, timeout=1.0)
        await update
        await claim()
        await pods.bound()

    ours = serviceimages.name("csi-provisioner")
    for words in (
        ("rollout", "restart", f"deployment/{installed.CONTROLLER}"),
        (
            "set",
            "image",
            f"deployment/{installed.CONTROLLER}",
            f"csi-provisioner={serviceimages.UPSTREAM}",
        ),
        ("set", "image", f"deployment/{installed.CONTROLLER}", f"csi-provisioner={ours}"),
    ):
        await claims(asyncio.create_task(_update(site, *words), name="update"))
    bound = await pods.bound()
    held = await asyncio.to_thread(site.volumes)
    assert (len(set(bound)), len(held)) == (len(made), len(made))


async def _patch(site: Site, text: str) -> None:
    path = site.directory / "patch.yaml"
    await asyncio.to_thread(path.write_text, text)
    await site.kubectl("patch", "deployment", installed.CONTROLLER, f"--patch-file={path}")
    await site.rolled_out()


async def _update(site: Site, *words: str) -> None:
    await site.kubectl(*words)
    await site.rolled_out(f"deployment/{installed.CONTROLLER}")
