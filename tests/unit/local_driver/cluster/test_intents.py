"""CreateVolumes whose end nobody heard: on disk at once, asked about later, never too many."""

import asyncio
import pathlib
from collections.abc import AsyncIterator

import pytest
from bitts.rpc.codes import Code, RpcError
from local_driver import metadata, places
from local_driver.cluster.intents import Intents

X = places.digest("x")
MOST = 5


@pytest.fixture
async def intents(tmp_path: pathlib.Path) -> AsyncIterator[Intents]:
    """Such that a node can be asked at once."""
    made = Intents(tmp_path, late=0, most_open=MOST)
    yield made
    await made.close()


async def sent(intents: Intents, digest: str = X, node: str = "a") -> None:
    """Send a CreateVolume, of which nobody hears again."""
    async with intents.sending(digest, node):
        assert intents.node(digest) == node


async def again(folder: pathlib.Path) -> Intents:
    """What a new process finds."""
    made = Intents(folder, late=60)
    assert await asyncio.to_thread(made.load) == {}
    return made


async def on_disk(folder: pathlib.Path) -> list[str]:
    return await asyncio.to_thread(lambda: sorted(path.stem for path in folder.iterdir()))


async def test_an_intent_is_on_disk_before_anything_is_sent_and_goes_when_it_has_ended(
    intents: Intents, tmp_path: pathlib.Path
) -> None:
    async with intents.sending(X, "a"):
        assert (await again(tmp_path)).node(X) == "a"
        intents.settle(X)
    assert intents.node(X) == ""
    assert len(intents) == 0
    assert (await again(tmp_path)).node(X) == "a"  # the account may not be on disk yet
    await intents.drop(intents.ended())
    assert await on_disk(tmp_path) == []


async def test_a_name_that_moves_on_is_bound_to_its_new_node(
    intents: Intents, tmp_path: pathlib.Path
) -> None:
    await sent(intents)
    intents.settle(X)
    await sent(intents, node="b")
    await intents.drop(intents.ended())
    assert intents.node(X) == "b"
    assert (await again(tmp_path)).node(X) == "b"


async def test_what_is_sent_again_is_not_dropped_for_what_became_of_it_before(
    intents: Intents, tmp_path: pathlib.Path
) -> None:
    await sent(intents)
    intents.settle(X)
    ended = intents.ended()
    async with intents.sending(X, "a"):
        await intents.drop(ended)
    assert intents.node(X) == "a"
    assert await on_disk(tmp_path) == [X]


async def test_a_node_is_asked_about_what_is_not_under_way_and_for_long_enough(
    intents: Intents, tmp_path: pathlib.Path
) -> None:
    await sent(intents)
    assert [one.digest for one in intents.doubtful("a")] == [X]
    assert intents.doubtful("b") == []
    (asked,) = intents.doubtful("a")
    async with intents.sending(X, "a"):
        assert intents.doubtful("a") == []
        intents.settle_denied(asked)
        assert intents.node(X) == "a"
    intents.settle_denied(asked)  # it was sent again since: the answer is of no use
    assert intents.node(X) == "a"
    (asked,) = intents.doubtful("a")
    intents.settle_denied(asked)
    assert intents.doubtful("a") == []
    assert intents.node(X) == ""
    # A kernel may still be sending what a process wrote before it died.
    assert (await again(tmp_path)).doubtful("a") == []


async def test_a_node_that_says_nothing_is_sent_no_more_than_so_many(
    intents: Intents, tmp_path: pathlib.Path
) -> None:
    names = [places.digest(str(number)) for number in range(MOST)]
    await asyncio.gather(*(sent(intents, name) for name in names))
    with pytest.raises(RpcError, match="node a") as caught:
        await sent(intents)
    assert caught.value.code is Code.UNAVAILABLE
    assert intents.node(X) == ""
    assert await on_disk(tmp_path) == sorted(names)
    await sent(intents, names[0])  # what is known may be sent again
    await sent(intents, node="b")
    intents.settle(names[0])
    await intents.drop(intents.ended())
    await sent(intents, X, "a")
    assert len(intents) == MOST


async def test_more_than_one_batch_goes_at_once(intents: Intents, tmp_path: pathlib.Path) -> None:
    count = metadata.BATCH + 1
    for number in range(count):
        digest = places.digest(str(number))
        await sent(intents, digest, f"node-{number}")
        intents.settle(digest)
    await intents.drop(intents.ended())
    assert await on_disk(tmp_path) == []
    assert len(intents) == 0


async def test_an_intent_that_cannot_be_removed_is_tried_again(
    intents: Intents, tmp_path: pathlib.Path
) -> None:
    await sent(intents)
    intents.settle(X)
    document = tmp_path / f"{X}.json"

    def block() -> bytes:
        text = document.read_bytes()
        document.unlink()
        (document / "in the way").mkdir(parents=True)
        return text

    text = await asyncio.to_thread(block)
    with pytest.raises(IsADirectoryError):
        await intents.drop(intents.ended())

    def clear() -> None:
        (document / "in the way").rmdir()
        document.rmdir()
        document.write_bytes(text)

    await asyncio.to_thread(clear)
    await intents.drop(intents.ended())
    assert await on_disk(tmp_path) == []
