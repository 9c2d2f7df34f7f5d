"""The store on a real file system: order, durability by batches, leftovers, faults."""

import asyncio
import dataclasses
import pathlib
from collections.abc import AsyncIterator

import pytest
from local_driver import documents, metadata
from local_driver.steps import Step
from local_driver.volumes import AccessType, Content, Volume


def volume(number: int) -> Volume:
    return Volume(
        f"id-{number}", f"v{number}", number, "n", "directory", 10,
        frozenset({AccessType.MOUNT}), "ext4", Content.BLANK, 0.0,
    )  # fmt: skip


@pytest.fixture
async def store(tmp_path: pathlib.Path) -> AsyncIterator[metadata.Store[Volume]]:
    opened = metadata.Store(tmp_path, documents.VOLUMES)
    yield opened
    await opened.close()


def nothing() -> None:
    return


async def reloaded(folder: pathlib.Path) -> metadata.Loaded[Volume]:
    return await asyncio.to_thread(metadata.Store(folder, documents.VOLUMES).load)


def names(folder: pathlib.Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


async def test_what_is_recorded_is_found_again(
    tmp_path: pathlib.Path, store: metadata.Store[Volume]
) -> None:
    await store.create(volume(1), nothing, [])
    await store.create(volume(2), nothing, [])
    await store.replace(dataclasses.replace(volume(2), content=Content.EXT4))
    await store.remove("id-1", nothing)
    expected = (dataclasses.replace(volume(2), content=Content.EXT4),)
    assert await reloaded(tmp_path) == metadata.Loaded(expected, {})


async def test_many_changes_at_once_are_all_recorded(
    tmp_path: pathlib.Path, store: metadata.Store[Volume]
) -> None:
    numbers = range(1, metadata.BATCH * 2 + 10)
    made: list[int] = []
    await asyncio.gather(
        *(store.create(volume(n), lambda n=n: made.append(n), [tmp_path]) for n in numbers)  # type: ignore[misc]
    )
    assert sorted(made) == list(numbers)
    assert {one.serial for one in (await reloaded(tmp_path)).records} == set(numbers)
    await asyncio.gather(*(store.remove(f"id-{n}", nothing) for n in numbers))
    assert await asyncio.to_thread(names, tmp_path) == []


async def test_content_comes_before_the_file_and_the_file_appears_whole(
    tmp_path: pathlib.Path,
) -> None:
    seen: list[tuple[Step, list[str]]] = []

    def reached(step: Step) -> None:
        seen.append((step, names(tmp_path)))

    store = metadata.Store(tmp_path, documents.VOLUMES, reached)
    await store.create(volume(1), nothing, [])
    await store.remove("id-1", nothing)
    await store.close()
    assert seen == [
        (Step.CONTENT_MADE, []),
        (Step.DOCUMENT_WRITTEN, ["id-1.partial"]),
        (Step.DOCUMENT_RENAMED, ["id-1.json"]),
        (Step.DOCUMENT_REMOVED, []),
    ]


async def test_a_change_that_fails_leaves_the_others_of_its_batch_alone(
    tmp_path: pathlib.Path, store: metadata.Store[Volume]
) -> None:
    def refuse() -> None:
        raise OSError(28, "no room")

    outcomes = await asyncio.gather(
        store.create(volume(1), nothing, []),
        store.create(volume(2), refuse, []),
        store.create(volume(3), nothing, [tmp_path / "missing"]),
        store.create(volume(4), nothing, []),
        return_exceptions=True,
    )
    assert [type(outcome) for outcome in outcomes] == [
        type(None), OSError, FileNotFoundError, type(None),
    ]  # fmt: skip
    assert {one.serial for one in (await reloaded(tmp_path)).records} == {1, 4}


async def test_a_removal_that_is_refused_leaves_the_file(
    tmp_path: pathlib.Path, store: metadata.Store[Volume]
) -> None:
    def refuse() -> None:
        raise ValueError("in use")

    await store.create(volume(1), nothing, [])
    with pytest.raises(ValueError, match="in use"):
        await store.remove("id-1", refuse)
    assert len((await reloaded(tmp_path)).records) == 1


async def test_removing_what_is_not_there_is_fine(store: metadata.Store[Volume]) -> None:
    await store.remove("id-9", nothing)


async def test_a_client_that_goes_away_stops_nothing(
    tmp_path: pathlib.Path, store: metadata.Store[Volume]
) -> None:
    gone = asyncio.create_task(store.create(volume(1), nothing, []), name="gone")
    stays = asyncio.create_task(store.create(volume(2), nothing, []), name="stays")
    await asyncio.sleep(0)
    gone.cancel()
    await stays
    assert len((await reloaded(tmp_path)).records) == 2


def test_half_written_files_go_and_damaged_ones_are_named(tmp_path: pathlib.Path) -> None:
    (tmp_path / "id-1.json.partial").write_bytes(b"{")
    (tmp_path / "id-2.json").write_bytes(documents.encode(volume(2)))
    (tmp_path / "id-3.json").write_bytes(b'{"serial": 17, "members": [{"serial": 18}, {"serial": ')
    (tmp_path / "id-4.json").write_bytes(documents.encode(volume(5)))
    (tmp_path / "README").touch()
    (tmp_path / "id-6.json").mkdir()  # as unreadable as on a bad block
    (tmp_path / "id-7.partial").mkdir()
    loaded = metadata.Store(tmp_path, documents.VOLUMES).load()
    assert loaded.records == (volume(2),)
    assert set(loaded.damaged) == {"id-3", "id-4", "id-6"}
    assert loaded.reserved == 18
    assert str(tmp_path / "id-3.json") in loaded.damaged["id-3"]
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "README", "id-2.json", "id-3.json", "id-4.json", "id-6.json", "id-7.partial",
    ]  # fmt: skip
