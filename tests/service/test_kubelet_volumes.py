"""Claims of every kind, used by pods on a node, and gone with them."""

import pytest
from support import workloads
from support.workloads import FOLDER, LATE, NOW, SAY, STAY, Work

pytestmark = [pytest.mark.root, pytest.mark.slow, pytest.mark.timeout(480)]

WRITE = f"""
head -c 1048576 /dev/urandom > /files/payload
dd if=/files/payload of=/dev/disk conv=notrunc,fsync 2>/dev/null
sha256sum < /files/payload {SAY}
"""
READ = f"""
sum=$(sha256sum < /files/payload)
test "$sum" = "$(head -c 1048576 /dev/disk | sha256sum)"
echo "$sum" {SAY}
"""


@pytest.mark.parametrize("kind", [NOW, LATE])
async def test_files_and_devices_keep_their_data_from_pod_to_pod(work: Work, kind: str) -> None:
    await work.claim("files", kind)
    await work.claim("disk", kind, volumeMode="Block")
    if kind == NOW:
        await work.bound("files")
        await work.bound("disk")
    await work.pod("writer", WRITE, files=["files"], disks=["disk"])
    written = await work.says("writer")
    await work.pod("reader", READ, files=["files"], disks=["disk"])
    assert await work.says("reader") == written


@pytest.mark.parametrize("who", ["scheduler", "node"])
async def test_one_pod_at_a_time_has_an_exclusive_volume(work: Work, who: str) -> None:
    await work.claim("data", FOLDER, accessModes=["ReadWriteOncePod"])
    await work.pod("first", f"echo from the first > /data/f; {STAY}", files=["data"])
    await work.runs("first")
    forced = {"nodeName": work.plugin.node} if who == "node" else {}
    await work.pod("second", f"cat /data/f {SAY}", files=["data"], **forced)
    if who == "scheduler":
        await work.until("second", is_unschedulable, "has no node")
    else:
        await work.event("second", "FailedMount")
    assert not workloads.is_running(await work.read("second"))
    await work.delete("first")
    assert await work.says("second") == "from the first"


def is_unschedulable(pod: workloads.Obj) -> bool:
    found = {one["type"]: one for one in pod["status"].get("conditions") or ()}
    return bool(found.get("PodScheduled", {}).get("reason") == "Unschedulable")


@pytest.mark.parametrize("kind", [FOLDER, LATE])
async def test_groups_parts_and_read_only_reach_the_volume(work: Work, kind: str) -> None:
    await work.claim("data", kind)
    volume: workloads.Obj = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
    whole, part = {"name": "data", "mountPath": "/whole"}, {"name": "data", "mountPath": "/part"}
    script = f"touch /part/f; stat -c '%u %g' /whole/in/side/f {SAY}"
    seen = {"volumeMounts": [whole, {**part, "subPath": "in/side"}]}
    identity = {"runAsUser": 1234, "fsGroup": 4321}
    spec: workloads.Obj = {"volumes": [volume]}
    spec["containers"] = [workloads.container(script, seen)]
    await work.pod("user", "", **spec, securityContext=identity)
    assert await work.says("user") == "1234 4321"
    volume["persistentVolumeClaim"] = {"claimName": "data", "readOnly": True}
    script = f"test -e /whole/in/side/f; ! touch /whole/g 2>/dev/null; echo kept {SAY}"
    spec["containers"] = [workloads.container(script, {"volumeMounts": [whole]})]
    await work.pod("reader", "", **spec)
    assert await work.says("reader") == "kept"


async def test_an_ephemeral_volume_comes_and_goes_with_its_pod(work: Work) -> None:
    template = {"spec": work.claim_spec(LATE)}
    volumes = [{"name": "scratch", "ephemeral": {"volumeClaimTemplate": template}}]
    script = f"stat -f -c %T /scratch {SAY}"
    seen = workloads.mounts_of({"scratch": "/scratch"}, {})
    containers = [workloads.container(script, seen)]
    await work.pod("user", "", volumes=volumes, containers=containers)
    assert await work.says("user") == "ext2/ext3"
    claim = await work.cluster.request("GET", f"{work.claims}/user-scratch")
    assert claim["metadata"]["ownerReferences"][0]["uid"] == await work.uid("user")
    await work.delete("user")
    await work.gone(f"{work.claims}/user-scratch")


@pytest.mark.kubernetes(reason="the embedded cluster has no controller of StatefulSets")
async def test_a_set_scaled_to_nothing_finds_its_data_again(work: Work) -> None:
    script = f"echo $HOSTNAME >> /data/starts; {STAY}"
    await work.stateful("db", script, FOLDER, replicas=0)
    for round_ in (1, 2):
        await work.scale("db", 3)
        for number in range(3):
            await work.runs(f"db-{number}")
            found = await work.exec(f"db-{number}", "cat", "/data/starts")
            assert found == f"db-{number}\n" * round_
        await work.scale("db", 0)
    listed = await work.cluster.request("GET", work.claims)
    assert sorted(one["metadata"]["name"] for one in listed["items"]) == [
        "data-db-0",
        "data-db-1",
        "data-db-2",
    ]
