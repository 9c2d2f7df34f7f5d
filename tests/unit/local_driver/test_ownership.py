"""Volumes given to groups: real files, among them those with which a pod could trick us."""

import os
import pathlib
import stat

import pytest
from local_driver import ownership

pytestmark = pytest.mark.root
GROUP = 4321


def facts(path: pathlib.Path) -> tuple[int, int]:
    found = path.lstat()
    return found.st_gid, stat.S_IMODE(found.st_mode)


@pytest.fixture
def volume(tmp_path: pathlib.Path) -> pathlib.Path:
    root = tmp_path / "volume"
    (root / "a" / "b").mkdir(parents=True)
    (root / "a" / "b" / "file").write_text("data")
    (root / "a" / "b" / "file").chmod(0o600)
    (root / "a" / "tool").write_text("#!")
    (root / "a" / "tool").chmod(0o4755)
    for folder in (root, root / "a", root / "a" / "b"):
        folder.chmod(0o700)
    return root


def test_all_of_a_volume_goes_to_its_group_and_keeps_its_other_rights(volume: pathlib.Path) -> None:
    assert ownership.give(volume, GROUP)
    for folder in (volume, volume / "a", volume / "a" / "b"):
        assert facts(folder) == (GROUP, 0o2770)
    assert facts(volume / "a" / "b" / "file") == (GROUP, 0o660)
    assert facts(volume / "a" / "tool") == (GROUP, 0o4775)
    made = volume / "a" / "new"
    made.write_text("")
    assert made.stat().st_gid == GROUP


def test_a_volume_that_has_its_group_is_not_walked_again(volume: pathlib.Path) -> None:
    ownership.give(volume, GROUP)
    chosen = volume / "a" / "tool"
    os.chown(chosen, -1, 7)
    assert not ownership.give(volume, GROUP)
    assert chosen.stat().st_gid == 7
    assert ownership.give(volume, 8)
    assert chosen.stat().st_gid == 8


def test_a_walk_that_was_cut_off_is_made_again(volume: pathlib.Path) -> None:
    os.chown(volume / "a", -1, GROUP)
    (volume / "a").chmod(0o2770)
    assert ownership.give(volume, GROUP)
    assert facts(volume / "a" / "b" / "file")[0] == GROUP


def test_links_lead_nowhere(volume: pathlib.Path, tmp_path: pathlib.Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir(mode=0o755)
    (outside / "file").write_text("")
    before = facts(outside), facts(outside / "file")
    (volume / "folder").symlink_to(outside)
    (volume / "file").symlink_to(outside / "file")
    (volume / "nothing").symlink_to("nowhere")
    assert ownership.give(volume, GROUP)
    assert (facts(outside), facts(outside / "file")) == before


def test_a_missing_root_is_an_error(tmp_path: pathlib.Path) -> None:
    with pytest.raises(FileNotFoundError):
        ownership.give(tmp_path / "none", GROUP)
