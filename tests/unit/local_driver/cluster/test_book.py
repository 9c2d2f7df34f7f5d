"""What is known of nodes: lists and changes that cross each other, restarts, intents."""

import asyncio
import pathlib
from collections.abc import AsyncIterator

import pytest
from local_driver import places, snapshots, volumes
from local_driver.cluster.book import Book
from local_driver.cluster.known import KnownSnapshot, KnownVolume

NODES = ["a", "b"]
X = places.digest("x")


def volume(name: str, node: str = "a", size: int = 1) -> KnownVolume:
    return KnownVolume(volumes.volume_id(node, name), size, (("backend", "image"),))


def snapshot(name: str, node: str = "a", group: str = "") -> KnownSnapshot:
    group_id = snapshots.group_id(node, group) if group else ""
    return KnownSnapshot(snapshots.snapshot_id(node, name), "v", 1, 2, 3, group_id)


def opened(folder: pathlib.Path) -> Book:
    for name in ("nodes", "intents"):
        (folder / name).mkdir(exist_ok=True)
    made = Book(folder)
    made.load()
    return made


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> pathlib.Path:
    opened(tmp_path)
    return tmp_path


@pytest.fixture
async def book(folder: pathlib.Path) -> AsyncIterator[Book]:
    made = Book(folder)
    yield made
    await made.close()


async def again(folder: pathlib.Path) -> Book:
    """What a new process finds."""
    made = Book(folder)
    await asyncio.to_thread(made.load)
    return made


def told(book: Book, node: str, volumes: list[KnownVolume], snapshots: list[KnownSnapshot]) -> None:
    """Have a node tell what it holds, at once."""
    with book.listing(node) as mark:
        book.told(node, mark, volumes, snapshots)


async def intents(folder: pathlib.Path) -> list[pathlib.Path]:
    return await asyncio.to_thread(lambda: list((folder / "intents").iterdir()))


async def test_what_a_node_told_is_there_after_a_restart(book: Book, folder: pathlib.Path) -> None:
    assert not book.has_heard("a")
    told(book, "a", [volume("x")], [snapshot("s")])
    await book.save()
    found = await again(folder)
    assert found.has_heard("a")
    assert not found.has_heard("b")
    assert found.volumes("a") == [volume("x")]
    assert found.snapshots("a") == [snapshot("s")]
    assert found.holders(X, NODES) == ["a"]


async def test_a_node_that_held_nothing_is_forgotten_when_it_leaves(
    book: Book, folder: pathlib.Path
) -> None:
    told(book, "empty", [], [])
    told(book, "a", [volume("x")], [])
    told(book, "b", [], [snapshot("s", "b")])
    told(book, "c", [], [])
    async with book.intents.sending(X, "c"):
        pass
    await book.save()
    for node in ("empty", "a", "b", "c", "unknown"):
        book.leave(node)
    await book.save()
    assert book.nodes() == (await again(folder)).nodes() == ["a", "b", "c"]
    told(book, "empty", [], [])
    book.leave("empty")
    told(book, "empty", [volume("y", "empty")], [])  # it comes back before that is written
    await book.save()
    assert (await again(folder)).volumes("empty") == [volume("y", "empty")]


async def test_a_list_does_not_undo_what_happened_while_it_was_made(book: Book) -> None:
    told(book, "a", [volume("gone"), volume("old")], [snapshot("s")])
    with book.listing("a") as mark:
        book.learn("a", volume("new"))
        book.forget("a", volume("gone").volume_id)
        book.learn_snapshots("a", [snapshot("t")])
        book.change("a", volume("old").volume_id, capacity=9, attached=("a",))
        book.told("a", mark, [volume("gone"), volume("old")], [snapshot("s")])
    assert {one.volume_id: one.capacity for one in book.volumes("a")} == {
        volume("old").volume_id: 9,
        volume("new").volume_id: 1,
    }
    assert book.volume("a", volume("old").volume_id) is not None
    assert {one.snapshot_id for one in book.snapshots("a")} == {
        snapshot("s").snapshot_id,
        snapshot("t").snapshot_id,
    }
    # The next list, begun later, is believed again.
    told(book, "a", [volume("old")], [])
    assert book.volumes("a") == [volume("old")]
    assert book.snapshots("a") == []


async def test_what_changes_is_numbered_only_while_a_list_is_made(book: Book) -> None:
    told(book, "a", [], [])
    for number in range(1000):
        book.learn("a", volume(str(number)))
        book.forget("a", volume(str(number)).volume_id)
    assert remembered(book) == 0
    with book.listing("a"):
        book.learn("a", volume("x"))
        assert remembered(book) == 1
        with book.listing("a") as mark:
            book.told("a", mark, [], [])
        assert book.volumes("a") == []
        book.learn("a", volume("y"))
    assert remembered(book) == 0


def remembered(book: Book) -> int:
    return len(book._nodes["a"].changed)


async def test_a_group_goes_with_its_snapshots(book: Book) -> None:
    told(book, "a", [], [snapshot("1", group="g"), snapshot("2", group="g")])
    assert book.group_holder(places.digest("g"), NODES) == "a"
    found = book.snapshot_by_name(places.digest("1"), NODES)
    assert found == ("a", snapshot("1", group="g"))
    book.forget("a", snapshots.group_id("a", "g"))
    assert book.snapshots("a") == []
    assert book.group_holder(places.digest("g"), NODES) == ""
    assert book.snapshot_by_name(places.digest("1"), NODES) is None


async def test_an_intent_outlives_a_restart_until_the_volume_is_in_the_account(
    book: Book, folder: pathlib.Path
) -> None:
    told(book, "a", [], [])
    await book.save()
    async with book.intents.sending(X, "a"):
        book.learn("a", volume("x"))
        book.intents.settle(X)
    found = await again(folder)  # killed before anything else was written
    assert found.volumes("a") == []
    assert found.holders(X, NODES) == ["a"]
    await book.save()
    found = await again(folder)
    assert found.holders(X, NODES) == ["a"]
    assert await intents(folder) == []


async def test_an_outcome_that_came_while_accounts_were_written_is_kept_until_it_is_in_one(
    book: Book, folder: pathlib.Path
) -> None:
    told(book, "a", [], [])
    async with book.intents.sending(X, "a"):
        book.intents.settle(X)  # refused
    saving = asyncio.create_task(book.save())
    await asyncio.sleep(0)  # it has begun: the account will hold nothing of what comes now
    async with book.intents.sending(X, "a"):
        book.learn("a", volume("x"))
        book.intents.settle(X)
    await saving
    assert (await again(folder)).holders(X, NODES) == ["a"]


async def test_a_nodes_own_list_ends_intents(book: Book, folder: pathlib.Path) -> None:
    async with book.intents.sending(X, "a"):
        pass
    told(book, "a", [], [])  # it may still be at it
    assert book.holders(X, NODES) == ["a"]
    told(book, "b", [volume("x", "b")], [])
    assert book.holders(X, NODES) == ["a", "b"]
    told(book, "a", [volume("x")], [])
    await book.save()
    assert await intents(folder) == []


async def test_a_damaged_account_counts_as_never_heard(book: Book, folder: pathlib.Path) -> None:
    told(book, "a", [volume("x")], [])
    await book.save()
    await asyncio.to_thread((folder / "nodes/a.json").write_text, "{")
    assert not (await again(folder)).has_heard("a")


async def test_a_node_that_was_never_heard_learns_nothing(book: Book) -> None:
    book.learn("a", volume("x"))
    book.forget("a", "x")
    assert not book.has_heard("a")
    assert book.volumes("a") == []
