"""Ownership of a stack's folders and what is written down about it."""

import asyncio
import os
import pathlib

import pytest
from bitts_console import running, stack, state, supervisor, up
from bitts_console.scenario import Abilities


@pytest.fixture
def folders(tmp_path: pathlib.Path) -> state.Folders:
    made = state.Folders(tmp_path / "state", tmp_path / "run")
    state.prepare(made)
    return made


def test_a_stack_has_one_owner(folders: state.Folders) -> None:
    assert not running.is_owned(folders)
    handle = running.acquire(folders)
    assert handle is not None
    assert running.is_owned(folders)
    assert running.acquire(folders) is None
    assert running.owner(folders) == os.getpid()
    os.close(handle)
    assert not running.is_owned(folders)


def test_folders_that_never_were_have_no_owner(tmp_path: pathlib.Path) -> None:
    nowhere = state.Folders(tmp_path / "no", tmp_path / "no2")
    assert not running.is_owned(nowhere)
    assert running.owner(nowhere) is None
    assert running.read_record(nowhere) is None
    assert running.store(nowhere) == ""


async def test_what_runs_is_written_down(folders: state.Folders) -> None:
    options = stack.Options(store="sqlite", backends=("image", "directory"))
    parts = supervisor.Supervisor([], folders.logs, lambda _: None)
    await running.write_record(running.Running(options, folders, parts), is_ready=True)
    record = await asyncio.to_thread(running.read_record, folders)
    assert record is not None
    assert record["ready"] is True
    assert record["kubeconfig"] == str(folders.kubeconfig)
    assert record["options"]["backends"] == ["image", "directory"]
    assert await asyncio.to_thread(running.store, folders) == "sqlite"


def test_a_damaged_record_counts_as_none(folders: state.Folders) -> None:
    folders.record.write_text('{"pid": ')
    assert running.read_record(folders) is None


async def test_an_owned_stack_is_not_started_again(folders: state.Folders) -> None:
    handle = running.acquire(folders)
    assert handle is not None
    with pytest.raises(state.StateError, match=r"already runs.*bitts down.*--dir"):
        await running.run(stack.Options(), folders, lambda _: None, unexpected)


async def test_a_cluster_in_a_file_is_not_thrown_away_by_one_in_memory(
    folders: state.Folders,
) -> None:
    parts = supervisor.Supervisor([], folders.logs, lambda _: None)
    kept = running.Running(stack.Options(store="sqlite"), folders, parts)
    await running.write_record(kept, is_ready=False)
    with pytest.raises(state.StateError, match=r"--store sqlite.*--purge"):
        await running.run(stack.Options(), folders, lambda _: None, unexpected)


async def test_down_where_nothing_ever_ran_is_fine(tmp_path: pathlib.Path) -> None:
    assert await up.down(state.Folders(tmp_path / "a", tmp_path / "b"), purge=False) == []


async def test_down_removes_the_folders_of_a_stack_that_is_gone(folders: state.Folders) -> None:
    assert await up.down(folders, purge=False) == []
    assert not folders.state.exists()
    assert not folders.runtime.exists()


@pytest.mark.parametrize(
    ("default", "filesystems", "expected"),
    [
        pytest.param("directory", {"ext4"}, ("directory", "image"), id="both"),
        pytest.param("image", {"ext4"}, ("image", "directory"), id="image-first"),
        pytest.param("directory", set(), ("directory",), id="without-loop-devices"),
        pytest.param("directory", {"btrfs"}, ("directory",), id="btrfs-not-asked-for"),
        pytest.param("btrfs", {"ext4", "btrfs"}, ("btrfs", "directory", "image"), id="btrfs"),
    ],
)
def test_offered_backends(default: str, filesystems: set[str], expected: tuple[str, ...]) -> None:
    able = Abilities(mounts=True, filesystems=frozenset(filesystems))
    assert up.backends(default, able) == expected


def test_an_impossible_backend_says_why() -> None:
    able = Abilities(mounts=False, filesystems=frozenset(), hindrance="run it as root")
    for name in ("image", "btrfs"):
        with pytest.raises(up.UsageError, match=rf"--backend {name}.*run it as root"):
            up.backends(name, able)


async def unexpected(stack_running: running.Running) -> None:
    raise AssertionError(f"must not start: {stack_running}")
