"""The file of the cluster's objects: who may read it, and what a wrong one leads to."""

import pathlib
from typing import Any

import pytest
from bitts.core import process
from devcluster import sqlite
from devcluster.api import Api
from devcluster.store import Store

SECRET: dict[str, Any] = {"metadata": {"name": "s"}, "stringData": {"key": "value"}}


async def write(path: pathlib.Path) -> None:
    store = Store()
    async with sqlite.opened(path, store):
        api = Api(store)
        api.create(api.resource("namespaces"), {"metadata": {"name": "default"}})
        api.create(api.resource("secrets"), SECRET, "default")


@pytest.mark.parametrize("exists", [False, True], ids=["new", "left readable"])
async def test_only_the_owner_may_read_objects(tmp_path: pathlib.Path, exists: bool) -> None:
    path = tmp_path / "objects.db"
    if exists:
        path.touch(mode=0o644)
    store = Store()
    async with sqlite.opened(path, store):
        api = Api(store)
        api.create(api.resource("namespaces"), {"metadata": {"name": "default"}})
        await sqlite_log(store).flush()
        modes = modes_in(tmp_path)
    assert modes.keys() >= {"objects.db", "objects.db-wal"}
    assert set(modes.values()) == {0o600}


def modes_in(folder: pathlib.Path) -> dict[str, int]:
    return {file.name: file.stat().st_mode & 0o777 for file in folder.iterdir()}


def sqlite_log(store: Store) -> sqlite.SqliteLog:
    assert isinstance(store.log, sqlite.SqliteLog)
    return store.log


async def test_what_was_written_is_there_again(tmp_path: pathlib.Path) -> None:
    await write(tmp_path / "objects.db")
    store = Store()
    async with sqlite.opened(tmp_path / "objects.db", store):
        api = Api(store)
        found = api.get(api.resource("secrets"), "s", "default")
    assert found is not None
    assert found["data"] == {"key": "dmFsdWU="}


async def test_a_file_that_is_no_database_is_named(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "objects.db"
    path.write_text("something else, long enough to be looked at as a database" * 20)
    with pytest.raises(process.ExitError, match=r"objects.db.*move it away to start empty"):
        await write(path)
    with pytest.raises(process.ExitError, match=r"cannot use .*absent/objects.db"):
        await write(tmp_path / "absent" / "objects.db")
