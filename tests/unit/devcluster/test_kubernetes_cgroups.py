"""Cgroups of nodes, on folders that look like the kernel's."""

import pathlib

import pytest
from devcluster.kubernetes import cgroups, layout, sweep


@pytest.fixture
def version_1(tmp_path: pathlib.Path) -> pathlib.Path:
    for controller in ("cpu", "cpuset", "memory"):
        (tmp_path / controller).mkdir()
    return tmp_path


@pytest.fixture
def version_2(tmp_path: pathlib.Path) -> pathlib.Path:
    (tmp_path / "cgroup.controllers").write_text("cpu memory pids\n")
    (tmp_path / "cgroup.subtree_control").write_text("")
    (tmp_path / "system.slice").mkdir()
    return tmp_path


def test_version_1_gets_one_in_each_controller(version_1: pathlib.Path) -> None:
    cgroups.create("bitts-1", "node-1", version_1)
    cgroups.create("bitts-1", "node-2", version_1)
    assert sorted(str(path.relative_to(version_1)) for path in version_1.glob("*/*/*")) == [
        f"{controller}/bitts-1/{node}"
        for controller in ("cpu", "cpuset", "memory")
        for node in ("node-1", "node-2")
    ]


def test_version_2_gets_one_in_all_and_hands_the_controllers_down(
    version_2: pathlib.Path,
) -> None:
    cgroups.create("bitts-1", "node-1", version_2)
    assert (version_2 / "bitts-1/node-1").is_dir()
    assert not (version_2 / "system.slice/bitts-1").exists()
    assert (version_2 / "cgroup.subtree_control").read_text() == "+pids"  # the last one written


def test_only_the_cluster_s_own_are_removed(version_1: pathlib.Path) -> None:
    cgroups.create("bitts-1", "node-1", version_1)
    cgroups.create("bitts-2", "node-1", version_1)
    (version_1 / "cpu/bitts-1/node-1/kubepods/pod1").mkdir(parents=True)
    removed = cgroups.remove("bitts-1", root=version_1)
    assert len(removed) == 3
    assert cgroups.present("bitts-1", root=version_1) == []
    assert len(cgroups.present("bitts-2", root=version_1)) == 3


def test_removing_nothing_is_fine(version_1: pathlib.Path) -> None:
    assert cgroups.remove("bitts-1", root=version_1) == []
    assert cgroups.remove("bitts-1", root=version_1 / "absent") == []


def test_a_folder_has_one_owner_at_a_time(tmp_path: pathlib.Path) -> None:
    found = layout.layout(tmp_path / "c", pathlib.Path("/tmp/n"))
    with sweep.owned(found), pytest.raises(sweep.InUseError, match="already runs in"):
        sweep.owned(found).__enter__()
    with sweep.owned(found):
        pass


@pytest.mark.parametrize("keep", [True, False])
def test_what_is_to_last_is_left(tmp_path: pathlib.Path, keep: bool) -> None:
    found = layout.Layout(tmp_path, tmp_path / "n")
    for folder in (found.etcd, found.node("node-1").root, found.pki):
        folder.mkdir(parents=True)
    sweep.sweep(found, keep=keep)
    assert found.pki.exists()
    assert found.etcd.exists() is keep
    assert found.node("node-1").root.exists() is keep
