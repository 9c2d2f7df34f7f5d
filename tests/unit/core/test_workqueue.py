"""The queue's rules, one by one, in virtual time."""

import asyncio

import pytest
from bitts.core import workqueue
from support.virtualtime import VirtualClock


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def queue(clock: VirtualClock) -> workqueue.WorkQueue:
    return workqueue.WorkQueue("claims", start=1, maximum=300, clock=clock)


async def attempt(queue: workqueue.WorkQueue) -> str:
    """Take a key and finish it at once."""
    key = await asyncio.wait_for(queue.get(), 60.0)
    queue.done(key)
    return key


async def test_a_key_waits_only_once(queue: workqueue.WorkQueue) -> None:
    for key in ("a", "b", "a"):
        queue.add(key)
    assert queue.depth == 2
    assert list(queue.ready_keys()) == ["a", "b"]
    assert [await queue.get(), await queue.get()] == ["a", "b"]


async def test_a_key_in_work_is_handed_out_again_only_after_done(
    queue: workqueue.WorkQueue,
) -> None:
    queue.add("a")
    await queue.get()
    queue.add("a")
    queue.add("a")
    assert (queue.depth, queue.processing) == (0, 1)
    queue.done("a")
    assert (queue.depth, queue.processing) == (1, 0)
    assert await attempt(queue) == "a"
    assert queue.depth == 0


async def test_retries_wait_exponentially_until_forgotten(
    queue: workqueue.WorkQueue, clock: VirtualClock
) -> None:
    assert [queue.retry("a") for _ in range(3)] == [1, 2, 4]
    assert queue.failures("a") == 3
    assert queue.retrying == 1
    queue.forget("a")
    assert queue.failures("a") == 0
    assert queue.retry("a") == 1


async def test_a_retried_key_comes_back_when_its_time_has_come(
    queue: workqueue.WorkQueue, clock: VirtualClock
) -> None:
    queue.retry("a")
    clock.advance(0.9)
    assert (queue.depth, queue.delayed) == (0, 1)
    assert queue.due_in("a") == pytest.approx(0.1)
    clock.advance(0.1)
    assert (queue.depth, queue.delayed) == (1, 0)
    assert queue.due_in("a") is None


async def test_of_two_deadlines_the_earlier_one_counts(
    queue: workqueue.WorkQueue, clock: VirtualClock
) -> None:
    queue.add_after("a", 10)
    queue.add_after("a", 20)
    assert queue.due_in("a") == 10
    queue.add_after("a", 5)
    clock.advance(5)
    assert await attempt(queue) == "a"
    clock.advance(100)
    assert queue.depth == 0, "an overtaken deadline must not fire"


async def test_an_add_skips_the_delay_and_answers_it(
    queue: workqueue.WorkQueue, clock: VirtualClock
) -> None:
    queue.add_after("a", 10)
    queue.add("a")
    assert queue.delayed == 0
    assert await attempt(queue) == "a"
    clock.advance(100)
    assert queue.depth == 0


async def test_a_delay_for_a_key_that_is_ready_changes_nothing(
    queue: workqueue.WorkQueue, clock: VirtualClock
) -> None:
    queue.add("a")
    queue.add_after("a", 10)
    assert await attempt(queue) == "a"
    assert queue.delayed == 0


@pytest.mark.parametrize("delay", [0, -1])
async def test_no_delay_is_an_add(queue: workqueue.WorkQueue, delay: float) -> None:
    queue.add_after("a", delay)
    assert queue.depth == 1


async def test_a_delay_that_ends_during_work_has_the_key_run_again(
    queue: workqueue.WorkQueue, clock: VirtualClock
) -> None:
    queue.add("a")
    await queue.get()
    queue.add_after("a", 1)
    clock.advance(1)
    assert queue.depth == 0
    queue.done("a")
    assert queue.depth == 1


async def test_our_own_write_leaves_a_delay_alone(
    queue: workqueue.WorkQueue, clock: VirtualClock
) -> None:
    queue.retry("a")
    queue.add("a", own_write=True)
    assert (queue.depth, queue.delayed) == (0, 1)
    clock.advance(1)
    assert await attempt(queue) == "a"


async def test_our_own_write_during_work_does_not_undo_the_retry(
    queue: workqueue.WorkQueue, clock: VirtualClock
) -> None:
    queue.add("a")
    key = await queue.get()
    queue.add(key, own_write=True)
    queue.retry(key)
    queue.done(key)
    assert (queue.depth, queue.delayed) == (0, 1)
    clock.advance(1)
    assert queue.depth == 1


async def test_our_own_write_during_work_that_succeeds_is_looked_at(
    queue: workqueue.WorkQueue,
) -> None:
    queue.add("a")
    key = await queue.get()
    queue.add(key, own_write=True)
    queue.done(key)
    assert queue.depth == 1


