"""News for readers that are slower than the changes."""

import asyncio
import threading

import pytest
from bitts.rpc import codes, ipam
from cni_daemon import callers
from cni_daemon.ipam import service
from cni_daemon.operations import DeleteLink, ReleaseAddresses
from cni_daemon.records import Entry, Key, Phase
from hypothesis import given
from hypothesis import strategies as st

RESULT = {"cniVersion": "1.1.0", "ips": [{"address": "10.0.0.2/24", "gateway": "10.0.0.1"}]}
HELD = ReleaseAddresses("/x/net", "c", "eth0")


def key(number: int) -> Key:
    return Key("net", f"c{number}", "eth0", callers.ADDRESSES)


def entry(number: int, phase: Phase = Phase.DONE) -> Entry:
    return Entry(key(number), phase, undo=(HELD,), result=RESULT)


async def drained(news: service.News, count: int) -> list[tuple[int, Key, Entry | None]]:
    return [await anext(news) for _ in range(count)]


@given(st.lists(st.tuples(st.integers(0, 4), st.booleans()), max_size=40), st.integers(0, 40))
def test_a_reader_ends_up_with_the_truth(changes: list[tuple[int, bool]], read_at: int) -> None:
    """However much is left out on the way, the last word about each key is told."""

    async def run() -> dict[Key, bool]:
        news = service.News(asyncio.get_running_loop(), 100)
        seen: dict[Key, bool] = {}
        pending: set[Key] = set()
        for revision, (number, is_there) in enumerate(changes):
            news.offer(revision, key(number), entry(number) if is_there else None)
            pending.add(key(number))
            if revision == read_at:
                for _, told, found in await drained(news, len(pending)):
                    seen[told] = found is not None
                pending.clear()
        for _, told, found in await drained(news, len(pending)):
            seen[told] = found is not None
        return seen

    assert asyncio.run(run()) == {key(number): is_there for number, is_there in changes}


async def test_a_reader_who_is_too_slow_is_cut_off() -> None:
    news = service.News(asyncio.get_running_loop(), 2)
    for number in range(3):
        news.offer(number, key(number), entry(number))
    with pytest.raises(codes.RpcError, match="watch anew") as caught:
        await anext(news)
    assert caught.value.code is codes.Code.ABORTED


async def test_a_change_in_a_thread_wakes_the_reader() -> None:
    news = service.News(asyncio.get_running_loop(), 2)
    reader = asyncio.create_task(drained(news, 2), name="reader")
    await asyncio.sleep(0)

    def change() -> None:
        for number in (1, 2):
            news.offer(number, key(number), None)

    thread = threading.Thread(target=change)
    thread.start()
    async with asyncio.timeout(60):
        found = await reader
    thread.join(10)
    assert [each[1] for each in found] == [key(1), key(2)]


def test_an_allocation_is_what_stands_and_has_addresses_of_its_own() -> None:
    found = service.allocation(entry(1))
    assert found is not None
    assert found.addresses == [ipam.Address(address="10.0.0.2/24", gateway="10.0.0.1")]
    assert found.source == ipam.AllocationSource.CALL
    assert service.allocation(entry(1, Phase.PLANNED)) is None
    chained = Entry(key(1), Phase.DONE, undo=(DeleteLink("host", "x"),), result=RESULT)
    assert service.allocation(chained) is None, "a later plugin of the chain repeats the result"
