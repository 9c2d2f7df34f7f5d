"""Pods of a real kubelet and containerd on the network that ``cni-daemon`` makes."""

import asyncio
import itertools
import json
from collections.abc import AsyncIterator

import pytest
from support import cluster as clusters
from support import podnetwork, servers, waiting

pytestmark = [
    pytest.mark.root,
    pytest.mark.slow,
    pytest.mark.timeout(480),
    pytest.mark.kubernetes(reason="its containerd calls the daemon"),
]
AT_ONCE = 100
PROGRAMS = ("cni-daemon", "containerd", "kubelet")
HOST_PORT = 30880
SERVE = "mkdir /www; echo hello >/www/index.html; exec httpd -f -p 80 -h /www"


@pytest.fixture
def machines(cluster: clusters.Cluster) -> tuple[servers.Machine, ...]:
    return cluster.server.access.machines


@pytest.fixture
async def pods(
    cluster: clusters.Cluster, machines: tuple[servers.Machine, ...]
) -> AsyncIterator[podnetwork.Pods]:
    """Pods that all go at the end, and leave nothing on any node."""
    made = podnetwork.Pods(cluster)
    yield made
    await made.delete_all()
    for machine in machines:

        async def clean(machine: servers.Machine = machine) -> bool:
            return await podnetwork.leftovers(machine) == []

        try:
            await waiting.until(clean, f"a clean {machine.name}", 30)
        except waiting.DeadlineError:
            assert await podnetwork.leftovers(machine) == []


async def test_pods_talk_publish_ports_and_are_limited(
    pods: podnetwork.Pods, machines: tuple[servers.Machine, ...], cluster: clusters.Cluster
) -> None:
    near, far = machines
    limit = {"kubernetes.io/ingress-bandwidth": "50M"}
    await pods.create("web", near, "sh", "-c", SERVE, annotations=limit, port=HOST_PORT)
    await pods.create("client", far)
    addresses = await pods.await_running(2)
    (link,) = await podnetwork.links(near)
    assert link["ifalias"].startswith("bitts-cni pods/")
    queues = json.loads(await podnetwork.inside(near, "tc", "-j", "qdisc", "show"))
    rates = [one["options"].get("rate") for one in queues if one["kind"] == "tbf"]
    assert rates == [50_000_000 // 8]
    node = (await cluster.request("GET", f"/api/v1/nodes/{near.name}"))["status"]["addresses"]
    address = next(one["address"] for one in node if one["type"] == "InternalIP")
    for url in (f"http://{addresses['web']}/", f"http://{address}:{HOST_PORT}/"):

        async def fetched(url: str = url) -> bool:
            said = await podnetwork.inside(far, "busybox", "wget", "-qO-", url, check=False)
            return said == "hello\n"

        await waiting.until(fetched, f"{url} from the other node")


async def test_a_hundred_pods_come_and_go_at_once(
    pods: podnetwork.Pods, machines: tuple[servers.Machine, ...]
) -> None:
    places = itertools.cycle(machines)
    await asyncio.gather(*(pods.create(f"p{n}", next(places)) for n in range(AT_ONCE)))
    addresses = await pods.await_running(AT_ONCE)
    assert len(set(addresses.values())) == AT_ONCE


async def test_a_hundred_pods_come_and_go_while_all_is_killed_and_nothing_is_left(
    pods: podnetwork.Pods, machines: tuple[servers.Machine, ...]
) -> None:
    """Every program of every node, once while they come and once while they go."""

    async def kill_each() -> None:
        for program in PROGRAMS:
            await asyncio.gather(*(podnetwork.kill(each, program) for each in machines))

    places = itertools.cycle(machines)
    await asyncio.gather(*(pods.create(f"p{n}", next(places)) for n in range(AT_ONCE)))
    await kill_each()
    addresses = await pods.await_running(AT_ONCE)
    assert len(set(addresses.values())) == AT_ONCE
    await asyncio.gather(pods.delete_all(), kill_each())


@pytest.mark.parametrize("program", PROGRAMS)
async def test_what_is_killed_in_the_middle_leaves_nothing(
    program: str, pods: podnetwork.Pods, machines: tuple[servers.Machine, ...]
) -> None:
    first, second = machines
    for number in range(6):
        await pods.create(f"p{number}", first)
    await pods.create("other", second)
    await podnetwork.kill(first, program)
    addresses = await pods.await_running(7)
    assert len(set(addresses.values())) == 7
    await podnetwork.kill(first, program)
