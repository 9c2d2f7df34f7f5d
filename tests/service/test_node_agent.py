"""The node agent with a real driver, real mounts and real processes."""

import asyncio
import os
from collections.abc import AsyncIterator

import pytest
from support import cluster as clusters
from support import nodeagent, waiting
from support.nodeagent import Bench

pytestmark = [
    pytest.mark.root,
    pytest.mark.embedded(reason="is about the embedded cluster's node agent"),
]


@pytest.fixture
async def bench(no_leaks: None, cluster: clusters.Cluster) -> AsyncIterator[Bench]:
    async with nodeagent.bench(cluster) as made:
        yield made


async def test_a_pod_reads_what_another_wrote_and_nothing_is_left(bench: Bench) -> None:
    await bench.volume("data")
    await bench.pod("writer", "sh", "-c", "echo precious > /data/f", claims=("data",))
    done = await bench.phase("writer", "Succeeded")
    (state,) = done["status"]["containerStatuses"]
    assert state["state"]["terminated"]["exitCode"] == 0
    await bench.delete("writer")
    await bench.pod("reader", "sh", "-c", "cat /data/f", claims=("data",))
    await bench.phase("reader", "Succeeded")
    assert await bench.log("reader") == "precious\n"
    await bench.delete("reader")
    stage = ["NodeStageVolume", "NodePublishVolume", "NodeUnpublishVolume", "NodeUnstageVolume"]
    assert bench.driver.calls.names() == ["NodeGetInfo", *stage, *stage]
    request = bench.driver.calls.last("NodePublishVolume")
    assert request.target_path.endswith("/mount")
    assert request.staging_target_path.endswith("/globalmount")
    assert not any((bench.node.root_dir / "pods").iterdir())


async def test_a_volume_is_staged_once_for_two_pods(bench: Bench) -> None:
    await bench.volume("data")
    for name in ("one", "two"):
        await bench.pod(name, "sleep", "600", claims=("data",))
        await bench.phase(name, "Running")
    await bench.delete("one")
    assert bench.driver.calls.count("NodeUnstageVolume") == 0
    await bench.delete("two")
    assert bench.driver.calls.count("NodeUnpublishVolume") == 2
    assert bench.driver.calls.count("NodeUnstageVolume") == 1


async def test_of_pods_that_go_at_once_the_last_takes_their_volume_away(bench: Bench) -> None:
    await bench.volume("data")
    names = [f"p{number}" for number in range(12)]
    for name in names:
        await bench.pod(name, "sleep", "600", claims=("data",))
    for name in names:
        await bench.phase(name, "Running")
    await asyncio.gather(*map(bench.delete, names))
    assert bench.driver.calls.count("NodeUnpublishVolume") == len(names)
    assert bench.driver.calls.count("NodeUnstageVolume") == 1


async def test_a_killed_agent_is_succeeded_by_one_that_adopts(bench: Bench) -> None:
    await bench.volume("data")
    await bench.pod("kept", "sleep", "600", claims=("data",))
    await bench.pod("lost", "sleep", "600", claims=("data",))
    for name in ("kept", "lost"):
        await bench.phase(name, "Running")
    uid = await bench.uid("lost")
    run = next(bench.node.root_dir.glob(f"pods/{await bench.uid('kept')}/containers/*/run.json"))
    before = run.read_text()
    bench.node.process.kill()
    lost = f"{bench.pods}/lost?gracePeriodSeconds=0"
    await bench.cluster.request("DELETE", lost)
    await bench.restart_agent()
    await bench.gone("lost", uid)
    kept = await bench.phase("kept", "Running")
    assert kept["status"]["containerStatuses"][0]["restartCount"] == 0
    assert run.read_text() == before
    assert bench.driver.calls.count("NodePublishVolume") == 2
    await bench.delete("kept")
    assert bench.driver.calls.count("NodeUnstageVolume") == 1


