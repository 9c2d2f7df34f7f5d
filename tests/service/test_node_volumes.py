"""What containers see of their volumes, and how drivers come and go on a node."""

import os
import stat
from collections.abc import AsyncIterator
from typing import Any

import pytest
from support import cluster as clusters
from support import manifests, nodeagent, waiting
from support.nodeagent import Bench

pytestmark = [
    pytest.mark.root,
    pytest.mark.embedded(reason="is about the embedded cluster's node agent"),
]
STAGE = "STAGE_UNSTAGE_VOLUME"


@pytest.fixture
async def bench(no_leaks: None, cluster: clusters.Cluster) -> AsyncIterator[Bench]:
    async with nodeagent.bench(cluster) as made:
        yield made


def container(*command: str, mounts: list[dict[str, Any]], **more: Any) -> list[dict[str, Any]]:
    return [{"name": "main", "image": "none", "command": command, "volumeMounts": mounts, **more}]


async def finished(bench: Bench, name: str) -> str:
    """Wait for a pod's end, whichever, and give what it printed."""
    await bench.until(
        name, lambda it: it["status"].get("phase") in {"Succeeded", "Failed"}, "end of the pod"
    )
    said = await bench.log(name)
    await bench.delete(name)
    return said


async def test_secrets_config_maps_and_paths_inside_volumes(bench: Bench) -> None:
    base = f"/api/v1/namespaces/{bench.cluster.namespace}"
    secret = {"metadata": {"name": "s"}, "stringData": {"key": "hidden", "other": "x"}}
    await bench.cluster.request("POST", f"{base}/secrets", secret)
    config = {"metadata": {"name": "c"}, "data": {"a.conf": "shown"}}
    await bench.cluster.request("POST", f"{base}/configmaps", config)
    script = """
    cat /s/deep/er; stat -c ' %a' /s/deep/er; ls /s; cat /c/a.conf; echo
    touch /c/x 2>/dev/null || echo read-only; touch /sub/made; ls /whole; df -t tmpfs /m >/dev/null
    echo $? $NAME $PLAIN $(hostname) $(pwd)
    """
    await bench.pod(
        "p",
        containers=container(
            *("sh", "-c", script),
            mounts=[
                {"name": "s", "mountPath": "/s"},
                {"name": "c", "mountPath": "/c"},
                {"name": "d", "mountPath": "/sub", "subPath": "in/side"},
                {"name": "d", "mountPath": "/whole"},
                {"name": "m", "mountPath": "/m"},
            ],
            env=[
                {"name": "NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                {"name": "PLAIN", "value": "$(echo no shell)"},
            ],
            workingDir="/whole",
        ),
        volumes=[
            {
                "name": "s",
                "secret": {
                    "secretName": "s",
                    "defaultMode": 0o400,
                    "items": [{"key": "key", "path": "deep/er"}],
                },
            },
            {"name": "c", "configMap": {"name": "c"}},
            {"name": "d", "emptyDir": {}},
            {"name": "m", "emptyDir": {"medium": "Memory"}},
        ],
    )
    said = (await finished(bench, "p")).split()
    assert said == ["hidden", "400", "deep", "shown", "read-only", "in",
                    "0", "p", "$(echo", "no", "shell)", "p", "/whole"]  # fmt: skip


async def test_what_is_missing_is_named_and_waited_for(bench: Bench) -> None:
    volumes = [{"name": "s", "secret": {"secretName": "late"}}]
    cat = container("cat", "/s/k", mounts=[{"name": "s", "mountPath": "/s"}])
    await bench.pod("p", volumes=volumes, containers=cat)

    def names_it(pod: nodeagent.Obj) -> bool:
        (state,) = pod["status"].get("containerStatuses") or [{"state": {}}]
        return '"late" not found' in (state["state"].get("waiting") or {}).get("message", "")

    await bench.until("p", names_it, "missing secret in its status")
    base = f"/api/v1/namespaces/{bench.cluster.namespace}"
    secret = {"metadata": {"name": "late"}, "stringData": {"k": "here"}}
    await bench.cluster.request("POST", f"{base}/secrets", secret)
    assert await finished(bench, "p") == "here"


async def test_read_only_claims_cannot_be_written(bench: Bench) -> None:
    await bench.volume("data")
    claim = {"claimName": "data", "readOnly": True}
    volumes = [{"name": "v", "persistentVolumeClaim": claim}]
    touch = container("touch", "/v/x", mounts=[{"name": "v", "mountPath": "/v"}])
    await bench.pod("p", volumes=volumes, containers=touch)
    assert "Read-only file system" in await finished(bench, "p")
    assert bench.driver.calls.last("NodePublishVolume").readonly


async def test_a_group_is_given_the_files_of_its_volume(bench: Bench) -> None:
    await bench.volume("data", csi={"fsType": "ext4"})
    identity = {"fsGroup": 4321, "runAsUser": 1234}
    await bench.pod(
        "p", "sh", "-c", "touch /data/f; id", claims=("data",), securityContext=identity
    )
    said = await finished(bench, "p")
    assert "uid=1234 gid=1234 groups=1234,4321" in said
    file = os.stat(f"{bench.driver.content(f'{bench.cluster.namespace}-data')}/f")
    assert (file.st_uid, file.st_gid) == (1234, 4321)
    folder = os.stat(bench.driver.content(f"{bench.cluster.namespace}-data"))
    assert folder.st_mode & (stat.S_ISGID | stat.S_IWGRP)


async def test_drivers_that_know_groups_are_left_to_it(
    no_leaks: None, cluster: clusters.Cluster
) -> None:
    able = (STAGE, "VOLUME_MOUNT_GROUP", "SINGLE_NODE_MULTI_WRITER")
    async with nodeagent.bench(cluster, capabilities=able) as bench:
        await bench.volume("data", csi={"fsType": "ext4"}, mountOptions=["noatime"])
        await bench.pod("p", "true", claims=("data",), securityContext={"fsGroup": 4321})
        await finished(bench, "p")
        capability = bench.driver.calls.last("NodePublishVolume").volume_capability
        assert capability.mount.volume_mount_group == "4321"
        assert capability.mount.mount_flags == ["noatime"]
        assert capability.access_mode.mode.name == "SINGLE_NODE_MULTI_WRITER"


async def test_drivers_without_staging_publish_directly(
    no_leaks: None, cluster: clusters.Cluster
) -> None:
    async with nodeagent.bench(cluster, capabilities=()) as bench:
        await bench.volume("data")
        await bench.pod("p", "touch", "/data/f", claims=("data",))
        await finished(bench, "p")
        called = ["NodeGetInfo", "NodePublishVolume", "NodeUnpublishVolume"]
        assert bench.driver.calls.names() == called


async def test_a_command_that_cannot_run_fails_the_pod(bench: Bench) -> None:
    await bench.pod("p", "no-such-program")
    failed = await bench.phase("p", "Failed")
    ended = failed["status"]["containerStatuses"][0]["state"]["terminated"]
    assert ended["exitCode"] == 128
    await bench.delete("p")


async def test_a_driver_is_entered_and_taken_out(no_leaks: None, cluster: clusters.Cluster) -> None:
    topology = {"zone": "z1", "a.example.com/rack": "r1"}
    async with nodeagent.bench(cluster, topology=topology, limit=7) as bench:
        csi_node = f"/apis/storage.k8s.io/v1/csinodes/{bench.node.name}"
        (entry,) = (await cluster.request("GET", csi_node))["spec"]["drivers"]
        assert entry == {
            "name": bench.driver.name,
            "nodeID": "node-id-1",
            "topologyKeys": ["a.example.com/rack", "zone"],
            "allocatable": {"count": 7},
        }
        path = f"/api/v1/nodes/{bench.node.name}"
        node = await cluster.request("GET", path)
        assert topology.items() <= node["metadata"]["labels"].items()
        ids = node["metadata"]["annotations"]["csi.volume.kubernetes.io/nodeid"]
        assert ids == f'{{"{bench.driver.name}":"node-id-1"}}'
        word = await waiting.until(lambda: bench.driver.registration.status, "the agent's word")
        assert word.plugin_registered
        await bench.driver.registration.stop()
        await cluster.wait_for(csi_node, lambda it: not it["spec"].get("drivers"), "taken out")
        await cluster.wait_for(
            path,
            lambda it: (
                "csi.volume.kubernetes.io/nodeid" not in it["metadata"].get("annotations", {})
            ),
            "annotation gone",
        )
        bench.driver.node_id = "node-id-2"
        await bench.driver.register()
        await bench.registered()


async def test_a_contradicting_label_is_refused_until_the_driver_comes_anew(bench: Bench) -> None:
    path = f"/api/v1/nodes/{bench.node.name}"
    merge = "application/merge-patch+json"
    labels = {"metadata": {"labels": {"zone": "other"}}}
    await bench.cluster.request("PATCH", path, labels, content_type=merge)
    bench.driver.topology = {"zone": "z1"}
    bench.driver.registration.status = None
    await bench.driver.registration.stop()
    await bench.driver.register()
    refusal = await waiting.until(lambda: bench.driver.registration.status, "refusal")
    assert not refusal.plugin_registered
    assert "zone=z1 contradicts" in refusal.error
    unlabelled = {"metadata": {"labels": {"zone": None}}}
    await bench.cluster.request("PATCH", path, unlabelled, content_type=merge)
    await bench.driver.registration.stop()
    await bench.driver.register()
    await bench.registered()


async def test_without_mount_rights_pods_wait_and_say_why(
    no_leaks: None, cluster: clusters.Cluster
) -> None:
    root = cluster.directory / "weak"
    root.mkdir()
    prefix = ["/usr/bin/setpriv", "--bounding-set=-sys_admin"]
    node = await nodeagent.start_agent(cluster, f"{cluster.namespace}-weak", root, *prefix)
    driver = nodeagent.MountingDriver(cluster.driver_name, root, root / "state")
    bench = Bench(cluster, node, driver)
    await driver.serve()
    await driver.register()
    try:
        await bench.registered()
        await bench.pod("p", "true")

        def says_why(pod: nodeagent.Obj) -> bool:
            (state,) = pod["status"].get("containerStatuses") or [{"state": {}}]
            return "without root" in (state["state"].get("waiting") or {}).get("message", "")

        waiting_pod = await bench.until("p", says_why, "reason in its status")
        assert waiting_pod["status"]["phase"] == "Pending"
        await bench.cluster.request("DELETE", f"{bench.pods}/p")
        await bench.cluster.wait_for(f"{bench.pods}/p", lambda it: it is None, "pod gone")
    finally:
        await driver.stop()


async def test_two_agents_cannot_share_a_folder(bench: Bench) -> None:
    with pytest.raises(AssertionError, match="another devcluster-node works here"):
        await nodeagent.start_agent(bench.cluster, "other", bench.node.root_dir)


async def test_a_stopped_node_takes_no_pods(bench: Bench) -> None:
    await bench.node.process.stop()
    node = await bench.cluster.request("GET", f"/api/v1/nodes/{bench.node.name}")
    (ready,) = (c for c in node["status"]["conditions"] if c["type"] == "Ready")
    assert ready["status"] == "False"
    body = manifests.pod("p", nodeSelector={"kubernetes.io/hostname": bench.node.name})
    meta = {"name": "p", "namespace": bench.cluster.namespace}
    await bench.cluster.request("POST", bench.pods, {**body, "metadata": meta})

    def refused(pod: nodeagent.Obj) -> bool:
        conditions = pod["status"].get("conditions") or []
        return any("were not ready" in c.get("message", "") for c in conditions)

    await bench.until("p", refused, "reason why it is not placed")
