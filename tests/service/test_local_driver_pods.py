"""Every sort of volume in the hands of pods, on the embedded cluster and on a kubelet."""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass

import pytest
from support import kubeletside
from support.workloads import FOLDER, LATE, SAY, STORAGE, Work

pytestmark = [pytest.mark.root, pytest.mark.slow]


@dataclass(frozen=True)
class Sort:
    """A sort of volume, and what ``stat -f`` calls its file system in a pod ("": a device)."""

    parameters: Mapping[str, str]
    size: str = "32Mi"
    filesystem: str = ""

    @property
    def is_limited(self) -> bool:
        """Whether there is an end to what a pod can write."""
        return self.parameters["backend"] != "directory"


FSTYPE = "csi.storage.k8s.io/fstype"
SORTS = {
    "directory": Sort({"backend": "directory"}, filesystem="ext"),
    "ext4": Sort({"backend": "image", FSTYPE: "ext4"}, filesystem="ext"),
    "xfs": Sort({"backend": "image", FSTYPE: "xfs"}, "300Mi", filesystem="xfs"),
    "block": Sort({"backend": "image"}),
    "btrfs": Sort({"backend": "btrfs"}, filesystem="btrfs"),
}
WRITE = f"""
head -c 1048576 /dev/urandom > /files/payload
stat -f -c %T /files > /tmp/kind
if dd if=/dev/zero of=/files/filler bs=1M count=40 conv=fsync 2>/dev/null
then echo unlimited >> /tmp/kind; else echo limited >> /tmp/kind; fi
rm /files/filler
sha256sum < /files/payload | cut -d ' ' -f 1 >> /tmp/kind
cat /tmp/kind {SAY}
"""
READ = f"sha256sum < /files/payload | cut -d ' ' -f 1 {SAY}"
WRITE_RAW = f"""
head -c 1048576 /dev/urandom > /tmp/payload
dd if=/tmp/payload of=/dev/disk conv=notrunc,fsync 2>/dev/null
sha256sum < /tmp/payload | cut -d ' ' -f 1 {SAY}
"""
READ_RAW = f"head -c 1048576 /dev/disk | sha256sum | cut -d ' ' -f 1 {SAY}"


class Plugin(kubeletside.Plugin):
    """A driver that has a btrfs of its own too."""

    async def start_driver(self, *words: str) -> None:
        """As kubeletside has it, with every backend."""
        backends = ("--backends=directory,image,btrfs", "--btrfs-size=1Gi")
        await super().start_driver(*backends, *words)


@pytest.fixture(params=list(SORTS))
async def sort(request: pytest.FixtureRequest, work: Work) -> AsyncIterator[Sort]:
    """A sort of volume with a class ``sort`` of its own."""
    chosen = SORTS[request.param]
    body = {
        "metadata": {"name": work.class_name("sort")},
        "provisioner": work.plugin.name,
        "volumeBindingMode": "WaitForFirstConsumer",
        "parameters": chosen.parameters,
    }
    await work.cluster.request("POST", f"{STORAGE}/storageclasses", body)
    yield chosen
    await work.cluster.request("DELETE", f"{STORAGE}/storageclasses/{work.class_name('sort')}")


async def test_what_a_pod_writes_the_next_one_reads(work: Work, sort: Sort) -> None:
    resources = {"requests": {"storage": sort.size}}
    if not sort.filesystem:
        await work.claim("disk", "sort", resources=resources, volumeMode="Block")
        await work.pod("writer", WRITE_RAW, disks=["disk"])
        written = await work.says("writer")
        await work.pod("reader", READ_RAW, disks=["disk"])
        assert await work.says("reader") == written
        return
    await work.claim("files", "sort", resources=resources)
    await work.pod("writer", WRITE, files=["files"])
    kind, is_limited, written = (await work.says("writer")).splitlines()
    assert sort.filesystem in kind or kind == "UNKNOWN"
    if sort.is_limited and sort.size == "32Mi":
        assert is_limited == "limited"
    await work.pod("reader", READ, files=["files"])
    assert await work.says("reader") == written


@pytest.mark.parametrize("kind", [LATE, FOLDER])
async def test_each_pod_s_group_has_what_the_one_before_wrote(work: Work, kind: str) -> None:
    # The driver announces VOLUME_MOUNT_GROUP, so neither kubelet nor agent changes any owner.
    await work.claim("files", kind)
    first = {"runAsUser": 1234, "runAsGroup": 1234, "fsGroup": 4321}
    write = f"umask 077; echo word > /files/word; stat -c '%g %A' /files {SAY}"
    await work.pod("writer", write, files=["files"], securityContext=first)
    group, mode = (await work.says("writer")).split()
    assert (group, mode[4:7]) == ("4321", "rws")
    second = {"runAsUser": 5678, "runAsGroup": 5678, "fsGroup": 8765}
    read = f"cat /files/word {SAY}; echo more >> /files/word"
    await work.pod("reader", read, files=["files"], securityContext=second)
    assert await work.says("reader") == "word"
