"""Backends on a real file system: content made, found and removed. Mounting is tested as root."""

import os
import pathlib
import subprocess
from collections.abc import Iterator

import pytest
from bitts.rpc.codes import Code, RpcError
from local_driver import filesystems, loops, mountflags, mounts, quotas
from local_driver.backends.backend import Site
from local_driver.backends.directory import DirectoryBackend
from local_driver.backends.image import ImageBackend
from local_driver.volumes import AccessMode, AccessType, Capability, Content, Volume, volume_id

MIB = 1 << 20
ID = volume_id("n", "v")
MOUNT = Capability(AccessType.MOUNT, AccessMode.SINGLE_NODE_WRITER)
BLOCK = Capability(AccessType.BLOCK, AccessMode.SINGLE_NODE_WRITER)


def volume(**changes: object) -> Volume:
    fields: dict[str, object] = {
        "volume_id": ID, "name": "v", "serial": 1, "node": "n", "backend": "image",
        "capacity": 8 * MIB, "access": frozenset(AccessType), "filesystem": "ext4",
        "content": Content.BLANK, "created": 0.0, **changes,
    }  # fmt: skip
    return Volume(**fields)  # type: ignore[arg-type]


@pytest.fixture
def directory(tmp_path: pathlib.Path) -> DirectoryBackend:
    return DirectoryBackend(Site(tmp_path))


@pytest.fixture
def image(tmp_path: pathlib.Path) -> Iterator[ImageBackend]:
    backend = ImageBackend(Site(tmp_path))
    yield backend
    for loop in loops.find(backend.folder / f"{ID}.img"):
        for mount in backend.sightings(ID):
            mounts.unmount(pathlib.Path(mount.point))
        loops.detach(loop)


def test_a_folder_comes_and_goes(directory: DirectoryBackend) -> None:
    directory.create(volume())
    assert directory.contents() == {ID}
    (directory.folder / ID / "file").write_text("data")
    directory.create(volume())  # over rubbish of the same ID
    assert list((directory.folder / ID).iterdir()) == []
    directory.remove(ID)
    directory.remove(ID)
    assert directory.contents() == set()


def test_others_cannot_reach_into_folders(directory: DirectoryBackend) -> None:
    assert directory.folder.stat().st_mode & 0o777 == 0o700


def test_a_tree_too_deep_for_recursion_is_removed(directory: DirectoryBackend) -> None:
    directory.create(volume())
    home = os.open(directory.folder / ID, os.O_RDONLY)
    for _level in range(1500):
        os.mkdir("deeper", dir_fd=home)
        below = os.open("deeper", os.O_RDONLY, dir_fd=home)
        os.close(home)
        home = below
    os.close(home)
    directory.remove(ID)
    assert directory.contents() == set()


def test_links_out_of_a_folder_are_not_followed(
    directory: DirectoryBackend, tmp_path: pathlib.Path
) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "file").touch()
    directory.create(volume())
    (directory.folder / ID / "link").symlink_to(precious)
    directory.remove(ID)
    assert (precious / "file").exists()


def test_a_folder_is_no_device_and_has_the_nodes_file_system(directory: DirectoryBackend) -> None:
    assert directory.offer.filesystems == (mounts.containing(directory.folder).filesystem,)
    with pytest.raises(RpcError) as caught:
        directory.device(volume(), read_only=False)
    assert caught.value.code is Code.FAILED_PRECONDITION


def test_quota_is_claimed_only_where_it_is_enforced(directory: DirectoryBackend) -> None:
    mount = mounts.containing(directory.folder)
    assert directory.is_limiting == ("prjquota" in mount.super_options)
    assert quotas.project(directory.folder / "missing") is None


def test_an_image_is_sparse(image: ImageBackend) -> None:
    image.create(volume(capacity=1 << 40))
    path = image.folder / f"{ID}.img"
    assert path.stat().st_size == 1 << 40
    assert path.stat().st_blocks == 0
    assert path.stat().st_mode & 0o777 == 0o600
    assert image.contents() == {ID}
    image.create(volume(capacity=MIB))
    assert path.stat().st_size == MIB
    image.remove(ID)
    image.remove(ID)
    assert image.contents() == set()


def test_an_image_that_cannot_be_made_leaves_nothing(image: ImageBackend) -> None:
    with pytest.raises(OSError, match="Invalid"):
        image.create(volume(capacity=-1))
    assert image.contents() == set()


@pytest.mark.parametrize("filesystem", filesystems.installed())
def test_an_image_is_formatted_once(image: ImageBackend, filesystem: str) -> None:
    size = image.offer.minimum[filesystem]
    blank = volume(capacity=size, filesystem=filesystem)
    image.create(blank)
    assert image.prepare(blank, MOUNT) == filesystem
    formatted = volume(capacity=size, filesystem=filesystem, content=Content(filesystem))
    before = (image.folder / f"{ID}.img").read_bytes()[: 64 * 1024]
    assert any(before)
    assert image.prepare(formatted, MOUNT) == filesystem
    assert (image.folder / f"{ID}.img").read_bytes()[: 64 * 1024] == before
    assert (image.folder / f"{ID}.img").stat().st_size == size


def test_what_was_written_to_a_raw_volume_is_never_formatted_away(image: ImageBackend) -> None:
    image.create(volume())
    assert image.prepare(volume(), BLOCK) is Content.RAW
    with pytest.raises(RpcError) as caught:
        image.prepare(volume(content=Content.RAW), MOUNT)
    assert caught.value.code is Code.FAILED_PRECONDITION
    assert "raw" in caught.value.message


