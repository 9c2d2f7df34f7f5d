"""What a controller keeps of CreateVolumes whose end it did not hear, and how it learns of it."""

import asyncio
import contextlib
import pathlib
from collections.abc import AsyncIterator, Iterator

import pytest
from bitts.core import ledger
from bitts.rpc import endpoints, tls
from bitts.rpc.codes import Code, RpcError
from local_driver import announced, options, places
from local_driver.cluster import links
from local_driver.cluster.book import Book
from local_driver.cluster.intents import Intents
from support import fleet, localdriver, waiting
from support.fleet import Fleet
from support.localdriver import MIB

NODES = ("node-1", "node-2")
COMMON = ("--backends=directory", "--capacity=1Gi")


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    kit = fleet.certificates(tmp_path_factory.mktemp("pki"))
    with fleet.running(tmp_path_factory.mktemp("logs"), kit, *COMMON, nodes=NODES) as made:
        yield made


@pytest.fixture
async def pair(shared: Fleet) -> AsyncIterator[Fleet]:
    yield shared
    await shared.mend(*COMMON)


@pytest.fixture
async def book(tmp_path: pathlib.Path) -> AsyncIterator[Book]:
    """A controller's, which asks a node at once instead of after minutes."""
    for name in ("nodes", "intents"):
        (tmp_path / name).mkdir()
    made = Book(tmp_path, Intents(tmp_path / "intents", late=0))
    yield made
    await made.close()


@contextlib.asynccontextmanager
async def linked(pair: Fleet, book: Book) -> AsyncIterator[links.NodeLink]:
    """A controller's link to node-1."""
    credentials = tls.Credentials(pair.kit["controller"])
    await credentials.context(is_server=False)
    name = f"node-1.nodes.{fleet.DRIVER}"
    endpoint = endpoints.TlsEndpoint("127.0.0.1", pair.ports["node-1"], credentials, name)
    served = announced.rpcs(announced.controller(options.ServiceOptions()))
    expected = links.Expected(fleet.DRIVER, served)
    link = links.NodeLink("node-1", endpoint, expected, book, ledger.Ledger())
    keeper = asyncio.create_task(link.keep())
    try:
        await link.attempted()
        yield link
    finally:
        keeper.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await keeper


async def lost(book: Book, name: str) -> str:
    """Have sent a CreateVolume to node-1, of which nobody hears again; return its digest."""
    digest = places.digest(name)
    async with book.intents.sending(digest, "node-1"):
        return digest


async def test_a_node_says_what_became_of_a_call_whose_answer_was_lost(
    pair: Fleet, book: Book
) -> None:
    strictly = localdriver.create_request("made", size=MIB, requisite=[fleet.segments("node-1")])
    async with pair.client() as client:
        volume = await client.create(strictly)
        async with linked(pair, book) as link:
            never, made = await lost(book, "never"), await lost(book, "made")
            await link.settle()
            assert book.intents.node(never) == ""
            # The account does not have it yet: only the intent knows where it is.
            assert book.intents.node(made) == "node-1"
            await link.refresh()
            assert book.intents.node(made) == ""
            assert book.holders(made, NODES) == ["node-1"]
        await client.delete(volume.volume_id)


async def test_a_node_that_fails_is_asked_at_once_and_not_bound_to_the_name(pair: Fleet) -> None:
    await pair.faults("node-1", "add CreateVolume:code=Internal")
    wish = localdriver.create_request("v", size=MIB, requisite=[fleet.segments("node-1")])
    folder = pair.home / "controller/state/intents"
    async with pair.client() as client:
        for _ in range(3):
            with pytest.raises(RpcError) as caught:
                await client.create(wish)
            assert caught.value.code is Code.INTERNAL
        await waiting.until(lambda: not list(folder.iterdir()), "the intent to go")
        pair.processes["node-1"].kill()
        elsewhere = localdriver.create_request("v", size=MIB, requisite=[fleet.segments("node-2")])
        volume = await client.create(elsewhere)
        assert pair.everywhere() == [volume.volume_id] == pair.volumes("node-2")
        await client.delete(volume.volume_id)


async def test_a_node_that_answers_late_stays_bound_to_the_name(pair: Fleet) -> None:
    await pair.faults("node-1", "add CreateVolume:hang=after,times=1")
    wish = localdriver.create_request("v", size=MIB, requisite=[fleet.segments("node-1")])
    folder = pair.home / "controller/state/intents"
    async with pair.client() as client:
        with pytest.raises(RpcError) as caught:
            await client.controller.create_volume(wish, timeout=0.3)
        assert caught.value.code is Code.DEADLINE_EXCEEDED
        assert [path.stem for path in folder.glob("*.json")] == [places.digest("v")]
        volume = await client.create(wish)
        await waiting.until(lambda: not list(folder.iterdir()), "the intent to go")
        await client.delete(volume.volume_id)