async def test_a_foreign_change_beside_our_own_write_runs_at_once(
    queue: workqueue.WorkQueue,
) -> None:
    queue.add("a")
    key = await queue.get()
    queue.add(key, own_write=True)
    queue.retry(key)
    queue.add(key)
    queue.done(key)
    assert (queue.depth, queue.delayed) == (1, 0)


async def test_our_own_write_of_a_resting_key_is_an_add(queue: workqueue.WorkQueue) -> None:
    queue.add("a", own_write=True)
    assert queue.depth == 1


async def test_getters_wait_in_line(queue: workqueue.WorkQueue) -> None:
    getters = [asyncio.create_task(queue.get()) for _ in range(2)]
    await asyncio.sleep(0)
    queue.add("a")
    queue.add("b")
    assert await asyncio.gather(*getters) == ["a", "b"]


async def test_a_cancelled_getter_takes_no_key_with_it(queue: workqueue.WorkQueue) -> None:
    first, second = (asyncio.create_task(queue.get()) for _ in range(2))
    await asyncio.sleep(0)
    queue.add("a")  # wakes the first
    first.cancel()  # before it has run
    assert await asyncio.wait_for(second, 5) == "a"
    assert first.cancelled()


async def test_a_getter_cancelled_after_another_took_the_key_wakes_nobody(
    queue: workqueue.WorkQueue,
) -> None:
    first, second = (asyncio.create_task(queue.get()) for _ in range(2))
    await asyncio.sleep(0)
    queue.add("a")
    first.cancel()
    assert await queue.get() == "a"  # whoever never waits is quicker
    await asyncio.sleep(0)
    assert first.cancelled()
    assert not second.done()
    queue.add("b")
    assert await asyncio.wait_for(second, 5) == "b"


async def test_a_cancelled_getter_is_forgotten(queue: workqueue.WorkQueue) -> None:
    getter = asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    getter.cancel()
    await asyncio.wait([getter])
    queue.add("a")
    assert await attempt(queue) == "a"


async def test_a_getter_being_cancelled_is_passed_over(queue: workqueue.WorkQueue) -> None:
    first, second = (asyncio.create_task(queue.get()) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    queue.add("a")  # the first is still in line, though cancelled
    assert await asyncio.wait_for(second, 5) == "a"
    assert first.cancelled()


async def test_shutting_down_ends_every_getter_and_drops_what_has_not_begun(
    queue: workqueue.WorkQueue, clock: VirtualClock
) -> None:
    queue.add("in work")
    key = await queue.get()
    getters = [asyncio.create_task(queue.get()) for _ in range(3)]
    await asyncio.sleep(0)
    queue.add_after("later", 1)
    queue.shut_down()
    for getter in getters:
        with pytest.raises(workqueue.ShutDown):
            await getter
    with pytest.raises(workqueue.ShutDown):
        await queue.get()
    queue.add("new")
    queue.retry(key)
    queue.done(key)
    clock.advance(1000)
    assert (queue.depth, queue.delayed, queue.processing, clock.timers) == (0, 0, 0, 0)


async def test_all_delays_share_one_timer(queue: workqueue.WorkQueue, clock: VirtualClock) -> None:
    for number in range(1000):
        queue.add_after(f"key {number}", 1000 - number)
    assert clock.timers == 1
    clock.advance(1000)
    assert queue.depth == 1000
    assert clock.timers == 0


async def test_memory_is_bounded_by_the_keys_not_by_the_calls(
    queue: workqueue.WorkQueue,
) -> None:
    for number in range(10_000):
        queue.add_after("a", 20_000 - number)
    assert len(queue._heap) < 100
    assert queue.delayed == 1


async def test_figures_tell_what_happened(queue: workqueue.WorkQueue, clock: VirtualClock) -> None:
    queue.add("a")
    queue.add("a")
    queue.add("b")
    clock.advance(0.5)
    assert queue.oldest_wait == 0.5
    key = await queue.get()
    clock.advance(20)
    assert queue.work_ages() == [20]
    queue.retry(key)
    queue.done(key)
    figures = queue.figures
    assert (figures.adds, figures.retries) == (2, 1)
    assert (figures.waits.total, sum(figures.waits.counts)) == (0.5, 1)
    assert (figures.work.total, figures.work.counts[-1]) == (20, 1)
    await queue.get()
    assert queue.oldest_wait == 0


async def test_the_machines_clock_wakes_a_key() -> None:
    queue = workqueue.WorkQueue("claims")
    queue.add_after("a", 0.001)
    assert await asyncio.wait_for(queue.get(), 5) == "a"
    queue.add_after("b", 1000)
    queue.shut_down()