async def test_a_container_that_ended_meanwhile_is_judged_by_its_exit_code(bench: Bench) -> None:
    await bench.pod("p", "sh", "-c", "until [ -e /go/now ]; do sleep 0.02; done; exit 7",
                    volumes=[{"name": "go", "hostPath": {"path": str(bench.node.root_dir)}}],
                    containers=[_container("main", go="/go")])  # fmt: skip
    await bench.phase("p", "Running")
    bench.node.process.kill()
    (bench.node.root_dir / "now").touch()
    exit_note = next(bench.node.root_dir.glob("pods/*/containers/main"), None)
    assert exit_note
    await waiting.until((exit_note / "exit.json").exists, "end of the container")
    await bench.restart_agent()
    failed = await bench.phase("p", "Failed")
    assert failed["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 7
    await bench.delete("p")


def _container(name: str, *command: str, **mounts: str) -> dict[str, object]:
    found: dict[str, object] = {"name": name, "image": "none"}
    if command:
        found["command"] = list(command)
    found["volumeMounts"] = [{"name": key, "mountPath": path} for key, path in mounts.items()]
    return found


async def test_a_failing_driver_is_reported_and_tried_again(bench: Bench) -> None:
    bench.driver.calls.failures["NodeStageVolume"] = 3
    await bench.volume("data")
    await bench.pod("p", "true", claims=("data",))

    def complains(pod: nodeagent.Obj) -> bool:
        (state,) = pod["status"].get("containerStatuses") or [{"state": {}}]
        return "as the test wishes" in (state["state"].get("waiting") or {}).get("message", "")

    await bench.until("p", complains, "the problem in its status")
    await bench.phase("p", "Succeeded")
    assert await bench.events("FailedMount")
    await bench.delete("p")


async def test_a_driver_that_is_away_is_waited_for(bench: Bench) -> None:
    await bench.volume("data")
    await bench.pod("p", "sleep", "600", claims=("data",))
    await bench.phase("p", "Running")
    await bench.driver.stop_serving()
    uid = await bench.uid("p")
    await bench.cluster.request("DELETE", f"{bench.pods}/p")
    await waiting.until(lambda: bench.events("FailedUnMount"), "report of the failed unmount")
    await bench.driver.serve()
    await bench.gone("p", uid)


async def test_an_attached_volume_waits_for_its_attachment(bench: Bench) -> None:
    await bench.volume("data", attach=True)
    await bench.pod("p", "sleep", "600", claims=("data",))
    attachments = "/apis/storage.k8s.io/v1/volumeattachments"

    async def attachment() -> str:
        found = await bench.cluster.request("GET", attachments)
        ours = (a for a in found["items"] if a["spec"]["nodeName"] == bench.node.name)
        return next((str(a["metadata"]["name"]) for a in ours), "")

    name = await waiting.until(attachment, "VolumeAttachment")
    node_path = f"/api/v1/nodes/{bench.node.name}"
    in_use = f"kubernetes.io/csi/{bench.driver.name}^{bench.cluster.namespace}-data"
    await bench.cluster.wait_for(
        node_path, lambda it: it["status"].get("volumesInUse") == [in_use], "volume in use"
    )
    assert bench.driver.calls.count("NodeStageVolume") == 0
    body = {"status": {"attached": True, "attachmentMetadata": {"slot": "7"}}}
    await bench.cluster.request(
        "PATCH",
        f"{attachments}/{name}/status",
        body,
        content_type="application/merge-patch+json",
    )
    await bench.phase("p", "Running")
    assert bench.driver.calls.last("NodeStageVolume").publish_context == {"slot": "7"}
    await bench.delete("p")
    await bench.cluster.wait_for(
        node_path, lambda it: not it["status"].get("volumesInUse"), "no volume in use"
    )
    await bench.cluster.wait_for(f"{attachments}/{name}", lambda it: it is None, "detached")


async def test_containers_are_asked_to_end_before_they_are_killed(bench: Bench) -> None:
    script = "trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.05; done"
    await bench.pod("polite", "sh", "-c", script)
    await bench.pod("deaf", "sh", "-c", "trap '' TERM; echo up; while :; do sleep 0.05; done",
                    terminationGracePeriodSeconds=1)  # fmt: skip
    for name in ("polite", "deaf"):
        await bench.phase(name, "Running")
        await bench.says(name, "up")
    log = bench.node.root_dir / "pods" / await bench.uid("polite") / "main.log"
    copy = os.open(log, os.O_RDONLY)
    await asyncio.gather(bench.delete("polite"), bench.delete("deaf"))
    assert os.read(copy, 100) == b"up\nbye\n"
    os.close(copy)


async def test_restart_policies_and_init_containers(bench: Bench) -> None:
    count = "echo x >> /d/n; test $(wc -l < /d/n) -ge 3"
    empty = [{"name": "d", "emptyDir": {}}]
    await bench.pod("again", volumes=empty, restartPolicy="OnFailure",
                    containers=[_container("main", "sh", "-c", count, d="/d")])  # fmt: skip
    await bench.pod("broken", "true", initContainers=[_container("first", "false")])
    await bench.pod(
        "ordered",
        volumes=empty,
        initContainers=[
            _container("first", "sh", "-c", "echo 1 > /d/n", d="/d"),
            _container("second", "sh", "-c", "echo 2 >> /d/n", d="/d"),
        ],
        containers=[_container("main", "cat", "/d/n", d="/d")],
    )
    again = await bench.phase("again", "Succeeded")
    assert again["status"]["containerStatuses"][0]["restartCount"] == 2
    await bench.phase("broken", "Failed")
    await bench.phase("ordered", "Succeeded")
    assert await bench.log("ordered") == "1\n2\n"
    for name in ("again", "broken", "ordered"):
        await bench.delete(name)
