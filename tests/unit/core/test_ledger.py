"""What the ledger remembers, forgets and tells."""

import asyncio

import pytest
from bitts.core import ledger
from support.virtualtime import VirtualClock


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock(now=100.0)


@pytest.fixture
def book(clock: VirtualClock) -> ledger.Ledger:
    return ledger.Ledger(waiting=3, finished=2, clock=clock.time)


def test_an_object_in_work_shows_its_decision_and_since_when(
    book: ledger.Ledger, clock: VirtualClock
) -> None:
    book.started("claims", "shop/cart")
    clock.advance(2)
    book.decided("claims", "shop/cart", "CreateVolume", "no volume yet")
    assert book.snapshot() == [
        ledger.Entry(
            loop="claims",
            key="shop/cart",
            phase=ledger.Phase.WORKING,
            since=100.0,
            decision="CreateVolume",
            reason="no volume yet",
            decided_at=102.0,
            error="",
            failures=0,
            retry_at=None,
        )
    ]


def test_a_failed_object_shows_its_error_until_an_attempt_ends_without(
    book: ledger.Ledger,
) -> None:
    def shown() -> tuple[str, str, int, float | None]:
        entry = book.entry("claims", "a")
        assert entry is not None
        return entry.phase, entry.error, entry.failures, entry.retry_at

    book.started("claims", "a")
    book.decided("claims", "a", "CreateVolume failed", "no volume yet", error="no space")
    book.decided("claims", "a", "RetryLater", "no space")
    book.retry_at("claims", "a", 104.0, failures=1)
    assert shown() == ("waiting", "no space", 1, 104.0)
    book.started("claims", "a")
    assert shown() == ("working", "no space", 1, None)
    book.waits("claims", "a", until=110.0)
    assert shown() == ("waiting", "", 1, 110.0)
    book.waits("claims", "a")
    assert shown() == ("waiting", "", 1, None)
    book.finished("claims", "a")
    assert shown() == ("finished", "", 0, None)


def test_a_decision_about_an_unknown_object_is_kept(book: ledger.Ledger) -> None:
    book.decided("claims", "a", "Ignore", "not ours")
    entry = book.entry("claims", "a")
    assert entry is not None
    assert (entry.phase, entry.reason) == ("finished", "not ours")
    assert book.entry("volumes", "a") is None


def test_memory_is_bounded_the_oldest_goes_first(book: ledger.Ledger) -> None:
    for number in range(5):
        book.started("claims", f"finished {number}")
        book.finished("claims", f"finished {number}")
        book.started("claims", f"waiting {number}")
        book.retry_at("claims", f"waiting {number}", 0.0, failures=1)
        book.started("claims", f"working {number}")
    kept = [entry.key for entry in book.snapshot()]
    assert kept == [
        *(f"working {number}" for number in range(5)),
        *(f"waiting {number}" for number in (2, 3, 4)),
        *(f"finished {number}" for number in (3, 4)),
    ]


def test_an_object_touched_again_is_the_latest(book: ledger.Ledger) -> None:
    for key in ("a", "b", "a", "c"):
        book.started("claims", key)
        book.finished("claims", key)
    assert [entry.key for entry in book.snapshot()] == ["a", "c"]


def test_one_without_a_decision_yet_has_empty_words(book: ledger.Ledger) -> None:
    book.started("claims", "a")
    (entry,) = book.snapshot()
    assert (entry.decision, entry.reason, entry.decided_at) == ("", "", 0.0)


async def test_subscribers_see_decisions_as_they_are_made(book: ledger.Ledger) -> None:
    book.decided("claims", "a", "Early", "before")
    with book.subscribe() as stream:
        reader = asyncio.create_task(anext(stream))
        await asyncio.sleep(0)
        made = book.decided("claims", "a", "Late", "after")
        assert await asyncio.wait_for(reader, 5) == made
        assert (made.sequence, made.decision) == (2, "Late")


async def test_a_slow_subscriber_loses_the_oldest_and_is_told(book: ledger.Ledger) -> None:
    with book.subscribe(limit=2) as stream:
        for number in range(5):
            book.decided("claims", "a", f"Step {number}", "")
        assert stream.dropped == 3
        assert [(await anext(stream)).decision for _ in range(2)] == ["Step 3", "Step 4"]


async def test_a_closed_subscription_ends_after_what_was_unread(book: ledger.Ledger) -> None:
    stream = book.subscribe()
    book.decided("claims", "a", "Last", "")
    stream.close()
    book.decided("claims", "a", "Unseen", "")
    assert [decision.decision async for decision in stream] == ["Last"]


async def test_closing_wakes_a_reader(book: ledger.Ledger) -> None:
    stream = book.subscribe()

    async def read() -> int:
        return len([decision async for decision in stream])

    reader = asyncio.create_task(read())
    await asyncio.sleep(0)
    stream.close()
    assert await asyncio.wait_for(reader, 5) == 0
