"""Pods with volumes on a node whose driver, kubelet or power goes away and comes back."""

from typing import Any

import pytest
from support import waiting
from support.kubeletside import DRIVER
from support.workloads import FOLDER, LATE, SAY, STAY, Work

pytestmark = [pytest.mark.root, pytest.mark.slow, pytest.mark.timeout(480)]


async def busy(work: Work, *names: str) -> None:
    """Have pods run that have written to a file system and a device and keep them mounted."""
    for name in names:
        await work.claim(f"{name}-files", LATE)
        await work.claim(f"{name}-disk", LATE, volumeMode="Block")
        script = f"echo {name} > /{name}-files/f; echo {name} > /dev/{name}-disk"
        await work.pod(name, STAY, files=[f"{name}-files"], disks=[f"{name}-disk"], first=script)
    for name in names:
        await work.runs(name)


async def reads_back(work: Work, name: str, reader: str) -> None:
    """Read by another pod what a pod of ``busy`` has written."""
    script = f"cat /{name}-files/f {SAY}; head -c {len(name)} /dev/{name}-disk >{SAY}"
    await work.pod(reader, script, files=[f"{name}-files"], disks=[f"{name}-disk"])
    assert (await work.says(reader)).split() == [name, name]


async def test_a_pod_deleted_while_its_driver_is_down_waits_for_it(work: Work) -> None:
    await busy(work, "one")
    await work.plugin.daemons[DRIVER].process.stop()
    await work.cluster.request("DELETE", f"{work.pods}/one")
    await work.until("one", has_ended, "has ended")
    await work.unmount_failed("one")
    assert (await work.read("one"))["metadata"]["deletionTimestamp"]
    assert len(await work.mounts("one")) >= 2
    await work.plugin.start_driver()
    await work.gone(f"{work.pods}/one")
    await reads_back(work, "one", "reader")


def has_ended(pod: dict[str, Any]) -> bool:
    return "terminated" in pod["status"]["containerStatuses"][0]["state"]


async def test_a_restarted_kubelet_keeps_pods_and_ends_those_forgotten_meanwhile(
    work: Work,
) -> None:
    await busy(work, "one", "two")
    before = await work.runs("one")
    mounted = await work.mounts("one")
    times = work.plugin.registrations()
    await work.plugin.restart_kubelet(meanwhile=lambda: work.forget("two"))
    await work.plugin.registered_again(times + 1)
    await work.pod("three", f"echo here {SAY}")
    assert await work.says("three") == "here"
    after = await work.runs("one")
    assert (after["containerID"], after["restartCount"]) == (before["containerID"], 0)
    assert await work.mounts("one") == mounted
    await reads_back(work, "two", "reader")
    await work.delete("one")
    await reads_back(work, "one", "another")


async def test_an_upgraded_driver_takes_over_the_pods_of_the_former(work: Work) -> None:
    await busy(work, "one")
    assert "allocatable" not in await work.registered()
    mounted = await work.mounts("one")
    times = work.plugin.registrations()
    await work.plugin.daemons[DRIVER].process.stop()
    await work.plugin.start_driver("--csi=1.13", "--max-volumes-per-node=9")
    await work.plugin.registered_again(times + 1)
    assert (await work.registered())["allocatable"] == {"count": 9}
    assert await work.mounts("one") == mounted
    await busy(work, "two")
    await work.delete("one", "two")
    await reads_back(work, "one", "reader")


@pytest.mark.kubernetes(reason="a node of the embedded cluster is a process, it has no power")
async def test_a_node_that_lost_power_brings_its_pods_back_with_their_data(work: Work) -> None:
    script = f"echo $HOSTNAME >> /data/starts; {STAY}"
    await work.stateful("db", script, FOLDER, replicas=1)
    await busy(work, "one")
    await work.scale("db", 1)
    await work.plugin.reboot()

    async def started_twice() -> bool:
        found = (await work.read("db-0"))["status"]["containerStatuses"][0]
        return bool(found["restartCount"] == 1 and found["ready"])

    await waiting.until(started_twice, "the set's pod after the reboot", 40.0)
    assert await work.exec("db-0", "cat", "/data/starts") == "db-0\ndb-0\n"
    await work.until("one", has_ended, "has ended, not to be restarted")
    await work.delete("one")
    # A pod that the scheduler refuses because the driver is not back stays refused for minutes.
    await work.plugin.registered_again(1)
    await work.registered()
    await reads_back(work, "one", "reader")
    await work.delete("reader")
    await work.scale("db", 0)