def test_a_failed_mkfs_leaves_the_image_blank(image: ImageBackend) -> None:
    small = volume(capacity=4096, filesystem="xfs")
    image.create(small)
    with pytest.raises(filesystems.FormatError, match=r"mkfs\.xfs ended with"):
        image.prepare(small, MOUNT)
    assert sorted(path.name for path in image.folder.iterdir()) == [f"{ID}.img"]
    assert (image.folder / f"{ID}.img").stat().st_blocks == 0


def test_half_formatted_images_go_at_the_start(tmp_path: pathlib.Path, image: ImageBackend) -> None:
    image.create(volume())
    (image.folder / f"{ID}.formatting").touch()
    assert ImageBackend(Site(tmp_path)).contents() == {ID}
    assert sorted(path.name for path in image.folder.iterdir()) == [f"{ID}.img"]


@pytest.mark.root
def test_a_file_system_is_shown_through_a_device_that_goes_with_its_mount(
    image: ImageBackend, tmp_path: pathlib.Path
) -> None:
    place = tmp_path / "staging"
    place.mkdir()
    image.create(volume())
    image.prepare(volume(), MOUNT)
    assert image.in_use(ID) == ""
    image.show(volume(), place, mountflags.parse(["noatime"]))
    (loop,) = loops.find(image.folder / f"{ID}.img")
    assert loop.is_autoclear
    (seen,) = image.sightings(ID)
    assert (seen.point, seen.filesystem, "noatime" in seen.options) == (str(place), "ext4", True)
    assert str(place) in image.in_use(ID)
    with pytest.raises(RpcError, match="in use in another way"):
        image.device(volume(), read_only=False)
    mounts.unmount(place)
    assert loops.find(image.folder / f"{ID}.img") == []


@pytest.mark.root
def test_raw_devices_stay_until_released_and_readers_cannot_write(image: ImageBackend) -> None:
    image.create(volume())
    writable = image.device(volume(), read_only=False)
    assert image.device(volume(), read_only=False) == writable
    readable = image.device(volume(), read_only=True)
    assert readable != writable
    writable.write_bytes(b"data")
    with pytest.raises(PermissionError), readable.open("r+b") as device:
        device.write(b"more")
    assert image.in_use(ID) == f"attached to {min(writable, readable)}"
    with pytest.raises(RpcError, match="in use in another way"):
        image.show(volume(), image.folder, mountflags.MountFlags())
    image.release(ID)
    assert image.in_use(ID) == ""
    assert (image.folder / f"{ID}.img").read_bytes()[:4] == b"data"


@pytest.mark.root
def test_a_busy_mount_cannot_be_taken_away(tmp_path: pathlib.Path) -> None:
    source, target = tmp_path / "a", tmp_path / "b"
    source.mkdir()
    target.mkdir()
    mounts.bind(source, target, mountflags.parse(["ro", "noexec", "strictatime"]))
    try:
        found = mounts.table().at(target)
        assert found is not None
        assert found.is_read_only
        assert "noexec" in found.options
        with pytest.raises(OSError, match="Read-only"):
            (target / "file").touch()
        (source / "file").touch()
        with subprocess.Popen(["sleep", "60"], cwd=target) as sleeper:
            with pytest.raises(OSError, match="busy"):
                mounts.unmount(target)
            sleeper.kill()
    finally:
        mounts.unmount(target)
    with pytest.raises(OSError, match="unmount"):
        mounts.unmount(target)
    mounts.remove_target(target)
    mounts.remove_target(target)
    with pytest.raises(OSError, match="not empty"):
        mounts.remove_target(source)
    with pytest.raises(FileNotFoundError):
        mounts.bind(tmp_path / "missing", source, mountflags.MountFlags())


def test_any_pods_user_can_write_to_a_fresh_folder(directory: DirectoryBackend) -> None:
    directory.create(volume())
    assert (directory.folder / ID).stat().st_mode & 0o777 == 0o777


@pytest.mark.root
def test_project_quota_limits_where_the_kernel_has_it(tmp_path: pathlib.Path) -> None:
    """Kernels built without quota must not be taken for enforcing it."""
    disk, state = tmp_path / "disk.img", tmp_path / "state"
    state.mkdir()
    with disk.open("wb") as file:
        file.truncate(64 * MIB)
    subprocess.run(
        ["mkfs.ext4", "-q", "-F", "-O", "quota,project", "-E", "quotatype=prjquota", disk],
        check=True,
    )
    mounted = subprocess.run(
        ["mount", "-o", "loop,prjquota", disk, state], check=False, capture_output=True
    )
    if mounted.returncode != 0:
        assert not DirectoryBackend(Site(state)).is_limiting
        return
    try:
        backend = DirectoryBackend(Site(state))
        assert backend.is_limiting
        backend.create(volume(is_limited=True))
        place = backend.folder / ID
        assert filesystems.usage(place).total_bytes == 8 * MIB
        (place / "file").write_bytes(bytes(4 * MIB))
        assert filesystems.usage(place).available_bytes < 4 * MIB + MIB
        backend.remove(ID)
        backend.create(volume(is_limited=True))
        assert filesystems.usage(place).used_bytes < MIB
        backend.remove(ID)
    finally:
        subprocess.run(["umount", state], check=True)
