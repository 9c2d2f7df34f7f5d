"""What is mounted: lines of mountinfo, and the mounts of this machine."""

import pathlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from local_driver import mounts

LINE = (
    "36 35 98:0 /mnt1 /mnt\\0402 ro,noatime master:1 shared:2 - ext3 /dev/root rw,errors=continue"
)


def test_a_line_is_read_with_its_escapes() -> None:
    found = mounts.parse_line(LINE)
    assert found.device == "98:0"
    assert found.root == "/mnt1"
    assert found.point == "/mnt 2"
    assert found.options == {"ro", "noatime"}
    assert (found.filesystem, found.source) == ("ext3", "/dev/root")
    assert found.super_options == {"rw", "errors=continue"}
    assert found.is_read_only


def test_a_line_without_optional_fields_is_read() -> None:
    found = mounts.parse_line("36 35 7:3 / /m rw - ext4 /dev/loop3 ro")
    assert found.point == "/m"
    assert found.is_read_only


@pytest.mark.parametrize("line", ["", "36 35", "36 35 98:0 / /m rw ext3", "1 2 3:4 / /m rw - ext4"])
def test_anything_else_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match="not a line of mountinfo"):
        mounts.parse_line(line)


@given(st.text(st.characters(blacklist_characters="\0/", blacklist_categories=["Cs"]), min_size=1))
def test_any_name_survives_the_kernels_escaping(name: str) -> None:
    escaped = "".join(f"\\{ord(c):03o}" if c in " \t\n\\#" else c for c in name)
    found = mounts.parse_line(f"1 2 3:4 / /{escaped} rw - ext4 /dev/sda rw")
    assert found.point == f"/{name}"


def test_the_mount_that_holds_a_path_is_the_nearest_above_it() -> None:
    proc = mounts.containing(pathlib.Path("/proc/self/fd"))
    assert (proc.point, proc.filesystem) == ("/proc", "proc")
    assert mounts.containing(pathlib.Path("/")).point == "/"


def test_a_path_is_the_root_of_a_mount_or_not(tmp_path: pathlib.Path) -> None:
    (tmp_path / "link").symlink_to("/proc")
    (tmp_path / "file").touch()
    assert mounts.is_root(pathlib.Path("/proc"))
    for path in ("link", "file", "file/in", "nothing"):
        assert not mounts.is_root(tmp_path / path)
    with pytest.raises(OSError, match="look at"):
        mounts.is_root(tmp_path / ("x" * 300))


def test_what_is_mounted_at_a_path_is_found() -> None:
    found = mounts.table().at(pathlib.Path("/proc"))
    assert found is not None
    assert found.filesystem == "proc"
    assert mounts.table().at(pathlib.Path("/proc/self")) is None
