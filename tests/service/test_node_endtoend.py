"""Claims, provisioner, local-driver and node agent together, and agents that are killed."""

import asyncio
import random
from collections.abc import AsyncIterator
from typing import Any

import pytest
from support import cluster as clusters
from support import leaks, manifests, nodeagent, waiting
from support.nodeagent import Bench

pytestmark = [
    pytest.mark.root,
    pytest.mark.embedded(reason="is about the embedded cluster's node agent"),
]
Obj = dict[str, Any]


@pytest.fixture
async def bench(no_leaks: None, cluster: clusters.Cluster) -> AsyncIterator[Bench]:
    async with nodeagent.bench(cluster) as made:
        yield made


async def make_classes(cluster: clusters.Cluster) -> None:
    """The driver's object, and a class of images that waits for its first consumer."""
    driver = manifests.csi_driver(cluster.driver_name, attachRequired=False)
    await cluster.request("POST", "/apis/storage.k8s.io/v1/csidrivers", manifests.fresh(driver))
    body = manifests.storage_class(
        cluster.namespace,
        provisioner=cluster.driver_name,
        volumeBindingMode="WaitForFirstConsumer",
        parameters={"backend": "image", "csi.storage.k8s.io/fstype": "ext4"},
    )
    await cluster.request("POST", "/apis/storage.k8s.io/v1/storageclasses", manifests.fresh(body))


async def test_claims_of_both_modes_become_volumes_and_go_again(
    no_leaks: None, cluster: clusters.Cluster
) -> None:
    node = await cluster.start_node()
    driver = await cluster.start_driver(node=node)
    await cluster.start_provisioner(driver)
    await make_classes(cluster)
    bench = Bench(
        cluster, node, nodeagent.MountingDriver(cluster.driver_name, node.root_dir, node.root_dir)
    )
    await bench.registered()
    for name, mode in (("files", "Filesystem"), ("disk", "Block")):
        body = manifests.claim(
            name, size="64Mi", storageClassName=cluster.namespace, volumeMode=mode
        )
        body["metadata"] = {"name": name, "namespace": cluster.namespace}
        await cluster.request("POST", bench.claims, body)
    body = manifests.pod("user", claims=("files", "disk"))
    (container,) = body["spec"]["containers"]
    container["volumeMounts"] = [{"name": "files", "mountPath": "/files"}]
    container["volumeDevices"] = [{"name": "disk", "devicePath": "/dev/disk"}]
    script = (
        "head -c 1048576 /dev/urandom > /files/f && cat /files/f > /dev/disk && "
        "head -c 1048576 /dev/disk | cmp - /files/f && stat -f -c %T /files"
    )
    container["command"] = ["sh", "-c", script]
    body["metadata"] = {"name": "user", "namespace": cluster.namespace}
    body["spec"] |= {
        "restartPolicy": "Never",
        "nodeSelector": {"kubernetes.io/hostname": node.name},
    }
    await cluster.request("POST", bench.pods, body)
    await bench.phase("user", "Succeeded")
    assert "ext2/ext3" in await bench.log("user")
    await bench.delete("user")
    for name in ("files", "disk"):
        await cluster.request("DELETE", f"{bench.claims}/{name}")
    await cluster.wait_for(
        "/api/v1/persistentvolumes",
        lambda found: not any(mine(cluster, one) for one in found["items"]),
        "no volume left",
    )
    await node.process.stop()


def mine(cluster: clusters.Cluster, volume: Obj) -> bool:
    return bool((volume["spec"].get("csi") or {}).get("driver") == cluster.driver_name)


@pytest.mark.slow
async def test_an_agent_killed_again_and_again_leaves_nothing(bench: Bench) -> None:
    chance = random.Random(7)
    names = [f"p{number}" for number in range(6)]
    for name in names:
        await bench.volume(name)
        await bench.pod(name, "sleep", "600", claims=(name,))
    for _ in range(5):
        await asyncio.sleep(chance.uniform(0.0, 0.25))  # a random moment is what is tested
        bench.node.process.kill()
        await bench.restart_agent()
    for name in names:
        await bench.phase(name, "Running")
    uids = {name: await bench.uid(name) for name in names}
    for name in names:
        await bench.cluster.request("DELETE", f"{bench.pods}/{name}")
    for _ in range(5):
        await asyncio.sleep(chance.uniform(0.0, 0.25))
        bench.node.process.kill()
        await bench.restart_agent()
    for name, uid in uids.items():
        await bench.gone(name, uid)
    mounted = [line for line in leaks.mounts() if str(bench.node.root_dir) in line]
    assert mounted == []


async def test_many_pods_start_and_end_at_once(bench: Bench) -> None:
    names = [f"p{number}" for number in range(40)]
    for name in names:
        await bench.pod(name, "sleep", "600")
    for name in names:
        await bench.phase(name, "Running")
    await bench.cluster.request("DELETE", bench.pods)
    await bench.cluster.wait_for(bench.pods, lambda found: not found["items"], "all pods gone")
    pods = bench.node.root_dir / "pods"
    await waiting.until(lambda: not any(pods.iterdir()), "all folders gone")
