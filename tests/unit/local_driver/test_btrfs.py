"""Subvolumes on a real btrfs: a pool in a file, made and mounted as the driver does it."""

import os
import pathlib
import re
import subprocess
from collections.abc import Iterator

import pytest
from local_driver import filesystems, mountflags, mounts, pool, subvolumes
from local_driver.backends.backend import Site, UnavailableError
from local_driver.backends.btrfs import BtrfsBackend
from local_driver.volumes import AccessType, Content, Volume, volume_id

pytestmark = pytest.mark.root
MIB = 1 << 20
ID = volume_id("n", "v")
OTHER = volume_id("n", "w")
SNAPSHOT = f"s-{ID}"


def volume(identity: str = ID, capacity: int = 8 * MIB) -> Volume:
    return Volume(
        identity, "v", 1, "n", "btrfs", capacity, frozenset({AccessType.MOUNT}), "btrfs",
        Content.BLANK, 0.0, is_limited=True,
    )  # fmt: skip


@pytest.fixture
def backend(tmp_path: pathlib.Path) -> Iterator[BtrfsBackend]:
    made = BtrfsBackend(Site(tmp_path, 256 * MIB))
    yield made
    assert pool.unmount(made.folder)


def fill(path: pathlib.Path, size: int) -> None:
    with path.open("wb") as file:
        file.write(os.urandom(size))
        file.flush()
        os.fsync(file.fileno())
    os.sync()


def test_a_volume_cannot_grow_beyond_its_limit(backend: BtrfsBackend) -> None:
    backend.create(volume())
    place = backend.folder / ID
    assert place.stat().st_mode & 0o777 == 0o777
    fill(place / "one", 4 * MIB)
    used = backend.usage(volume(), place)
    assert used.total_bytes == 8 * MIB
    assert 4 * MIB <= used.used_bytes < 5 * MIB
    assert used.available_bytes == 8 * MIB - used.used_bytes
    with pytest.raises(OSError, match="quota exceeded"):
        fill(place / "two", 8 * MIB)
    larger = volume(capacity=16 * MIB)
    backend.resize(larger)
    fill(place / "two", 8 * MIB)
    backend.remove(ID)
    assert backend.contents() == set()


def test_copies_share_content_and_count_it(backend: BtrfsBackend) -> None:
    backend.create(volume())
    fill(backend.folder / ID / "file", 4 * MIB)
    backend.keep(ID, SNAPSHOT, None)
    fill(backend.folder / ID / "file", MIB)
    backend.copy(SNAPSHOT, volume(OTHER), None)
    os.sync()
    assert (backend.folder / OTHER / "file").stat().st_size == 4 * MIB
    assert backend.usage(volume(OTHER), backend.folder / OTHER).used_bytes >= 4 * MIB
    with pytest.raises(OSError, match="quota exceeded"):
        fill(backend.folder / OTHER / "more", 8 * MIB)
    with pytest.raises(OSError, match="Read-only"):
        (backend.folder / SNAPSHOT / "more").touch()
    backend.keep(ID, SNAPSHOT, None)  # in place of rubbish of the same ID
    assert (backend.folder / SNAPSHOT / "file").stat().st_size == MIB
    for one in (ID, OTHER, SNAPSHOT, SNAPSHOT):
        backend.remove(one)
    assert backend.contents() == set()


def test_a_snapshot_refers_to_few_nodes_and_to_no_extents(backend: BtrfsBackend) -> None:
    """What quota looks up for each snapshot grows with what the root of the tree points to."""
    backend.create(volume())
    place = backend.folder / ID
    with (place / "file").open("wb") as file:
        for number in range(60):  # with holes between, so that each is an extent
            file.seek(number * 64 << 10)
            file.write(os.urandom(4096))
    os.sync()
    show = ["btrfs", "inspect-internal"]
    tree = subprocess.check_output([*show, "rootid", place], text=True).strip()
    device = mounts.containing(backend.folder).source
    dump = subprocess.check_output([*show, "dump-tree", "-t", tree, device], text=True)
    assert dump.count("extent data disk byte") >= 60
    [root] = re.findall(r"^node \d+ level 1 items (\d+)", dump, re.MULTILINE)
    assert int(root) <= 4
    names = [name for name in os.listxattr(place) if not name.startswith("trusted.")]
    assert names == []


def test_subvolumes_that_a_pod_made_go_too(backend: BtrfsBackend) -> None:
    backend.create(volume())
    subvolumes.create(backend.folder / ID, "inner", 0)
    fill(backend.folder / ID / "inner" / "file", MIB)
    backend.remove(ID)
    assert backend.contents() == set()


def test_where_a_volume_is_shown_is_found(backend: BtrfsBackend, tmp_path: pathlib.Path) -> None:
    backend.create(volume())
    place = tmp_path / "staging"
    place.mkdir()
    backend.show(volume(), place, mountflags.parse([]))
    assert [mount.point for mount in backend.sightings(ID)] == [str(place)]
    assert backend.is_written(ID)
    assert backend.is_at(ID, place)
    assert not backend.is_at(OTHER, place)
    assert not backend.is_at(ID, place / "none")
    assert backend.sightings(OTHER) == []
    assert not pool.unmount(place / "none")
    mounts.unmount(place)
    assert backend.in_use(ID) == ""


def test_a_pool_is_found_again_with_what_is_in_it(
    backend: BtrfsBackend, tmp_path: pathlib.Path
) -> None:
    backend.create(volume())
    assert BtrfsBackend(Site(tmp_path, 256 * MIB)).contents() == {ID}
    assert pool.unmount(backend.folder)
    again = BtrfsBackend(Site(tmp_path, 512 * MIB))
    assert again.contents() == {ID}
    again.settle(volume(OTHER).serial)
    assert again.adopt([volume(), volume(OTHER)]).keys() == {OTHER}
    assert filesystems.usage(again.folder).total_bytes == 256 * MIB


def test_elsewhere_it_is_not_offered(tmp_path: pathlib.Path) -> None:
    if mounts.containing(tmp_path).filesystem == "btrfs":
        return
    with pytest.raises(UnavailableError, match="--btrfs-size"):
        BtrfsBackend(Site(tmp_path))
    assert list(tmp_path.iterdir()) == []
