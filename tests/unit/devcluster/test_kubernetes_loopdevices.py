"""Which loop devices are of a node that has ended, and that just these are freed."""

import pathlib
import subprocess
from collections.abc import Iterator

import pytest
from devcluster.kubernetes import loopdevices
from devcluster.kubernetes.loopdevices import Device

LOCK = "/var/lib/kubelet/plugins/kubernetes.io/csi/volumeDevices/pvc-1/dev/uid"


@pytest.fixture
def image(tmp_path: pathlib.Path) -> pathlib.Path:
    path = tmp_path / "node-1/plugins/driver/disk.img"
    path.parent.mkdir(parents=True)
    path.write_bytes(bytes(1 << 20))
    return path


def device(path: str, given: str, image: pathlib.Path) -> Device:
    status = image.stat()
    return Device(7, path, given, status.st_dev, status.st_ino)


@pytest.mark.parametrize(
    "path",
    [
        pytest.param("/plugins/driver/disk.img", id="the node's mounts are gone"),
        pytest.param("/var/lib/kubelet/plugins/driver/disk.img", id="they are going"),
    ],
)
def test_a_file_on_the_node_s_disk_is_the_node_s(path: str, image: pathlib.Path) -> None:
    root = image.parents[2]
    assert loopdevices.is_of(device(path, "disk.img", image), root)
    other = Device(7, path, "disk.img", 1, 1)
    assert not loopdevices.is_of(other, root), "the same name on another disk"


def test_a_kubelet_s_lock_is_the_node_s_when_its_mount_is_gone(image: pathlib.Path) -> None:
    root = image.parents[2]
    assert loopdevices.is_of(Device(7, "/", LOCK[:63]), root)
    assert not loopdevices.is_of(Device(7, "/", "/dev/sda"), root)


def test_a_kubelet_s_lock_is_the_node_s_when_its_folder_has_it(image: pathlib.Path) -> None:
    root = image.parents[2]
    assert not loopdevices.is_of(Device(7, LOCK, LOCK[:63]), root), "another kubelet's"
    placeholder = root / pathlib.PurePath(LOCK).relative_to("/var/lib/kubelet")
    placeholder.parent.mkdir(parents=True)
    placeholder.touch()
    assert loopdevices.is_of(Device(7, LOCK, LOCK[:63]), root)


@pytest.fixture
def bound(image: pathlib.Path) -> Iterator[pathlib.Path]:
    command = ["losetup", "--find", "--show", str(image)]
    name = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    yield pathlib.Path(name)
    subprocess.run(["losetup", "--detach", name], check=False, capture_output=True)


@pytest.mark.root
def test_devices_of_others_stay_bound(bound: pathlib.Path, image: pathlib.Path) -> None:
    """Seen from here, the file is not where a node that is gone would have it."""
    number = int(bound.name.removeprefix("loop"))
    (found,) = [one for one in loopdevices.bound() if one.number == number]
    assert found.path == str(image)
    assert found.given.startswith(str(image)[:40])
    assert (found.device, found.inode) == (image.stat().st_dev, image.stat().st_ino)
    assert loopdevices.release(image.parents[2]) == []
    assert number in {one.number for one in loopdevices.bound()}


@pytest.mark.root
def test_a_device_of_the_node_is_freed(
    bound: pathlib.Path, image: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    root = tmp_path / "other"
    same = root / str(image).lstrip("/")
    same.parent.mkdir(parents=True)
    same.hardlink_to(image)
    assert loopdevices.release(root) == [f"{bound.name} of {image}"]
    assert bound.name not in {f"loop{one.number}" for one in loopdevices.bound()}
