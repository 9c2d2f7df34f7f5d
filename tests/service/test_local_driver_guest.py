"""Backend image where the kernel gives all it may want: CAP_SYS_RESOURCE, and cgroup v2."""

import asyncio
import os
import pathlib
from collections.abc import Iterator

import pytest
from bitts.csi import v1
from local_driver import growing
from support import localdriver, processes, waiting
from support.localdriver import MIB, TIMEOUT, Client, Use, capability, create_request

pytestmark = [
    pytest.mark.root,
    pytest.mark.guest(reason="grows a mounted ext4, and turns controllers of cgroup v2 on"),
]

UID = "0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0"
CGROUPS = pathlib.Path("/sys/fs/cgroup")
SIZE, LARGER = 16 * MIB, 64 * MIB


@pytest.fixture
def pod() -> Iterator[pathlib.Path]:
    """Where a kubelet will make the control group of a pod, which goes at the end."""
    pod = CGROUPS / "kubepods" / "burstable" / f"pod{UID}"
    above = pod.parents[: pod.parents.index(CGROUPS) + 1]
    for folder in reversed(above):
        folder.mkdir(exist_ok=True)
        (folder / "cgroup.subtree_control").write_text("+io")
    yield pod
    for folder in (pod, *above[:-1]):
        folder.rmdir()


async def test_a_mounted_ext4_grows_under_its_writer_who_is_limited_as_its_class_says(
    short_dir: pathlib.Path, spawner: processes.Processes, pod: pathlib.Path
) -> None:
    assert await asyncio.to_thread(growing.is_online, "ext4")
    async with (
        localdriver.running(short_dir, spawner, "--backends=image") as harness,
        harness.client() as client,
    ):
        want = capability(fs_type="ext4")
        volume = await client.create(create_request("v", size=SIZE, want=[want]))
        use = Use(client, harness.home, volume, want)
        use.target = harness.home / "pods" / UID / "volumes" / "v" / "mount"
        use.target.parent.mkdir(parents=True)
        await use.stage()
        await use.publish()
        await grows_under_its_writer(client, use)
        await is_limited(client, use, pod)
        await use.unpublish()
        await use.unstage()
        await client.delete(use.volume_id)
        assert harness.content() == []
        assert await asyncio.to_thread(harness.leaked) == []


async def grows_under_its_writer(client: Client, use: Use) -> None:
    """The size comes while a file is open; what was written and what is written then is there."""
    data = os.urandom(MIB)
    before = await use.total()
    with await asyncio.to_thread((use.target / "data").open, "w+b", buffering=0) as file:
        await asyncio.to_thread(file.write, data)
        assert await client.expand(use.volume_id, LARGER)
        assert await use.total() == before
        assert await use.expand(LARGER) == LARGER
        assert await use.total() - before > 0.9 * (LARGER - SIZE)

        def write_on() -> bytes:
            for _ in range(SIZE // MIB):  # more than there was room for
                file.write(data)
            os.fsync(file.fileno())
            file.seek(0)
            return file.read()

        assert await asyncio.to_thread(write_on) == data * (1 + SIZE // MIB)


async def is_limited(client: Client, use: Use, pod: pathlib.Path) -> None:
    """Limits are the kernel's when the group comes, then at once, and go with the class."""

    async def limit(value: str) -> None:
        request = v1.ControllerModifyVolumeRequest(
            volume_id=use.volume_id, mutable_parameters={"writeBytesPerSecond": value}
        )
        await client.controller.controller_modify_volume(request, timeout=TIMEOUT)

    def kept() -> str:
        return (pod / "io.max").read_text()

    await limit("1048576")
    await asyncio.to_thread(pod.mkdir)
    await waiting.until(lambda: asyncio.to_thread(kept), "the limit of a group that came later")
    assert "wbps=1048576" in await asyncio.to_thread(kept)
    await limit("2097152")
    assert "wbps=2097152" in await asyncio.to_thread(kept)
    await limit("max")
    assert await asyncio.to_thread(kept) == ""
