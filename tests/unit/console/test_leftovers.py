"""Traces of a killed stack are found and removed, those of others never."""

import asyncio
import os
import pathlib
import subprocess

import pytest
from bitts_console import leftovers, state
from support import waiting
from support.processes import Processes


def find(*folders: pathlib.Path) -> leftovers.Leftovers:
    return leftovers.find(folders)


async def pids(folder: pathlib.Path) -> set[int]:
    return {pid for pid, _ in (await asyncio.to_thread(find, folder)).processes}


def test_mounts_are_found_by_their_target_deepest_first() -> None:
    table = "\n".join(
        [
            "1 0 0:1 / / rw - ext4 /dev/vda rw",
            "2 1 0:2 / /s/pods rw - tmpfs tmpfs rw",
            "3 2 0:3 / /s/pods/a\\040b rw - ext4 /dev/loop0 rw",
            "4 1 0:4 / /state rw - tmpfs tmpfs rw",
            "5 1 0:5 / /s rw - tmpfs tmpfs rw",
        ]
    )
    assert leftovers.mounts_below(table, ["/s"]) == ["/s", "/s/pods/a b", "/s/pods"]


@pytest.mark.parametrize(
    ("path", "expected"),
    [("/a/b", True), ("/a/b/c", True), ("/a/bc", False), ("/a", False)],
    ids=["itself", "below", "alike", "above"],
)
def test_inside(path: str, expected: bool) -> None:
    assert leftovers.is_inside(path, "/a/b") is expected


def test_ancestors_reach_from_this_process_to_the_first() -> None:
    found = leftovers.ancestors(os.getpid())
    assert found[:2] == [os.getpid(), os.getppid()]
    assert found[-1] in (0, 1) or len(found) > 1


def test_nothing_is_found_for_folders_that_never_were(tmp_path: pathlib.Path) -> None:
    found = find(tmp_path / "x")
    assert not found
    assert found.lines() == []


async def test_marked_processes_are_ended_and_others_left_alone(
    tmp_path: pathlib.Path, spawner: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    marked = spawner.spawn(["/bin/sleep", "1000"], environ={state.MARK: str(tmp_path)})
    stubborn = spawner.spawn(
        ["/bin/sh", "-c", "trap '' TERM; while :; do sleep 0.05; done"],
        environ={state.MARK: str(tmp_path)},
    )
    naming = spawner.spawn(["/usr/bin/tail", "-f", str(tmp_path / "log"), "/dev/null"])
    other = spawner.spawn(["/bin/sleep", "1000"], environ={state.MARK: f"{tmp_path}2"})

    async def are_found() -> bool:
        return {marked.pid, stubborn.pid} <= await pids(tmp_path)

    await waiting.until(are_found, "both are found")
    found = await asyncio.to_thread(find, tmp_path)
    assert not {naming.pid, other.pid} & {pid for pid, _ in found.processes}
    monkeypatch.setattr(leftovers, "TERM_TIMEOUT", 0.5)
    ended = await leftovers.end([tmp_path])
    assert {marked.pid, stubborn.pid} <= {pid for pid, _ in ended.processes}
    assert await pids(tmp_path) == set()
    assert (marked.exit_code, stubborn.exit_code) == (-15, -9)
    assert naming.alive
    assert other.alive


async def test_where_nothing_is_left_nothing_is_done(tmp_path: pathlib.Path) -> None:
    assert not await leftovers.end([tmp_path / "x"])


async def test_files_and_folders_are_deleted_and_missing_ones_are_no_failure(
    tmp_path: pathlib.Path,
) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "file").write_text("")
    (tmp_path / "link").symlink_to(tmp_path / "a")
    for name in ("link", "a", "file", "never"):
        await leftovers.delete(tmp_path / name)
    assert os.listdir(tmp_path) == []


@pytest.mark.root
async def test_what_does_not_go_is_named(short_dir: pathlib.Path) -> None:
    target = short_dir / "busy"
    target.mkdir()
    await asyncio.to_thread(run, "mount", "-t", "tmpfs", "tmpfs", str(target))
    file = await asyncio.to_thread(os.open, target / "open", os.O_CREAT | os.O_RDWR)
    try:
        with pytest.raises(leftovers.LeftoverError, match=f"umount {target}"):
            await leftovers.end([short_dir])
    finally:
        os.close(file)
    assert (await leftovers.end([short_dir])).mounts == (str(target),)


@pytest.mark.root
async def test_pods_mounts_and_loop_devices_are_found_and_removed(
    no_leaks: None, short_dir: pathlib.Path, spawner: Processes
) -> None:
    image, target, view = short_dir / "image", short_dir / "mounted", short_dir / "view"
    for folder in (target, view):
        folder.mkdir()
    await asyncio.to_thread(make_ext4, image)
    await asyncio.to_thread(run, "mount", "-o", "loop", str(image), str(target))
    await asyncio.to_thread(run, "mount", "--bind", str(target), str(view))
    pod = spawner.spawn(["/usr/bin/unshare", "--mount", "/bin/sleep", "1000"])

    async def is_found() -> bool:
        return pod.pid in await pids(short_dir)

    await waiting.until(is_found, "the pod is found")
    found = await asyncio.to_thread(find, short_dir)
    assert found.mounts == (str(view), str(target))
    assert len(found.loop_devices) == 1
    ended = await leftovers.end([short_dir])
    assert pod.pid in {pid for pid, _ in ended.processes}
    assert ended.mounts == found.mounts
    left = await asyncio.to_thread(find, short_dir)
    assert left.lines() == [f"folder {short_dir}"]


def make_ext4(image: pathlib.Path) -> None:
    with image.open("wb") as file:
        file.truncate(8 << 20)
    run("mkfs.ext4", "-q", "-F", str(image))


def run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, timeout=20)
