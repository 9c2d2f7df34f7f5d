"""How large a file system is, read from the images that its own program makes."""

import pathlib

import pytest
from local_driver import filesystems, growing

MIB = 1 << 20


@pytest.mark.parametrize("filesystem", filesystems.installed())
def test_the_size_in_an_image_is_found(tmp_path: pathlib.Path, filesystem: str) -> None:
    image = tmp_path / "v.img"
    with image.open("wb") as file:
        file.truncate(300 * MIB)
    filesystems.make(filesystem, image)
    assert growing.size(filesystem, image.read_bytes()[:4096]) == 300 * MIB
    assert growing.shortfall(filesystem, image) == 0
    with image.open("r+b") as file:
        file.truncate(301 * MIB)
    assert growing.shortfall(filesystem, image) == MIB
    with image.open("r+b") as file:
        file.truncate(300 * MIB + 4095)
    assert growing.shortfall(filesystem, image) == 0


def test_what_is_no_file_system_has_no_size(tmp_path: pathlib.Path) -> None:
    image = tmp_path / "v.img"
    image.write_bytes(b"short")
    for filesystem in ("ext4", "xfs", "other"):
        assert growing.size(filesystem, bytes(4096)) == 0
        assert growing.shortfall(filesystem, image) == 0


def test_nothing_grows_where_the_disk_would_end_amid_it() -> None:
    assert growing.is_roomy(0, 8 * MIB)
    assert growing.is_roomy(320 * MIB, 18 * MIB)
    assert not growing.is_roomy(320 * MIB, 17 * MIB)


def test_a_program_that_fails_is_quoted(tmp_path: pathlib.Path) -> None:
    with pytest.raises(OSError, match="e2fsck ended with"):
        growing.grow_idle(tmp_path / "none")
