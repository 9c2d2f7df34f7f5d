"""Limits of I/O: read, merged, and written to the control groups of the right pods."""

import os
import pathlib
from collections.abc import Mapping

import pytest
from bitts.rpc.codes import Code, RpcError
from local_driver import iolimits, loops

UID = "0f0e0d0c-1111-2222-3333-444455556666"


def test_limits_are_read_and_merged() -> None:
    old = iolimits.parse({"readIops": "100", "writeIops": "5"}, "image", has_device=True)
    new = iolimits.parse({"readIops": "max"}, "image", has_device=True)
    merged = iolimits.merged(old, new)
    assert merged == (("readIops", "max"), ("writeIops", "5"))
    assert iolimits.line("7:3", merged) == "7:3 rbps=max wbps=max riops=max wiops=5"


@pytest.mark.parametrize(
    ("given", "device", "word"),
    [
        pytest.param({"iops": "1"}, True, "'iops'", id="unknown"),
        pytest.param({"readIops": "0"}, True, "'0'", id="zero"),
        pytest.param({"readIops": "fast"}, True, "'fast'", id="no number"),
        pytest.param({"readIops": "1"}, False, "backend directory", id="no device"),
    ],
)
def test_wrong_limits_are_refused(given: Mapping[str, str], device: bool, word: str) -> None:
    with pytest.raises(RpcError) as caught:
        iolimits.parse(given, "directory", has_device=device)
    assert caught.value.code is Code.INVALID_ARGUMENT
    assert word in caught.value.message


@pytest.mark.parametrize(
    "group",
    [
        f"kubepods/burstable/pod{UID}",
        f"kubepods.slice/kubepods-x.slice/kubepods-x-pod{UID.replace('-', '_')}.slice",
    ],
    ids=["cgroupfs", "systemd"],
)
def test_the_groups_of_pods_are_limited(tmp_path: pathlib.Path, group: str) -> None:
    (tmp_path / "cgroup.controllers").write_text("io")
    for name in (group, "kubepods/podother", "system.slice/x"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "io.max").touch()
    uids = iolimits.pods([f"/var/lib/kubelet/pods/{UID}/volumes/x/mount", "/staging"])
    assert uids == {UID}
    limits = (("readIops", "7"),)
    assert iolimits.apply(limits, ["7:1"], uids, iolimits.index(tmp_path)) == (1, 1)
    assert (tmp_path / group / "io.max").read_text() == "7:1 rbps=max wbps=max riops=7 wiops=max"
    assert iolimits.apply(limits, ["7:1"], uids, iolimits.index(tmp_path)) == (1, 0)
    assert (tmp_path / "kubepods/podother/io.max").read_text() == ""


def test_without_cgroup_v2_limits_are_recorded_only(tmp_path: pathlib.Path) -> None:
    assert iolimits.apply((("readIops", "7"),), ["7:1"], {UID}, iolimits.index(tmp_path)) == (0, 0)


@pytest.mark.root
def test_the_kernel_keeps_the_limits_where_it_has_the_controller(tmp_path: pathlib.Path) -> None:
    """Without cgroup v2's io controller they must be taken for recorded only."""
    image = tmp_path / "v.img"
    image.write_bytes(bytes(1 << 20))
    root = pathlib.Path("/sys/fs/cgroup")
    controllers = root / "cgroup.controllers"
    has_controller = controllers.exists() and "io" in controllers.read_text().split()
    pod = root / "kubepods.slice" / f"kubepods-pod{UID.replace('-', '_')}.slice"
    with loops.attached(image, read_only=False, autoclear=True) as loop:
        device = f"{os.major(loop.device)}:{os.minor(loop.device)}"
        if not has_controller:
            assert iolimits.apply((("readIops", "7"),), [device], [UID], iolimits.index()) == (0, 0)
            return
        (root / "cgroup.subtree_control").write_text("+io")
        pod.mkdir(parents=True)
        (pod.parent / "cgroup.subtree_control").write_text("+io")
        try:
            assert iolimits.apply((("readIops", "7"),), [device], [UID], iolimits.index()) == (1, 1)
            assert iolimits.apply((("readIops", "7"),), [device], [UID], iolimits.index()) == (1, 0)
            assert (pod / "io.max").read_text() == f"{device} rbps=max wbps=max riops=7 wiops=max\n"
            for changed in (1, 0):
                assert iolimits.apply(
                    (("readIops", "max"),), [device], [UID], iolimits.index()
                ) == (1, changed)
            assert (pod / "io.max").read_text() == ""
        finally:
            pod.rmdir()
            pod.parent.rmdir()
